"""Tests may be coroutines."""

from tests.support.coroutine_tests import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
