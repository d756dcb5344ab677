"""What can be asked of an embedded cluster: one immutable value, checked whole when it is made.

One rule: no side effects. A spec that exists can be rendered; whether its ports are free and its folder is ours is
found out at start.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from headgate.base.errors import UsageError
from headgate.base.ids import NodeId

HOST = "127.0.0.1"
MAX_BROKERS = 3
# A JAAS line and the storage tool's --add-scram have no common escape, so users are kept to what needs none.
_USER = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_PASSWORD = re.compile(r"[A-Za-z0-9._~!@#%^*+:-]+")

# Keys that follow from the spec; set by hand they would contradict it.
OWNED_KEYS = frozenset({
    "advertised.listeners",
    "broker.id",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "node.id",
    "process.roles",
    "security.inter.broker.protocol",
})  # fmt: skip


class SecurityProtocol(StrEnum):
    """Kafka's own four names; each is also the name of the listener that speaks it."""

    PLAINTEXT = "PLAINTEXT"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SSL = "SSL"
    SASL_SSL = "SASL_SSL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Where clients find the cluster: node i listens on `port + i` and announces `advertised_port + i`.

    The announced address may be another one, so that a recorder or a gateway can stand in between.
    """

    protocol: SecurityProtocol
    port: int
    advertised_host: str = HOST
    advertised_port: int | None = None

    def ports(self, node: NodeId) -> tuple[int, int]:
        """The port that `node` listens on, and the one that it announces."""
        announced = self.port if self.advertised_port is None else self.advertised_port
        return self.port + node, announced + node


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files of the TLS listeners: `keystore` holds the private key and its certificate chain."""

    keystore: Path
    truststore: Path | None = None
    client_auth: str = "none"  # Kafka's ssl.client.auth: none, requested, required


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may do what: users of the SASL listeners (PLAIN and both SCRAMs), and the StandardAuthorizer.

    SCRAM users are written by the first format; a user added later can only log in with PLAIN. `super_users` are
    principal names without `User:`; a plaintext client is `ANONYMOUS`.
    """

    users: Mapping[str, str] = field(default_factory=dict)
    authorizer: bool = False
    super_users: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (*self.users, *self.super_users):
            if not _USER.fullmatch(name):
                raise UsageError(f"{name!r} cannot be a Kafka user here: use letters, digits and ._-")
        for name, password in self.users.items():
            if not _PASSWORD.fullmatch(password):
                raise UsageError(f"the password of {name} cannot be used here: use letters, digits and ._~!@#%^*+:-")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A cluster: nodes 0 to `brokers` - 1, each broker and controller in one process.

    `port` is the first port of the plaintext listener, which is always there: Headgate asks it for readiness.
    Controllers listen behind the clients' ports and the brokers' own listener behind them, one port a node, unless
    `private_port` says otherwise.
    """

    data_dir: Path
    port: int
    brokers: int = 1
    advertised_host: str = HOST
    advertised_port: int | None = None
    listeners: tuple[Listener, ...] = ()
    private_port: int | None = None
    tls: TlsFiles | None = None
    access: Access = field(default_factory=Access)
    settings: Mapping[str, str] = field(default_factory=dict)
    log_dir: Path | None = None
    heap_mb: int = 512
    full_jit: bool = False  # slower to start, quicker when warm: for benchmarks

    def __post_init__(self) -> None:
        if not 1 <= self.brokers <= MAX_BROKERS:
            raise UsageError(f"an embedded cluster has 1 to {MAX_BROKERS} brokers, not {self.brokers}")
        for folder in (self.data_dir, self.logs):
            # Kafka cuts log.dirs at commas, log4j reads % and $ in the name of a log file as its own.
            if set(",%$") & set(str(folder.absolute())):
                raise UsageError(
                    f"the path {folder.absolute()} holds one of , % $, which Kafka cannot take: use another"
                )
        for key in sorted(OWNED_KEYS & self.settings.keys()):
            raise UsageError(f"{key} follows from the cluster's other options and cannot be set by hand: leave it out")
        protocols = [listener.protocol for listener in self.client_listeners]
        if len(set(protocols)) < len(protocols):
            raise UsageError("each security protocol can have one listener; PLAINTEXT is always there already")
        if self.tls is None and {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL} & set(protocols):
            raise UsageError("a TLS listener needs the spec's `tls` files")
        if not self.access.users and {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL} & set(protocols):
            raise UsageError("a SASL listener needs the spec's `access` with users")
        ports = [port for _, port in self.ports()]
        if min(ports) < 1 or max(ports) > 65535:
            raise UsageError(
                f"{self.brokers} brokers from port {self.port} need the ports {min(ports)} to {max(ports)}:"
                " choose a first port between 1 and 65535 that leaves room for them"
            )
        if len(set(ports)) < len(ports):
            raise UsageError(f"two listeners want the same port: {sorted(ports)}")

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        return tuple(NodeId(node) for node in range(self.brokers))

    @property
    def client_listeners(self) -> tuple[Listener, ...]:
        plaintext = Listener(
            protocol=SecurityProtocol.PLAINTEXT,
            port=self.port,
            advertised_host=self.advertised_host,
            advertised_port=self.advertised_port,
        )
        return (plaintext, *self.listeners)

    def controller_port(self, node: NodeId) -> int:
        return self._first_private_port() + node

    def internal_port(self, node: NodeId) -> int:
        return self._first_private_port() + self.brokers + node

    def ports(self) -> list[tuple[NodeId, int]]:
        """Every port that the cluster listens on, with the node that wants it."""
        found = []
        for node in self.node_ids:
            found += [(node, listener.ports(node)[0]) for listener in self.client_listeners]
            found += [(node, self.controller_port(node)), (node, self.internal_port(node))]
        return found

    @property
    def logs(self) -> Path:
        return self.log_dir or self.data_dir / "logs"

    def _first_private_port(self) -> int:
        if self.private_port is not None:
            return self.private_port
        return max(listener.port for listener in self.client_listeners) + self.brokers
