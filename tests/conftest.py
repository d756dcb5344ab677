"""What all tests share: coroutine tests, logging that no test configures for the next, no Hypothesis deadlines."""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.support.coroutine_tests import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]

# On a busy machine an example may take any time.
settings.register_profile("headgate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headgate")


@pytest.fixture(scope="session", autouse=True)
def loggers_are_not_cached() -> Iterator[None]:
    """A logger that is used while a command runs in this process would be deaf to `capture_logs` for ever."""
    configure = structlog.configure

    def without_cache(**options: Any) -> None:
        configure(**options | {"cache_logger_on_first_use": False})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", without_cache)
        yield


@pytest.fixture(autouse=True)
def logs_as_they_come() -> None:
    """A level that a command was given is not the level of the next test."""
    structlog.reset_defaults()
