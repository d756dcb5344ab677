"""What lies on disk: one folder, one cluster, one owner at a time.

    DATA/cluster.json   which cluster this is            DATA/node-0/   Kafka's own files of node 0
    DATA/lock           held while it is in use          DATA/config/   what each node was last told
    DATA/logs/          logs of the nodes, unless the spec puts them elsewhere

One rule: nothing is written into a folder before it is known to be ours. `cluster.json` is written first, saying
that formatting has begun, and again when it is complete: a start that was cut short in between is begun anew, and
no node has run before that.
"""

import fcntl
import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from headgate.base.errors import PlatformError, UsageError
from headgate.base.ids import ClusterId, NodeId

_IDENTITY, _LOCK = "cluster.json", "lock"
_ELSEWHERE = "choose another data directory"
_OURS = "choose another data directory, or delete this one if its data is not needed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The content of `cluster.json`."""

    cluster_id: ClusterId
    brokers: int
    formatted: bool


class ClaimedFolder:
    """A data directory that is ours and locked until `release`."""

    def __init__(self, path: Path, identity: Identity, lock: IO[str]) -> None:
        self.path = path
        self.identity = identity
        self._lock = lock

    def node_dir(self, node: NodeId) -> Path:
        return self.path / f"node-{node}"

    def write_config(self, node: NodeId, text: str) -> Path:
        """Keep what `node` is told, readable by its owner only: it may hold passwords."""
        file = self.path / "config" / f"node-{node}.properties"
        try:
            file.parent.mkdir(exist_ok=True)
            file.touch(mode=0o600)
            file.write_text(text, encoding="ascii")
        except OSError as error:
            raise PlatformError(f"{file} cannot be written: {error.strerror}") from error
        return file

    def mark_formatted(self) -> None:
        self.identity = replace(self.identity, formatted=True)
        _write_identity(self.path, self.identity)

    def release(self) -> None:
        self._lock.close()


def claim(path: Path, *, brokers: int, new_id: ClusterId) -> ClaimedFolder:
    """Take `path` for a cluster of `brokers` nodes, which is called `new_id` if the folder is new.

    A folder that holds something else, another number of nodes, or that a running process owns is refused.
    """
    try:
        known = _read_identity(path)
        path.mkdir(parents=True, exist_ok=True)
        lock = _lock(path)
    except OSError as error:
        raise PlatformError(
            f"data directory {path} cannot be used: {error.strerror}; make it readable and writable, or choose another"
        ) from error
    try:
        known = known and _read_identity(path)  # again, now that nobody else can be changing it
        if known is None or not known.formatted:
            for leftover in path.glob("node-*"):
                shutil.rmtree(leftover)
            known = Identity(cluster_id=known.cluster_id if known else new_id, brokers=brokers, formatted=False)
            _write_identity(path, known)
        else:
            _check(path, known, brokers)
    except BaseException:
        lock.close()
        raise
    return ClaimedFolder(path, known, lock)


def read_meta(file: Path) -> dict[str, str]:
    """Kafka's `meta.properties`: plain lines of key=value."""
    lines = file.read_text(encoding="latin-1").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def _read_identity(path: Path) -> Identity | None:
    """Which cluster the folder holds; None for a new one, `UsageError` for somebody else's."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is not a directory: {_ELSEWHERE}")
    try:
        text = (path / _IDENTITY).read_text(encoding="utf-8")
    except FileNotFoundError:
        found = sorted(entry.name for entry in path.iterdir() if entry.name != _LOCK) if path.is_dir() else []
        if "meta.properties" in found:
            theirs = read_meta(path / "meta.properties").get("cluster.id", "unknown")
            raise UsageError(
                f"{path} holds the data of Kafka cluster {theirs}, which Headgate did not make: {_ELSEWHERE}"
            ) from None
        if found:
            raise UsageError(
                f"{path} is not empty and not a data directory of Headgate's Kafka (it holds {found[0]}): {_ELSEWHERE}"
            ) from None
        return None
    try:
        return Identity(**json.loads(text))
    except (ValueError, TypeError):
        raise UsageError(f"{path / _IDENTITY} is damaged or of another version of Headgate: {_OURS}") from None


def _write_identity(path: Path, identity: Identity) -> None:
    fresh = path / f"{_IDENTITY}.new"
    try:
        fresh.write_text(json.dumps(asdict(identity)) + "\n", encoding="utf-8")
        fresh.replace(path / _IDENTITY)
    except OSError as error:
        raise PlatformError(f"{path / _IDENTITY} cannot be written: {error.strerror}") from error


def _lock(path: Path) -> IO[str]:
    """The folder's lock with our pid in it. The file is never inherited, so it is free when this process ends."""
    lock = (path / _LOCK).open("a+", encoding="ascii")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        lock.close()
        raise UsageError(
            f"data directory {path} is in use by process {owner}: stop that process or choose another data directory"
        ) from None
    with suppress(OSError):
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
    return lock


def _check(path: Path, known: Identity, brokers: int) -> None:
    if known.brokers != brokers:
        raise UsageError(
            f"{path} holds a cluster of {known.brokers} brokers and cannot be started with {brokers}:"
            f" ask for {known.brokers}, or choose another data directory"
        )
    for node in range(known.brokers):
        file = path / f"node-{node}" / "meta.properties"
        try:
            meta = read_meta(file)
        except OSError as error:
            raise UsageError(
                f"{file} cannot be read ({error.strerror}), so node {node} is not whole: {_OURS}"
            ) from None
        if (meta.get("cluster.id"), meta.get("node.id")) != (known.cluster_id, str(node)):
            raise UsageError(
                f"{file.parent} belongs to node {meta.get('node.id')} of Kafka cluster {meta.get('cluster.id')},"
                f" and {path} is cluster {known.cluster_id}: {_OURS}"
            )
