"""The specification of an embedded cluster, and the `server.properties` of its nodes.

Nothing here has side effects: no file is read or written, and the same specification always gives the same text.
Whether its ports are free and its folder can be used is checked at start.

Clients reach a node through its client listeners. Brokers talk to each other through the listener INTERNAL, always
on the loopback address, so that a recorder at an advertised client address sees clients only. With an authorizer,
INTERNAL and CONTROLLER authenticate a user of their own: otherwise `ANONYMOUS` would have to be a super user.
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
# A JAAS line and the storage tool's --add-scram have no common escape, so users are limited to characters that need
# none.
_USER = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_PASSWORD = re.compile(r"[A-Za-z0-9._~!@#%^*+:-]+")

# Keys that are derived from the specification and cannot be set by hand.
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

BROKER_USER = "headgate-broker"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS)

# One machine, few groups: internal topics of 50 partitions and a compaction buffer of 128 MiB only cost time. A node
# that was killed can come back when its old session has timed out, and not before.
_SMALL_SCALE = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
    "share.coordinator.state.topic.num.partitions": "8",
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}

# For tests: Kafka's default intervals reduced for a loopback cluster. The `min` keys are the lower bounds of the
# others, for the whole cluster or by group config. Leaders move only when a test moves them.
QUICK_SETTINGS: Mapping[str, str] = {
    "auto.leader.rebalance.enable": "false",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.min.session.timeout.ms": "1000",
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.initialize.retry.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "6000",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "6000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class SecurityProtocol(StrEnum):
    """Kafka's four names; each is also the name of the listener that uses it."""

    PLAINTEXT = "PLAINTEXT"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SSL = "SSL"
    SASL_SSL = "SASL_SSL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A client listener: node i listens on `port + i` and advertises `advertised_port + i`.

    The advertised address may be that of a recorder or a gateway in between.
    """

    protocol: SecurityProtocol
    port: int
    advertised_host: str = HOST
    advertised_port: int | None = None

    def ports(self, node: NodeId) -> tuple[int, int]:
        """The port that `node` listens on, and the one that it advertises."""
        advertised = self.port if self.advertised_port is None else self.advertised_port
        return self.port + node, advertised + node


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files of the TLS listeners: `keystore` holds the private key and its certificate chain."""

    keystore: Path
    truststore: Path | None = None
    client_auth: str = "none"  # Kafka's ssl.client.auth: none, requested, required


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """Users of the SASL listeners (PLAIN and both SCRAMs), and the StandardAuthorizer.

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

    `port` is the first port of the plaintext listener, which always exists: it is used to check readiness. The ports
    of controllers follow those of the clients, and the brokers' own follow those, one port a node, unless
    `private_port` sets another.
    """

    data_dir: Path
    port: int
    brokers: int = 1
    advertised_host: str = HOST
    advertised_port: int | None = None
    listeners: tuple[Listener, ...] = ()
    private_port: int | None = None
    tls: TlsFiles | None = None
    access: ClusterAccess = field(default_factory=ClusterAccess)
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
                    f"the path {folder.absolute()} contains one of , % $, which Kafka does not support: use another"
                )
        for key in sorted(OWNED_KEYS & self.settings.keys()):
            raise UsageError(f"{key} is derived from other options and cannot be set by hand: leave it out")
        protocols = [listener.protocol for listener in self.client_listeners]
        if len(set(protocols)) < len(protocols):
            raise UsageError("each security protocol can have one listener; PLAINTEXT always has one")
        if self.tls is None and {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL} & set(protocols):
            raise UsageError("a TLS listener needs `tls` files")
        if not self.access.users and {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL} & set(protocols):
            raise UsageError("a SASL listener needs `access` with users")
        ports = [port for _, port in self.ports()]
        if min(ports) < 1 or max(ports) > 65535:
            raise UsageError(
                f"{self.brokers} brokers from port {self.port} need the ports {min(ports)} to {max(ports)}:"
                " choose a lower first port, from 1"
            )
        if len(set(ports)) < len(ports):
            raise UsageError(f"two listeners have the same port: {sorted(ports)}")

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
        """Every port that the cluster listens on, with its node."""
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


