"""Headgate's own topics: how librdkafka reaches the cluster, and making the topics that are absent.

One rule: what exists is the operator's and is left as it is. Calls here block, so they run on a thread.
"""

import re
import socket
import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from headgate.base.errors import ClusterError
from headgate.base.threads import off_loop
from headgate.config.files import read_secret
from headgate.config.model import Config, UpstreamConfig
from headgate.facts.topics import topic_specs

log = structlog.get_logger()

# What librdkafka says by itself on stderr is said by us where it matters.
_QUIET: Mapping[str, Any] = {"log_level": 0, "log.connection.close": False}
_CLIENT_ID = "headgate"
_PAUSE_S = 0.05
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NAMES_A_CALL = 1000
_NO_SUCH_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,  # no topic can have this name
)
Settings = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who writes facts: the cluster that they are about, the worker (`gw-a/0`), and one life of its process."""

    cluster: str | None
    writer: str
    boot: str


def client_settings(upstream: UpstreamConfig) -> Settings:
    """How librdkafka logs in as the service account of `[upstream]`; the password is read here and nowhere else."""
    has_sasl = upstream.service_user is not None and upstream.service_mechanism != "none"
    settings: Settings = {
        "bootstrap.servers": ",".join(map(str, upstream.bootstrap)),
        "security.protocol": ("SASL_" if has_sasl else "") + ("SSL" if upstream.tls else "PLAINTEXT"),
    }
    if upstream.tls_ca is not None:
        settings["ssl.ca.location"] = str(upstream.tls_ca)
    if has_sasl and upstream.service_password_file is not None:
        settings |= {
            "sasl.mechanism": upstream.service_mechanism,
            "sasl.username": upstream.service_user,
            "sasl.password": read_secret(upstream.service_password_file).get_secret_value(),
        }
    return settings


def quiet(settings: Mapping[str, Any], **more: Any) -> Settings:
    """A client's settings with ours; dots are written as double underscores."""
    return {
        **_QUIET,
        "client.id": _CLIENT_ID,
        **settings,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicIdentity:
    """What tells a topic from another of the same name, in this cluster or a later one."""

    cluster: str
    topic_id: str


async def ensure_topics(
    settings: Mapping[str, Any],
    *,
    prefix: str,
    max_bytes: int,
    replication: int | None = None,
    timeout_s: float = 30.0,
) -> tuple[str, ...]:
    """Create those of `facts/topics.py` that are absent, and name them; `ClusterError` says which could not be made."""
    return await off_loop(lambda: _ensure(settings, prefix, max_bytes, replication, timeout_s))


def _ensure(
    settings: Mapping[str, Any], prefix: str, max_bytes: int, replication: int | None, timeout_s: float
) -> tuple[str, ...]:
    admin = AdminClient(quiet(settings))
    try:
        metadata = admin.list_topics(timeout=timeout_s)
        specs = topic_specs(prefix=prefix, brokers=len(metadata.brokers), max_bytes=max_bytes, replication=replication)
        absent = [spec for spec in specs if spec.name not in metadata.topics]
        if not absent:
            return ()
        wanted = [
            NewTopic(
                spec.name,
                num_partitions=spec.partitions,
                replication_factor=spec.replication,
                config=dict(spec.configs),
            )
            for spec in absent
        ]
        for name, created in admin.create_topics(wanted, operation_timeout=timeout_s).items():
            try:
                created.result(timeout_s)
            except KafkaException as failure:
                # Another worker was quicker.
                if _code(failure) != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise ClusterError(
                        f"the topic {name} cannot be created: {reason(failure)}. Create it by hand as docs/facts.md "
                        "says, or let the service account create topics; `headgate doctor` prints the command"
                    ) from None
    except KafkaException as failure:
        raise ClusterError(f"the cluster does not tell its topics: {reason(failure)}") from None
    return tuple(spec.name for spec in absent)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    """The cluster's id and the names of its topics."""

    cluster: str
    topics: frozenset[str]


def list_topics(settings: Mapping[str, Any], *, timeout_s: float = 30.0) -> TopicListing:
    """What is there now; it blocks. `ClusterError` when the cluster does not answer."""
    try:
        metadata = AdminClient(quiet(settings)).list_topics(timeout=timeout_s)
    except KafkaException as failure:
        raise ClusterError(f"the cluster does not tell its topics: {reason(failure)}") from None
    return TopicListing(cluster=metadata.cluster_id or "", topics=frozenset(metadata.topics))


class TopicIdReader:
    """Asks the cluster for the ids of topics, over one connection; its calls block."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._admin = AdminClient(quiet(settings))

    def ids(self, names: Collection[str], *, timeout_s: float = 10.0) -> dict[str, str]:
        """The ids of those that are there and may be described; `ClusterError` when the cluster does not answer."""
        # A name that no topic can have would fail the whole question.
        possible = [name for name in names if _TOPIC_NAME.fullmatch(name) and name not in {".", ".."}]
        found: dict[str, str] = {}
        for start in range(0, len(possible), _NAMES_A_CALL):
            some = TopicCollection(possible[start : start + _NAMES_A_CALL])
            for name, described in self._admin.describe_topics(some, request_timeout=timeout_s).items():
                try:
                    found[name] = str(described.result(timeout_s).topic_id)
                except KafkaException as failure:
                    if _code(failure) not in _NO_SUCH_TOPIC:
                        raise ClusterError(f"the cluster does not tell ids of topics: {reason(failure)}") from None
        return found


async def ends(settings: Mapping[str, Any], topics: Collection[str], *, timeout_s: float = 10.0) -> dict[str, int]:
    """Where the first partition of each topic ends now; `ClusterError` when it cannot be told."""
    return await off_loop(lambda: _ends(settings, topics, timeout_s))


def _ends(settings: Mapping[str, Any], topics: Collection[str], timeout_s: float) -> dict[str, int]:
    wanted = {TopicPartition(topic, 0): OffsetSpec.latest() for topic in topics}  # type: ignore[no-untyped-call]
    admin = AdminClient(quiet(settings))  # with it go the answers that it waits for
    try:
        found = admin.list_offsets(wanted, request_timeout=timeout_s)
        return {place.topic: told.result(2 * timeout_s).offset for place, told in found.items()}
    except KafkaException as failure:
        raise ClusterError(f"the ends of {', '.join(topics)} cannot be told: {reason(failure)}") from None


async def identify(settings: Mapping[str, Any], topic: str, *, timeout_s: float = 30.0) -> TopicIdentity:
    """The ids of the cluster and of the topic; `ClusterError` when they cannot be had."""
    return await off_loop(lambda: _identify(settings, topic, timeout_s))


def _identify(settings: Mapping[str, Any], topic: str, timeout_s: float) -> TopicIdentity:
    admin = AdminClient(quiet(settings))
    until = time.monotonic() + timeout_s
    while True:
        try:
            metadata = admin.list_topics(topic=topic, timeout=timeout_s)
            described = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)[topic]
            return TopicIdentity(cluster=metadata.cluster_id or "", topic_id=str(described.result(timeout_s).topic_id))
        except KafkaException as failure:
            # A broker may not have heard yet of a topic that was made a moment ago.
            if _code(failure) != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > until:
                raise ClusterError(f"the topic {topic} cannot be described: {reason(failure)}") from None
            time.sleep(_PAUSE_S)


def _code(failure: KafkaException) -> int | None:
    error = failure.args[0] if failure.args else None
    return error.code() if isinstance(error, KafkaError) else None


def reason(failure: KafkaException | KafkaError) -> str:
    """Kafka's words for it, in one line."""
    error = failure.args[0] if isinstance(failure, KafkaException) and failure.args else failure
    return f"{error.str()} ({error.name()})" if isinstance(error, KafkaError) else str(error)


async def find_origin(config: Config, worker: int, settings: Mapping[str, Any], suffix: str) -> Origin:
    """Of facts for the topic with this suffix, which the cluster is asked about; `ClusterError` when it cannot be."""
    prefix = config.facts.prefix
    made = await ensure_topics(
        settings, prefix=prefix, max_bytes=config.topologies.max_bytes, replication=config.facts.replication
    )
    if made:
        log.info("topics created", topics=", ".join(made))
    cluster = (await identify(settings, prefix + suffix)).cluster
    name = f"{socket.gethostname()}:{config.gateway.listen.port}/{worker}"
    return Origin(cluster=cluster, writer=name, boot=uuid.uuid4().hex[:12])
