"""The whole embedded cluster: claimed, formatted, started, watched and stopped as one.

One rule: all or nothing. A start that cannot succeed says so before the first process exists where it can, and
where it cannot it takes every process down again before the error leaves `start`.
"""

import base64
import errno
import secrets
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from headgate.base.errors import ClusterError, PlatformError, UsageError
from headgate.base.ids import ClusterId, NodeId
from headgate.embedded import data_dir, properties, readiness
from headgate.embedded.formatting import KafkaJvm, format_nodes, refusal
from headgate.embedded.node import Node, NodeDeath
from headgate.embedded.spec import HOST, ClusterSpec, SecurityProtocol
from headgate.embedded.waiting import Patience, Wait

_CALL_S, _STOP_S = 1.0, 15.0
_PATIENCE = Patience()


class EmbeddedKafka:
    """A real Kafka cluster in child processes, which end when this process does.

    `on_death` hears of a node that ended unasked, on a thread of its own; `deaths` holds the same for those who
    would rather look. An instance may be started again after it was stopped.
    """

    def __init__(self, spec: ClusterSpec, *, on_death: Callable[[NodeDeath], None] | None = None) -> None:
        self.spec = spec
        self.deaths: list[NodeDeath] = []
        self._on_death = on_death
        self._nodes: tuple[Node, ...] = ()
        self._folder: data_dir.ClaimedFolder | None = None
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
        """The addresses of the listener that speaks `protocol`."""
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

    def start(self, patience: Patience = _PATIENCE) -> None:
        """Start every node and return when each answers; on any failure stop everything and raise."""
        self.launch(patience)
        try:
            self.wait_ready(patience)
        except BaseException:
            self.stop()
            raise

    def launch(self, patience: Patience = _PATIENCE) -> None:
        """Check the machine, claim and if need be format the folder, and start the processes without waiting."""
        if self._folder is not None:
            raise ClusterError("the embedded cluster has been started already")
        jvm = KafkaJvm.find(self.spec)
        self._folder = folder = data_dir.claim(self.spec.data_dir, brokers=self.spec.brokers, new_id=_new_cluster_id())
        try:
            self._check_ports()
            _make(self.spec.logs)
            configs = {node: self._write_config(folder, node) for node in self.spec.node_ids}
            if not folder.identity.formatted:
                format_nodes(jvm, folder.identity.cluster_id, configs, patience)
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

    def wait_ready(self, patience: Patience = _PATIENCE) -> None:
        """Wait until every node that should run answers Metadata and names all the others."""
        wait = Wait(patience)
        while waiting := self._not_ready():
            for death in self.deaths:
                raise refusal(self.spec, str(death), about_setting=death.setting_refused)
            names = " and ".join(f"node {node.id}" for node in waiting)
            wait.pause(f"waiting for {names}", look_into=", ".join(str(node.log) for node in waiting))

    def stop(self, timeout: float = _STOP_S) -> None:
        """End every node, cleanly within `timeout` seconds or else by force, and let go of the folder."""
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
            answer = readiness.ask(HOST, self.spec.port + node.id, timeout=_CALL_S)
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
                # As Kafka itself binds: connections of a past run that wait for their end are no hindrance.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    what = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had ({error.strerror})"
                    raise PlatformError(
                        f"port {port}, which Kafka node {node} needs, {what}:"
                        " stop the program that has it, or choose another port"
                    ) from error

    def _write_config(self, folder: data_dir.ClaimedFolder, node: NodeId) -> Path:
        told = properties.node_properties(
            self.spec, node, log_dir=str(folder.node_dir(node).absolute()), broker_password=self._broker_password
        )
        return folder.write_config(node, properties.render(told))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlatformError(f"log directory {folder} cannot be made: {error.strerror}") from error


def _new_cluster_id() -> ClusterId:
    """A random id as Kafka makes them: 16 bytes in URL-safe base64; a leading dash would look like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return ClusterId(text)
