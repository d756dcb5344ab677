"""As the tests of the gateway: coroutines run, and nothing of the log is printed."""

from tests.unit.gateway.conftest import _quiet, logs, pytest_pyfunc_call

__all__ = ["_quiet", "logs", "pytest_pyfunc_call"]