def parse_setting(text: str) -> tuple[str, str]:
    """Key and value of one `--set key=value`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set takes key=value, not {text!r}: for example --set num.partitions=3")
    return key.strip(), value.strip()


def node_properties(spec: ClusterSpec, node: NodeId, *, log_dir: str, broker_password: str) -> dict[str, str]:
    """The properties of one node, in the order in which they are written."""
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "log.dirs": log_dir,
        **_addresses(spec, node),
        **_replication(spec.brokers),
        **_SMALL_SCALE,
    }
    if spec.tls is not None:
        properties |= _tls(spec.tls)
    properties |= _logins(spec)
    if spec.access.authorizer:
        properties |= _authorizer(spec.access, broker_password)
    return properties | dict(spec.settings)


def render(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file, which is Latin-1: all but printable ASCII is escaped."""
    return "".join(f"{_escape(key, in_key=True)}={_escape(value)}\n" for key, value in properties.items())


def _escape(text: str, *, in_key: bool = False) -> str:
    out = []
    for index, char in enumerate(text):
        if char == "\\" or (char == " " and (in_key or index == 0)) or (in_key and char in "=:#!"):
            out.append("\\" + char)
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be")
            out += [f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)]
    return "".join(out)


def _addresses(spec: ClusterSpec, node: NodeId) -> dict[str, str]:
    private = "SASL_PLAINTEXT" if spec.access.authorizer else "PLAINTEXT"
    listening, advertised, protocols = [], [], []
    for listener in spec.client_listeners:
        port, advertised_port = listener.ports(node)
        listening.append(f"{listener.protocol}://{HOST}:{port}")
        advertised.append(f"{listener.protocol}://{listener.advertised_host}:{advertised_port}")
        protocols.append(f"{listener.protocol}:{listener.protocol}")
    internal = f"INTERNAL://{HOST}:{spec.internal_port(node)}"
    return {
        # Static voters: a cluster may be restarted on other ports, which voters kept in the log do not support.
        "controller.quorum.voters": ",".join(f"{n}@{HOST}:{spec.controller_port(n)}" for n in spec.node_ids),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listeners": ",".join((*listening, internal, f"CONTROLLER://{HOST}:{spec.controller_port(node)}")),
        "advertised.listeners": ",".join((*advertised, internal)),
        "listener.security.protocol.map": ",".join((*protocols, f"INTERNAL:{private}", f"CONTROLLER:{private}")),
    }


def _replication(brokers: int) -> dict[str, str]:
    """Internal topics have a replica on every node; one of three nodes may be down."""
    copies, in_sync = str(brokers), str(max(1, brokers - 1))
    return {
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _tls(tls: TlsFiles) -> dict[str, str]:
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tls.keystore),
        "ssl.client.auth": tls.client_auth,
    }
    if tls.truststore is not None:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tls.truststore)}
    return properties


def _logins(spec: ClusterSpec) -> dict[str, str]:
    """The mechanisms of the SASL listeners; keys of a listener carry its name in lower case."""
    properties: dict[str, str] = {}
    for listener in spec.client_listeners:
        if listener.protocol not in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}:
            continue
        prefix = f"listener.name.{listener.protocol.lower()}"
        properties[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(_MECHANISMS)
        properties[f"{prefix}.plain.sasl.jaas.config"] = _plain_jaas(spec.access.users)
        for mechanism in SCRAM_MECHANISMS:
            properties[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            )
    return properties


def _authorizer(access: ClusterAccess, broker_password: str) -> dict[str, str]:
    jaas = _plain_jaas({BROKER_USER: broker_password}, login=BROKER_USER)
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(f"User:{name}" for name in (BROKER_USER, *access.super_users)),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.internal.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.internal.plain.sasl.jaas.config": jaas,
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": jaas,
    }


def _plain_jaas(users: Mapping[str, str], *, login: str | None = None) -> str:
    """A login module with `users`, which logs in as `login` when it opens connections."""
    words = ["org.apache.kafka.common.security.plain.PlainLoginModule", "required"]
    if login is not None:
        words += [f'username="{login}"', f'password="{users[login]}"']
    words += [f'user_{name}="{password}"' for name, password in users.items()]
    return " ".join(words) + ";"
