"""Headgate's own topics: the settings of librdkafka clients, and creating the topics that do not exist.

Invariant: existing topics belong to the operator and are not changed. Functions that block run on a thread.
"""

import re
import socket
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from headgate.base.errors import ClusterError
from headgate.base.threads import off_loop
from headgate.config.files import read_secret
from headgate.config.model import Config, UpstreamConfig
from headgate.facts.topics import topic_specs

log = structlog.get_logger()

# librdkafka's own lines on standard error are switched off: our log reports each problem once.
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
    """The writer of facts: its cluster, the worker (`gw-a/0`), and an id of this run of its process."""

    cluster: str | None
    writer: str
    boot: str


def client_settings(upstream: UpstreamConfig) -> Settings:
    """The settings of a librdkafka client with the service account of `[upstream]`; the password is read here."""
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
    """A client's settings with Headgate's defaults; in names of arguments `__` stands for a dot."""
    return {
        **_QUIET,
        "client.id": _CLIENT_ID,
        **settings,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicIdentity:
    """The ids of a topic and its cluster, which differ for a topic that was created again."""

    cluster: str
    topic_id: str


async def ensure_topics(
    admin: "TopicAdmin | Mapping[str, Any]",
    *,
    prefix: str,
    max_bytes: int,
    replication: int | None = None,
    timeout_s: float = 30.0,
) -> tuple[str, ...]:
    """Create the topics of `facts/topics.py` that do not exist, and return their names; else a `ClusterError`."""
    return await off_loop(lambda: _ensure(_client(admin), prefix, max_bytes, replication, timeout_s))


def _ensure(
    admin: AdminClient, prefix: str, max_bytes: int, replication: int | None, timeout_s: float
) -> tuple[str, ...]:
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
        created = []
        for name, creation in admin.create_topics(wanted, operation_timeout=timeout_s).items():
            try:
                creation.result(timeout_s)
                created.append(name)
            except KafkaException as failure:
                # Otherwise another worker or feature has created it meanwhile.
                if _code(failure) != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise ClusterError(
                        f"the topic {name} cannot be created: {reason(failure)}. Create it by hand as docs/facts.md "
                        "says, or let the service account create topics; `headgate doctor` prints the command"
                    ) from None
    except KafkaException as failure:
        raise ClusterError(f"the topics cannot be listed: {reason(failure)}") from None
    return tuple(created)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    """The cluster's id, and the partitions of its topics by their names."""

    cluster: str
    topics: Mapping[str, Collection[int]]


async def cluster_id(admin: "TopicAdmin", *, timeout_s: float) -> str:
    """The id of the cluster; `ClusterError` when the cluster does not respond."""
    return await off_loop(lambda: _cluster_id(admin.client, timeout_s))


def _cluster_id(admin: AdminClient, timeout_s: float) -> str:
    try:
        described = admin.describe_cluster(request_timeout=timeout_s).result(2 * timeout_s)
    except KafkaException as failure:
        raise ClusterError(f"the cluster cannot be described: {reason(failure)}") from None
    except TimeoutError:
        raise ClusterError(f"the cluster was not described within {2 * timeout_s:g} s") from None
    if not described.cluster_id:
        raise ClusterError("the cluster has no id")
    return str(described.cluster_id)


def list_topics(settings: Mapping[str, Any], *, timeout_s: float = 30.0) -> TopicListing:
    """The topics that exist now; it blocks. `ClusterError` when the cluster does not respond."""
    try:
        metadata = AdminClient(quiet(settings)).list_topics(timeout=timeout_s)
    except KafkaException as failure:
        raise ClusterError(f"the topics cannot be listed: {reason(failure)}") from None
    partitions = {name: tuple(topic.partitions) for name, topic in metadata.topics.items()}
    return TopicListing(cluster=metadata.cluster_id or "", topics=partitions)


class TopicAdmin:
    """One AdminClient for all that describes topics; any thread may use it, and its calls block.

    A call does not wait for another one but for the broker: brokers answer the requests of a connection in their order.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None

    @property
    def client(self) -> AdminClient:
        with self._lock:
            if self._admin is None:
                # Asking for a topic that was deleted must not create it.
                self._admin = AdminClient(quiet(self._settings, allow__auto__create__topics=False))
            return self._admin

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the next client."""
        return self._settings

    def replace_settings(self, settings: Mapping[str, Any]) -> None:
        """Go on with a new client that has these settings."""
        with self._lock:
            self._settings, self._admin = settings, None

    def close(self) -> None:
        """Disconnect; the next call connects again."""
        with self._lock:
            self._admin = None

    def partitions(self, topic: str, *, timeout_s: float) -> list[int]:
        """The topic's partitions; `KafkaException` when it does not exist or the cluster does not respond."""
        found = self.client.list_topics(topic, timeout=timeout_s).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return sorted(found.partitions)

    def bounds(self, topic: str, partitions: Collection[int], *, timeout_s: float) -> dict[int, tuple[int, int]]:
        """The first and the end offset of each of these partitions; `KafkaException` when one cannot be read."""
        first, end = (
            {
                place.partition: listed.result(2 * timeout_s).offset
                for place, listed in self.client.list_offsets(
                    {TopicPartition(topic, number): spec for number in partitions}, request_timeout=timeout_s
                ).items()
            }
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
        )
        return {number: (first[number], end[number]) for number in partitions}

    def ids(self, names: Collection[str], *, timeout_s: float = 10.0) -> dict[str, str]:
        """The ids of the topics that exist and may be described; `ClusterError` when the cluster does not respond."""
        described = self._ids_or_errors(names, timeout_s)
        return {name: found for name, found in described if isinstance(found, str)}

    def absent(self, names: Collection[str], *, timeout_s: float = 10.0) -> set[str]:
        """The topics that do not exist; one that may not be described is none of them. `ClusterError` as in `ids`."""
        described = self._ids_or_errors(names, timeout_s)
        return {name for name, found in described if found == KafkaError.UNKNOWN_TOPIC_OR_PART}

    def _ids_or_errors(self, names: Collection[str], timeout_s: float) -> Iterator[tuple[str, str | int]]:
        """The id of each topic, or the code of Kafka's error."""
        # A name that no topic can have would fail the whole request.
        possible = [name for name in names if _TOPIC_NAME.fullmatch(name) and name not in {".", ".."}]
        for start in range(0, len(possible), _NAMES_A_CALL):
            some = TopicCollection(possible[start : start + _NAMES_A_CALL])
            for name, described in self.client.describe_topics(some, request_timeout=timeout_s).items():
                try:
                    yield name, id_text(described.result(timeout_s).topic_id)
                except KafkaException as failure:
                    code = _code(failure)
                    if code not in _NO_SUCH_TOPIC or code is None:
                        raise ClusterError(f"the ids of topics cannot be read: {reason(failure)}") from None
                    yield name, code

    def configs(
        self, names: Collection[str], wanted: Collection[str], *, timeout_s: float = 10.0
    ) -> dict[str, dict[str, str]]:
        """The wanted configs of the topics that exist and whose configs may be described; never fails for one topic."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        found: dict[str, dict[str, str]] = {}
        if not resources:
            return found
        for resource, described in self.client.describe_configs(resources, request_timeout=timeout_s).items():
            try:
                entries = described.result(2 * timeout_s)
            except KafkaException:  # it does not exist, or its configs may not be described
                continue
            found[resource.name] = {name: str(entries[name].value) for name in wanted if name in entries}
        return found

    def first_offsets(
        self, partitions: Mapping[str, Collection[int]], *, timeout_s: float = 10.0
    ) -> dict[tuple[str, int], int]:
        """The first offset of each of these partitions that exists; `ClusterError` when they cannot be read."""
        wanted = {
            TopicPartition(topic, number): OffsetSpec.earliest()  # type: ignore[no-untyped-call]
            for topic, numbers in partitions.items()
            for number in numbers
        }
        found: dict[tuple[str, int], int] = {}
        for place, listed in self.client.list_offsets(wanted, request_timeout=timeout_s).items() if wanted else ():
            try:
                found[place.topic, place.partition] = listed.result(2 * timeout_s).offset
            except KafkaException as failure:
                if _code(failure) not in _NO_SUCH_TOPIC:
                    raise ClusterError(f"the first offsets cannot be read: {reason(failure)}") from None
        return found


def id_text(topic_id: object) -> str:
    """The id as Kafka's tools and the facts have it: librdkafka's text has `+` and `/` instead of `-` and `_`."""
    return str(topic_id).replace("+", "-").replace("/", "_")


async def ends(admin: TopicAdmin, topics: Collection[str], *, timeout_s: float = 10.0) -> dict[str, int]:
    """The end offset of the first partition of each topic; `ClusterError` when it cannot be read."""
    return await off_loop(lambda: _ends(admin.client, topics, timeout_s))


def _ends(admin: AdminClient, topics: Collection[str], timeout_s: float) -> dict[str, int]:
    wanted = {TopicPartition(topic, 0): OffsetSpec.latest() for topic in topics}  # type: ignore[no-untyped-call]
    try:
        found = admin.list_offsets(wanted, request_timeout=timeout_s)
        return {place.topic: future.result(2 * timeout_s).offset for place, future in found.items()}
    except KafkaException as failure:
        raise ClusterError(f"the end offsets of {', '.join(topics)} cannot be read: {reason(failure)}") from None


async def identify(admin: TopicAdmin, topic: str, *, timeout_s: float = 30.0) -> TopicIdentity:
    """The ids of the cluster and of the topic; `ClusterError` when they cannot be read."""
    return await off_loop(lambda: _identify(admin.client, topic, timeout_s))


def _identify(admin: AdminClient, topic: str, timeout_s: float) -> TopicIdentity:
    until = time.monotonic() + timeout_s
    while True:
        try:
            metadata = admin.list_topics(topic=topic, timeout=timeout_s)
            described = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)[topic]
            topic_id = id_text(described.result(timeout_s).topic_id)
            return TopicIdentity(cluster=metadata.cluster_id or "", topic_id=topic_id)
        except KafkaException as failure:
            # A broker may not know a topic yet that was created a moment ago.
            if _code(failure) != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > until:
                raise ClusterError(f"the topic {topic} cannot be described: {reason(failure)}") from None
            time.sleep(_PAUSE_S)


def _client(admin: TopicAdmin | Mapping[str, Any]) -> AdminClient:
    return (admin if isinstance(admin, TopicAdmin) else TopicAdmin(admin)).client


def _code(failure: KafkaException) -> int | None:
    error = failure.args[0] if failure.args else None
    return error.code() if isinstance(error, KafkaError) else None


def reason(failure: KafkaException | KafkaError) -> str:
    """The text and name of Kafka's error, in one line."""
    error = failure.args[0] if isinstance(failure, KafkaException) and failure.args else failure
    return f"{error.str()} ({error.name()})" if isinstance(error, KafkaError) else str(error)


async def find_origin(config: Config, worker: int, admin: TopicAdmin, suffix: str) -> Origin:
    """Create Headgate's topics if they do not exist, and return the origin of this worker's facts."""
    prefix = config.facts.prefix
    made = await ensure_topics(
        admin, prefix=prefix, max_bytes=config.topologies.max_bytes, replication=config.facts.replication
    )
    if made:
        log.info("topics created", topics=", ".join(made))
    cluster = (await identify(admin, prefix + suffix)).cluster
    return Origin(cluster=cluster, writer=worker_name(config, worker), boot=uuid.uuid4().hex[:12])


def worker_name(config: Config, worker: int) -> str:
    """The name by which facts and the leaders' group know a worker of this gateway: `gw-a:9092/0`."""
    return f"{socket.gethostname()}:{config.gateway.listen.port}/{worker}"
