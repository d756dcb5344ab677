"""Stores that break the contract, each in one way."""

# ruff: noqa: ARG002 - they do not care what they are given

import asyncio
from typing import Any

from headgate.facts.topology import Description
from headgate.plugin import PushedTopology, StoreSettings


class Fine:
    """One that keeps nothing and never fails; the others differ in what their name says."""

    def __init__(self) -> None:
        self.calls = 0

    async def configure(self, settings: StoreSettings) -> None:
        pass

    async def set(self, pushed: PushedTopology) -> None:
        self.calls += 1

    async def get(self, group: str, epoch: int) -> Description | None:
        self.calls += 1
        return None

    async def delete(self, group: str) -> None:
        self.calls += 1

    async def close(self) -> None:
        pass


class RaisesAtOnce(Fine):
    def set(self, pushed: PushedTopology) -> Any:
        raise RuntimeError("the password is hunter2")

    def get(self, group: str, epoch: int) -> Any:
        raise RuntimeError("the password is hunter2")

    def delete(self, group: str) -> Any:
        raise RuntimeError("the password is hunter2")


class ReturnsNothing(Fine):
    def set(self, pushed: PushedTopology) -> Any:
        return None

    def get(self, group: str, epoch: int) -> Any:
        return None

    def delete(self, group: str) -> Any:
        return None


class Raises(Fine):
    """The same error from everything, when it is awaited."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    async def set(self, pushed: PushedTopology) -> None:
        raise self.error

    async def get(self, group: str, epoch: int) -> Description | None:
        raise self.error

    async def delete(self, group: str) -> None:
        raise self.error


class Hangs(Fine):
    """Until it is cancelled; `stubborn`: and then for a while longer."""

    def __init__(self, *, stubborn: float = 0.0) -> None:
        super().__init__()
        self.stubborn = stubborn
        self.cancelled = 0

    async def _hang(self) -> Any:
        self.calls += 1
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            await asyncio.sleep(self.stubborn)
            if self.stubborn:
                raise RuntimeError("late, and nobody listens") from None
            raise

    async def set(self, pushed: PushedTopology) -> None:
        await self._hang()

    async def get(self, group: str, epoch: int) -> Description | None:
        await self._hang()
        return None

    async def delete(self, group: str) -> None:
        await self._hang()


class AnswersNonsense(Fine):
    async def get(self, group: str, epoch: int) -> Any:
        return {"subtopologies": []}
