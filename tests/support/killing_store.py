"""A topology store that dies: `topologies.store = "plugin:tests.support.killing_store:KillingStore"`.

The environment variable HEADGATE_TEST_KILL names a file; when a call comes to the point whose name stands in it, the
store removes the file and kills its own process with SIGKILL. So a test arms it for one kill, and the process that is
started next lives.

One rule: nothing here is careful. A description is written over the old one, half of it first, and nobody syncs: what
a kill leaves behind is what the gateway's own bookkeeping must cope with.
"""

import asyncio
import hashlib
import os
import signal
from enum import StrEnum
from pathlib import Path

from headgate.facts.topology import Description
from headgate.plugin import PushedTopology, StoreSettings, from_bytes, to_bytes

ORDER = "HEADGATE_TEST_KILL"


class Point(StrEnum):
    """Where a call can die; `SET` and `DELETE` are before the store was touched."""

    SET = "set"
    SET_HALF = "set, half written"
    SET_DONE = "set, written"
    DELETE = "delete"
    DELETE_DONE = "delete, done"


class KillingStore:
    """One small file for each group: its epoch in the first line, then the description."""

    def __init__(self) -> None:
        self._folder = Path()
        self._order: Path | None = None

    async def configure(self, settings: StoreSettings) -> None:
        self._folder = settings.folder
        order = settings.environment.get(ORDER)
        self._order = None if order is None else Path(order)

    async def set(self, pushed: PushedTopology) -> None:
        await asyncio.to_thread(self._set, pushed)

    async def get(self, group: str, epoch: int) -> Description | None:
        return await asyncio.to_thread(self._get, group, epoch)

    async def delete(self, group: str) -> None:
        await asyncio.to_thread(self._delete, group)

    async def close(self) -> None:
        """Nothing is open."""

    def _set(self, pushed: PushedTopology) -> None:
        file, data = self._file(pushed.group), b"%d\n" % pushed.epoch + to_bytes(pushed.description)
        self._come_to(Point.SET)
        file.write_bytes(data[: len(data) // 2])
        self._come_to(Point.SET_HALF)
        file.write_bytes(data)
        self._come_to(Point.SET_DONE)

    def _get(self, group: str, epoch: int) -> Description | None:
        try:
            kept, _, data = self._file(group).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        return from_bytes(data) if int(kept) == epoch else None

    def _delete(self, group: str) -> None:
        self._come_to(Point.DELETE)
        self._file(group).unlink(missing_ok=True)
        self._come_to(Point.DELETE_DONE)

    def _file(self, group: str) -> Path:
        return file_of(self._folder, group)

    def _come_to(self, point: Point) -> None:
        if self._order is not None and self._order.exists() and self._order.read_text("utf-8") == point:
            self._order.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def file_of(folder: Path, group: str) -> Path:
    """Where the store keeps a group, in the folder that it was given."""
    return folder / hashlib.sha256(group.encode("utf-8", "surrogatepass")).hexdigest()
