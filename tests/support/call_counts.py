"""Counts the calls of a method that the code makes before other work on its event loop gets a turn."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(slots=True)
class CallCount:
    number: int = 0
    _at_turn: int | None = None

    @property
    def before_other_work(self) -> int:
        """The number of calls when a callback ran that was scheduled by the first of them."""
        assert self._at_turn is not None, "other work had no turn"
        return self._at_turn

    def add(self) -> None:
        if not self.number:
            asyncio.get_running_loop().call_soon(self._take_turn)
        self.number += 1

    def _take_turn(self) -> None:
        self._at_turn = self.number


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> CallCount:
    """Count the calls of this method of a class or an object from now on."""
    method = getattr(owner, name)
    count = CallCount()

    def counting(*arguments: Any) -> Any:
        count.add()
        return method(*arguments)

    monkeypatch.setattr(owner, name, counting)
    return count
