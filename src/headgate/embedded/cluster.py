"""The embedded cluster: its data directory, the first format, and all of its nodes as one.

    DATA/cluster.json   which cluster this is            DATA/node-0/   Kafka's own files of node 0
    DATA/lock           held while it is in use          DATA/config/   the properties of each node
    DATA/logs/          logs of the nodes, unless the specification sets another folder

Invariants: a start succeeds as a whole, or ends every process before its error is raised. Nothing is written into a
folder that is not new or Headgate's own. `cluster.json` is written before formatting begins, and again when Kafka's
storage tool has succeeded for every node: a start that was interrupted in between is begun again.
"""

import base64
import errno
import fcntl
import json
import os
import secrets
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from headgate.base.errors import ClusterError, HeadgateError, PlatformError, UsageError
from headgate.base.ids import ClusterId, NodeId
from headgate.embedded.java import KafkaJvm
from headgate.embedded.node import Node, NodeDeath, StartOptions, Wait, fault, request_metadata, setting_refused
from headgate.embedded.spawn import start_tethered
from headgate.embedded.spec import (
    HOST,
    SCRAM_MECHANISMS,
    ClusterSpec,
    SecurityProtocol,
    node_properties,
    render,
)

_CALL_S, _STOP_S, _FORMAT_S = 1.0, 15.0, 60.0
_OPTIONS = StartOptions()
_IDENTITY, _LOCK = "cluster.json", "lock"
_ELSEWHERE = "choose another data directory"
_OURS = "choose another data directory, or delete this one if its data is not needed"


class EmbeddedKafka:
    """A real Kafka cluster in child processes, which end when this process does.

    `on_death` is called on a thread of its own when a node ends unexpectedly; `deaths` holds the same. An instance may
    be started again after it was stopped.
    """

    def __init__(self, spec: ClusterSpec, *, on_death: Callable[[NodeDeath], None] | None = None) -> None:
        self.spec = spec
        self.deaths: list[NodeDeath] = []
        self._on_death = on_death
        self._nodes: tuple[Node, ...] = ()
        self._folder: ClaimedFolder | None = None
        self._broker_password = secrets.token_hex(16)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """The plaintext addresses that the nodes listen on, for `bootstrap.servers`."""
        return self.bootstrap_of(SecurityProtocol.PLAINTEXT)

    def bootstrap_of(self, protocol: SecurityProtocol) -> str:
        """The addresses of the listener for `protocol`."""
        for listener in self.spec.client_listeners:
            if listener.protocol == protocol:
                return ",".join(f"{HOST}:{listener.ports(node)[0]}" for node in self.spec.node_ids)
        raise UsageError(f"the embedded cluster has no {protocol} listener")

    @property
    def cluster_id(self) -> ClusterId:
        if self._folder is None:
            raise ClusterError("the embedded cluster is not running, so it has no id")
        return self._folder.identity.cluster_id

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes by id; each can be stopped, killed and started singly while the cluster is up."""
        return self._nodes

    def start(self, options: StartOptions = _OPTIONS) -> None:
        """Start every node and return when all respond; on any failure stop everything and raise."""
        self.launch(options)
        try:
            self.wait_ready(options)
        except BaseException:
            self.stop()
            raise

    def launch(self, options: StartOptions = _OPTIONS) -> None:
        """Check the machine, lock the folder, format it if it is new, and start the processes without waiting."""
        if self._folder is not None:
            raise ClusterError("the embedded cluster is already started")
        jvm = KafkaJvm.find(self.spec)
        self._folder = folder = claim(self.spec.data_dir, brokers=self.spec.brokers, new_id=_new_cluster_id())
        try:
            self._check_ports()
            _make(self.spec.logs)
            configs = {node: self._write_config(folder, node) for node in self.spec.node_ids}
            if not folder.identity.formatted:
                format_nodes(jvm, folder.identity.cluster_id, configs, options)
                folder.mark_formatted()
            self.deaths.clear()
            self._nodes = tuple(
                Node(
                    node,
                    jvm.command(node, "kafka.Kafka", config.absolute()),
                    log=jvm.log(node),
                    on_death=self._died,
                )
                for node, config in configs.items()
            )
            for node in self._nodes:
                node.start()
        except BaseException:
            self.stop()
            raise

    def wait_ready(self, options: StartOptions = _OPTIONS) -> None:
        """Wait until every node that should run responds to Metadata and names all the others."""
        wait = Wait(options)
        while waiting := self._not_ready():
            for death in self.deaths:
                raise start_error(self.spec, str(death), about_setting=death.setting_refused)
            names = " and ".join(f"node {node.id}" for node in waiting)
            wait.pause(f"waiting for {names}", look_into=", ".join(str(node.log) for node in waiting))

    def stop(self, timeout: float = _STOP_S) -> None:
        """Shut down every node, kill those that need more than `timeout` seconds, and unlock the folder."""
        for node in self._nodes:
            node.terminate()
        deadline = time.monotonic() + timeout
        for node in self._nodes:
            if not node.wait(max(0.0, deadline - time.monotonic())):
                node.kill()
        if self._folder is not None:
            self._folder.release()
        self._folder, self._nodes = None, ()

    def _not_ready(self) -> list[Node]:
        expected = [node for node in self._nodes if node.wanted]
        ids = {node.id for node in expected}
        waiting = []
        for node in expected:
            answer = request_metadata(HOST, self.spec.port + node.id, timeout=_CALL_S)
            if answer is None or answer.cluster_id != self.cluster_id or not ids <= answer.nodes:
                waiting.append(node)
        return waiting

    def _died(self, death: NodeDeath) -> None:
        self.deaths.append(death)
        if self._on_death is not None:
            self._on_death(death)

    def _check_ports(self) -> None:
        for node, port in self.spec.ports():
            with socket.socket() as probe:
                # As Kafka itself binds: connections of an earlier run in TIME_WAIT do not matter.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    what = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be bound ({error.strerror})"
                    raise PlatformError(
                        f"port {port}, which Kafka node {node} needs, {what}:"
                        " stop the program that uses it, or choose another port"
                    ) from error

    def _write_config(self, folder: "ClaimedFolder", node: NodeId) -> Path:
        properties = node_properties(
            self.spec, node, log_dir=str(folder.node_dir(node).absolute()), broker_password=self._broker_password
        )
        return folder.write_config(node, render(properties))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlatformError(f"log directory {folder} cannot be created: {error.strerror}") from error


def _new_cluster_id() -> ClusterId:
    """A random id as Kafka makes them: 16 bytes in URL-safe base64; a leading dash would look like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return ClusterId(text)


