"""Producers of librdkafka that a test can break, as a fatal error does."""

from typing import Any
from unittest.mock import Mock

from confluent_kafka import Producer


class BreakableProducers:
    """Makes real producers; `fail` reports a fatal error of the last one, as librdkafka does by its callback."""

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}

    def make(self, settings: dict[str, Any]) -> Producer:
        self._settings = settings
        return Producer(settings)

    def fail(self) -> None:
        self._settings["error_cb"](Mock(fatal=lambda: True))
