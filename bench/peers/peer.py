"""What is measured: a way from the loader to the brokers, with or without a process in between.

One rule: a peer that cannot be had on this machine says so by `BenchError`, and the page says it too; it is never
left out in silence.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from bench.cluster import Upstream, answers
from bench.processes import BenchError, Child
from tests.support.ports import port_block

HOST = "127.0.0.1"
_READY_S = 30.0


class Peer(ABC):
    """Clients begin at `bootstrap` and dial node i at `nodes[i]`; only where it `rewrites` do real clients stay."""

    name: ClassVar[str]
    title: ClassVar[str]
    rewrites: ClassVar[bool] = True
    warm_ups: ClassVar[int] = 1  # runs of each scenario that are not kept
    nodes: tuple[str, ...]
    bootstrap: str

    def prepare(self) -> str:
        """Fetch and build what it takes; the result says what it is, with its version."""
        return ""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def pids(self) -> tuple[int, ...]: ...


class Direct(Peer):
    """Nothing in between."""

    name = "direct"
    title = "direct"

    def __init__(self, upstream: Upstream, folder: Path) -> None:  # noqa: ARG002 - as all peers are made
        self.nodes = upstream.nodes
        self.bootstrap = upstream.bootstrap

    def start(self) -> None:
        """There is nothing to start."""

    def stop(self) -> None:
        """There is nothing to stop."""

    def pids(self) -> tuple[int, ...]:
        return ()


class Proxy(Peer):
    """A process of its own. Its ports: bootstrap first, then one for each node, the last of the block to spare."""

    def __init__(self, upstream: Upstream, folder: Path) -> None:
        self.upstream = upstream
        self.folder = folder / self.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = port_block()
        self.spare_port = self.port + 15
        self.bootstrap = f"{HOST}:{self.port}"
        self.nodes = tuple(f"{HOST}:{self.port + 1 + node}" for node in range(len(upstream.nodes)))
        self._child: Child | None = None

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """The program and its arguments, with its configuration written into `folder`."""

    def start(self) -> None:
        child = Child(self.command(), log=self.folder / "log")
        self._child = child
        try:
            child.wait_until(lambda: answers(self.bootstrap, self.upstream.tls), seconds=_READY_S)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._child is not None:
            self._child.stop()
            self._child = None

    def pids(self) -> tuple[int, ...]:
        if self._child is None or not self._child.running:
            words = "was not started" if self._child is None else self._child.last_words()
            raise BenchError(f"{self.title} has ended: {words}")
        return self._child.pids()
