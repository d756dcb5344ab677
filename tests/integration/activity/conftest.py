"""Tests that are coroutines run on a loop of their own."""

from tests.support.coroutine_tests import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
