"""Counts the calls of a method that the code makes before other work on its event loop gets a turn."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(slots=True)
class CallCount:
    """`before_other_work` is the number when a callback that was scheduled by the first call ran; None until then."""

    number: int = 0
    before_other_work: int | None = None

    def add(self) -> None:
        if not self.number:
            asyncio.get_running_loop().call_soon(self._take_turn)
        self.number += 1

    def is_shared_within(self, most: int) -> bool:
        """Whether other work had a turn after at most so many calls."""
        return self.before_other_work is not None and self.before_other_work <= most

    def _take_turn(self) -> None:
        self.before_other_work = self.number


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> CallCount:
    """Count the calls of this method of a class or an object from now on."""
    method = getattr(owner, name)
    count = CallCount()

    def counting(*arguments: Any) -> Any:
        count.add()
        return method(*arguments)

    monkeypatch.setattr(owner, name, counting)
    return count