# The data directory.


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The content of `cluster.json`."""

    cluster_id: ClusterId
    brokers: int
    formatted: bool


class ClaimedFolder:
    """A data directory of Headgate that is locked until `release`."""

    def __init__(self, path: Path, identity: Identity, lock: IO[str]) -> None:
        self.path = path
        self.identity = identity
        self._lock = lock

    def node_dir(self, node: NodeId) -> Path:
        return self.path / f"node-{node}"

    def write_config(self, node: NodeId, text: str) -> Path:
        """Write the properties of a node, readable by its owner only: they may hold passwords."""
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
    """Lock `path` for a cluster of `brokers` nodes, with the id `new_id` if the folder is new.

    A folder with other content, with another number of nodes, or in use by a process is a `UsageError`.
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
        known = known and _read_identity(path)  # again, now that no other process can change it
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
    """The cluster of the folder; None for a new folder, `UsageError` for one that is not Headgate's."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is not a directory: {_ELSEWHERE}")
    try:
        text = (path / _IDENTITY).read_text(encoding="utf-8")
    except FileNotFoundError:
        found = sorted(entry.name for entry in path.iterdir() if entry.name != _LOCK) if path.is_dir() else []
        if "meta.properties" in found:
            theirs = read_meta(path / "meta.properties").get("cluster.id", "unknown")
            raise UsageError(
                f"{path} holds the data of Kafka cluster {theirs}, which Headgate did not create: {_ELSEWHERE}"
            ) from None
        if found:
            raise UsageError(
                f"{path} is not empty and not a data directory of Headgate (it contains {found[0]}): {_ELSEWHERE}"
            ) from None
        return None
    try:
        return Identity(**json.loads(text))
    except (ValueError, TypeError):
        raise UsageError(f"{path / _IDENTITY} is damaged or from another version of Headgate: {_OURS}") from None


def _write_identity(path: Path, identity: Identity) -> None:
    fresh = path / f"{_IDENTITY}.new"
    try:
        fresh.write_text(json.dumps(asdict(identity)) + "\n", encoding="utf-8")
        fresh.replace(path / _IDENTITY)
    except OSError as error:
        raise PlatformError(f"{path / _IDENTITY} cannot be written: {error.strerror}") from error


def _lock(path: Path) -> IO[str]:
    """Lock the folder, with the pid of this process. Children do not inherit the lock, so it ends with the process."""
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
            f" start {known.brokers}, or choose another data directory"
        )
    for node in range(known.brokers):
        file = path / f"node-{node}" / "meta.properties"
        try:
            meta = read_meta(file)
        except OSError as error:
            raise UsageError(
                f"{file} cannot be read ({error.strerror}), so node {node} is not complete: {_OURS}"
            ) from None
        if (meta.get("cluster.id"), meta.get("node.id")) != (known.cluster_id, str(node)):
            raise UsageError(
                f"{file.parent} belongs to node {meta.get('node.id')} of Kafka cluster {meta.get('cluster.id')},"
                f" and {path} is cluster {known.cluster_id}: {_OURS}"
            )


# The first format.


def format_nodes(jvm: KafkaJvm, cluster_id: ClusterId, configs: dict[NodeId, Path], options: StartOptions) -> None:
    """Run the storage tool for all nodes at once, with the SCRAM users of the spec."""
    users = [
        argument
        for name, password in jvm.spec.access.users.items()
        for mechanism in SCRAM_MECHANISMS
        for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]
    tools: dict[Path, subprocess.Popen[bytes]] = {}
    try:
        for node, config in configs.items():
            output = jvm.log(node).with_name(f"format-{node}.out")
            output.unlink(missing_ok=True)
            command = jvm.command(
                node, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", config.absolute(), *users
            )
            tools[output] = start_tethered(command, output=output)
        wait = Wait(options.at_most(_FORMAT_S))
        while any(tool.poll() is None for tool in tools.values()):
            wait.pause("formatting the data directory", look_into=str(jvm.spec.logs))
    finally:
        for tool in tools.values():
            tool.kill()
            tool.wait()
    for output, tool in tools.items():
        if tool.returncode != 0:
            lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
            reason = fault(lines) or (lines[-1] if lines else f"exit code {tool.returncode}")
            text = f"the data directory cannot be formatted: {reason}; its log is {output}"
            raise start_error(jvm.spec, text, about_setting=setting_refused(lines))
        output.unlink()


def start_error(spec: ClusterSpec, text: str, *, about_setting: bool) -> HeadgateError:
    """The error of a failed start: an invalid setting is a `UsageError`, all else a `ClusterError`."""
    if about_setting and spec.settings:
        return UsageError(f"Kafka rejected a setting: {text}; correct that --set, or leave it out")
    return ClusterError(text)
