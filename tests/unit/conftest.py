"""Captures the log of each unit test, so that nothing of it reaches the screen."""

from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict


@pytest.fixture
def logs() -> Iterator[list[EventDict]]:
    """The log events of the test, in order."""
    structlog.reset_defaults()
    with capture_logs() as events:
        yield events


@pytest.fixture(autouse=True)
def _quiet(logs: list[EventDict]) -> None:
    """Nothing is printed: a test that wants the log asks for it."""
