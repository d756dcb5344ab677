"""What Kafka is told: a cluster spec rendered as the `server.properties` of each node.

One rule: pure. No file is read or written here, and the same spec always gives the same text.

Clients reach a node through its client listeners. Brokers talk to each other through the listener INTERNAL, always
on the loopback address, so that a recorder behind an announced client address sees clients only. With an authorizer,
INTERNAL and CONTROLLER authenticate a user of their own: otherwise `ANONYMOUS` would have to be a super user.
"""

from collections.abc import Mapping

from headgate.base.errors import UsageError
from headgate.base.ids import NodeId
from headgate.embedded.spec import HOST, Access, ClusterSpec, SecurityProtocol, TlsFiles

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

# For tests: waits of Kafka's defaults cut to what a loopback cluster needs. The `min` keys bound what the others may
# be set to, for the whole cluster or by group config.
QUICK_SETTINGS: Mapping[str, str] = {
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


def parse_setting(text: str) -> tuple[str, str]:
    """Key and value of one `--set key=value`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set takes key=value, not {text!r}: for example --set num.partitions=3")
    return key.strip(), value.strip()


def node_properties(spec: ClusterSpec, node: NodeId, *, log_dir: str, broker_password: str) -> dict[str, str]:
    """Everything that node `node` of the cluster is told, in the order in which it is written."""
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
    """The text of a Java properties file, which is Latin-1: whatever is not printable ASCII is escaped."""
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
    listening, announced, protocols = [], [], []
    for listener in spec.client_listeners:
        port, announced_port = listener.ports(node)
        listening.append(f"{listener.protocol}://{HOST}:{port}")
        announced.append(f"{listener.protocol}://{listener.advertised_host}:{announced_port}")
        protocols.append(f"{listener.protocol}:{listener.protocol}")
    internal = f"INTERNAL://{HOST}:{spec.internal_port(node)}"
    return {
        # Static voters: a cluster may come back on other ports, which voters kept in the log would not survive.
        "controller.quorum.voters": ",".join(f"{n}@{HOST}:{spec.controller_port(n)}" for n in spec.node_ids),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listeners": ",".join((*listening, internal, f"CONTROLLER://{HOST}:{spec.controller_port(node)}")),
        "advertised.listeners": ",".join((*announced, internal)),
        "listener.security.protocol.map": ",".join((*protocols, f"INTERNAL:{private}", f"CONTROLLER:{private}")),
    }


def _replication(brokers: int) -> dict[str, str]:
    """Internal topics on every node; one of three nodes may be away."""
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


def _authorizer(access: Access, broker_password: str) -> dict[str, str]:
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
    """A login module that knows `users` and, when it also dials out, logs in as `login`."""
    words = ["org.apache.kafka.common.security.plain.PlainLoginModule", "required"]
    if login is not None:
        words += [f'username="{login}"', f'password="{users[login]}"']
    words += [f'user_{name}="{password}"' for name, password in users.items()]
    return " ".join(words) + ";"
