"""A cluster, a gateway that minds share groups, and what tests do with both: topics, groups, records, looks.

One rule: what is set and asked as an operator would goes through the gateway; what is true is asked of the broker.
"""

import json
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicCollection
from confluent_kafka import admin as confluent_admin

from headgate.wire.messages.cluster import FindCoordinatorRequest
from headgate.wire.messages.share import DescribedShareGroup, ShareGroupDescribeRequest
from tests.support.cluster import ClientConfig, Cluster
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.raw_client import RawClient
from tests.support.share_truth import ACKNOWLEDGED, ARCHIVED, DeadLetter, Fate, Reading, ShareHistory, dead_letters, lag

BREAKER = "share.group.dlq.circuit.breaker.enable"
THRESHOLD = "share.group.dlq.circuit.breaker.threshold.percent"
WINDOW = "share.group.dlq.circuit.breaker.window.ms"
MINIMUM = "share.group.dlq.circuit.breaker.min.messages"
AUTO_RESUME = "share.group.dlq.circuit.breaker.auto.resume.enable"
AUTO_RESUME_MS = "share.group.dlq.circuit.breaker.auto.resume.ms"
WRITE_TIMEOUT = "share.group.dlq.write.timeout.ms"
DLQ_TOPIC = "errors.deadletterqueue.topic.name"
COPY = "errors.deadletterqueue.copy.record.enable"
LIMIT = "share.delivery.count.limit"
PAUSE, RESUME = "headgate.pause", "headgate.resume"
TRIPPED = "DLQ_CIRCUIT_BREAKER_TRIPPED"
STATUS_TAG = 10001
_DEADLINE_S = 60.0
_MOST_WAITING = 50_000  # records in a producer's queue
_names = count()
kafka: Any = confluent_admin  # it does not say what it exports


@dataclass(slots=True, kw_only=True)
class ShareScene:
    """What a module of tests shares; `clients` is how librdkafka gets to the gateway, with its login if it has one."""

    cluster: Cluster
    gateway: GatewayProcess
    facts: str
    clients: ClientConfig = field(default_factory=dict)
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    _admins: dict[bool, Any] = field(default_factory=dict)
    _producers: dict[str, Producer] = field(default_factory=dict)
    _history: ShareHistory | None = None
    _topic_ids: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clients = {"bootstrap.servers": self.gateway.bootstrap, **self.clients}

    @property
    def bootstrap(self) -> str:
        return self.gateway.bootstrap

    @property
    def direct(self) -> ClientConfig:
        return self.cluster.client_config()

    def admin(self, *, through: bool = False) -> Any:
        if through not in self._admins:
            self._admins[through] = kafka.AdminClient(self.clients if through else self.direct)
        return self._admins[through]

    # --- topics and groups

    def new_topic(
        self,
        kind: str = "t",
        *,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replicas: Sequence[Sequence[int]] | None = None,
    ) -> str:
        """`replicas` names the brokers of each partition."""
        prefix = "dlq." if kind == "dlq" else ""
        topic = f"{prefix}{kind}-{self.name}-{next(_names)}"
        where: dict[str, Any] = {"replica_assignment": [list(one) for one in replicas]} if replicas else {}
        number = len(replicas) if replicas else partitions
        new = kafka.NewTopic(topic, number, config=dict(configs or {}), **(where or {"replication_factor": 1}))
        done(self.admin().create_topics([new]))
        self.wait_for_topic(topic, number)
        return topic

    def wait_for_topic(self, topic: str, partitions: int) -> None:
        def is_there() -> bool:
            described = self.admin().list_topics(topic, 10).topics[topic]
            leaders = [one.leader for one in described.partitions.values()]
            return described.error is None and len(leaders) == partitions and min(leaders) >= 0

        until(is_there)

    def new_group(self, configs: Mapping[str, str] | None = None, **more: str) -> str:
        """Reads from the beginning; what is ours of `configs` is set through the gateway."""
        group = f"sg-{self.name}-{next(_names)}"
        self.configure(group, {"share.auto.offset.reset": "earliest", **more}, through=False)
        if configs:
            self.configure(group, configs)
        return group

    def configure(self, group: str, changes: Mapping[str, str | None], *, through: bool = True) -> None:
        """None deletes."""
        entries = [
            kafka.ConfigEntry(
                name,
                value,
                incremental_operation=kafka.AlterConfigOpType.DELETE if value is None else kafka.AlterConfigOpType.SET,
            )
            for name, value in changes.items()
        ]
        resource = kafka.ConfigResource(kafka.ConfigResource.Type.GROUP, group, incremental_configs=entries)
        done(self.admin(through=through).incremental_alter_configs([resource]))

    def described(self, group: str, name: str, *, through: bool = True) -> str | None:
        """The value of a group's config as the gateway shows it, or as the broker has it."""
        resource = kafka.ConfigResource(kafka.ConfigResource.Type.GROUP, group)
        [found] = self.admin(through=through).describe_configs([resource]).values()
        entry = found.result(_DEADLINE_S).get(name)
        return None if entry is None else entry.value

    def topic_id(self, topic: str) -> bytes:
        """Looked up once: a test may stop brokers, and the controller among them."""

        def is_known() -> bool:
            with suppress(KafkaException):  # another broker may be asked than the one that has just shown the topic
                found = self.admin().describe_topics(TopicCollection([topic]))[topic].result(_DEADLINE_S).topic_id
                high, low = found.get_most_significant_bits(), found.get_least_significant_bits()
                self._topic_ids[topic] = (high & (2**64 - 1)).to_bytes(8) + (low & (2**64 - 1)).to_bytes(8)
            return topic in self._topic_ids

        if topic not in self._topic_ids:
            until(is_known)
        return self._topic_ids[topic]

    # --- records

    def send(
        self,
        topic: str,
        values: Sequence[str | bytes],
        *,
        partitions: int = 1,
        keys: Sequence[bytes] | None = None,
        codec: str = "none",
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """One after the other over the partitions, each with its place in `values` as its key; acknowledged."""
        producer = self._producers.get(codec)
        if producer is None:
            config = {**self.direct, "compression.type": codec, "linger.ms": 5, "message.max.bytes": 20_000_000}
            producer = self._producers[codec] = Producer(config)
        for number, value in enumerate(values):
            data = value.encode() if isinstance(value, str) else value
            key = keys[number] if keys else str(number).encode()
            while len(producer) > _MOST_WAITING:
                producer.poll(0.1)
            producer.produce(topic, data, key, partition=number % partitions, headers=dict(headers or {}))
            producer.poll(0)
        assert producer.flush(_DEADLINE_S) == 0

    # --- looks

    def fate(self, group: str, topic: str) -> Fate:
        if self._history is None:
            self._history = ShareHistory(self.direct)
        return self._history.of(group, self.topic_id(topic))

    def wait_for_end(self, group: str, topic: str, count: int) -> Fate:
        """Until the broker is done with so many records: what became of them."""

        def is_done() -> bool:
            fate = self.fate(group, topic)
            return len(fate.archived | fate.acknowledged) >= count

        until(is_done, what=lambda: _told(self.fate(group, topic), count))
        return self.fate(group, topic)

    def lag(self, group: str, topic: str, partitions: int = 1) -> int:
        nodes = self.cluster.bootstrap.split(",")
        return lag(nodes[self.coordinator(group)], group, topic, partitions)

    def dead_letters(self, topic: str, count: int = 0) -> list[DeadLetter]:
        """The dead letters of a topic, when there are at least so many.

        A record is archived as soon as its letter is in the topic or in the spool, from where it is moved later.
        """
        until(lambda: len(dead_letters(self.direct, topic)) >= count)
        return dead_letters(self.direct, topic)

    def coordinator(self, group: str) -> int:
        """The node that minds the group."""
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=(group,))
        node = -1

        def is_known() -> bool:
            nonlocal node
            with suppress(OSError, EOFError), self._raw(self.bootstrap) as client:
                [found] = client.call(request, 4).coordinators
                node = found.node_id
            return node >= 0

        until(is_known)
        return node

    def share_coordinator(self, group: str, topic_id: bytes, partition: int) -> str:
        """The broker's address that minds the states of this partition in the group; asked of the cluster itself."""
        text = urlsafe_b64encode(topic_id).decode().rstrip("=")
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=(f"{group}:{text}:{partition}",))
        nodes = self.cluster.bootstrap.split(",")
        for address in nodes:
            with suppress(OSError, EOFError), RawClient(address) as client:
                [found] = client.call(request, 6).coordinators
                return nodes[found.node_id]
        raise OSError("no broker says which one minds the states")

    def status(self, group: str) -> dict[str, Any]:
        """The breaker's state from the tagged field; empty when there is none."""
        told = dict(self._described(group).unknown_tags).get(STATUS_TAG)
        return {} if told is None else json.loads(told)

    def member_ids(self, group: str) -> dict[str, str]:
        """The id of each member by its client id."""
        return {one.client_id: one.member_id for one in self._described(group).members}

    def _described(self, group: str) -> DescribedShareGroup:
        request = ShareGroupDescribeRequest(group_ids=(group,))
        with self._raw(self.gateway.address(self.coordinator(group))) as client:
            [found] = client.call(request, 1).groups
        return found

    @contextmanager
    def _raw(self, address: str) -> Iterator[RawClient]:
        with RawClient(address) as client:
            if "sasl.username" in self.clients:
                answer = client.log_in(self.clients["sasl.username"], self.clients["sasl.password"])
                assert answer.error_code == 0, answer
            yield client

    def wait_for_status(self, group: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        seen: dict[str, Any] = {}

        def is_so() -> bool:
            seen.clear()
            with suppress(OSError, EOFError):
                seen.update(self.status(group))
            return bool(seen) and condition(seen)

        until(is_so, what=lambda: f"status {seen}")
        return seen

    def events(self, group: str, *kinds: str) -> list[dict[str, Any]]:
        """What the gateway wrote down about the group."""
        reader = Reading(self.direct, f"{self.facts}events")
        try:
            told = [
                json.loads(value)
                for _, key, value, _ in reader.to_the_end()
                if key and value and json.loads(key) == ["share_group", group]
            ]
        finally:
            reader.close()
        return [event for event in told if not kinds or event["event"] in kinds]

    def close(self) -> None:
        # Clients that are forgotten end, and do not call for a cluster that is gone.
        self._admins.clear()
        self._producers.clear()
        if self._history is not None:
            self._history.close()


@contextmanager
def share_scene(
    cluster: Cluster, folder: Path, *, clients: ClientConfig | None = None, **more: Any
) -> Iterator[ShareScene]:
    """A gateway that minds share groups, with topics of its own for its facts, ready."""
    facts = f"{uuid.uuid4().hex[:8]}."
    keys = {"share_groups__enable": True, "facts__prefix": facts, **more}
    upstream = keys.pop("upstream", cluster.bootstrap)
    with running_gateway(folder, upstream, **keys) as gateway:
        until(lambda: gateway.problems() == {}, what=lambda: str(gateway.problems()))
        scene = ShareScene(cluster=cluster, gateway=gateway, facts=facts, clients=clients or {})
        try:
            yield scene
        finally:
            scene.close()


def _told(fate: Fate, count: int) -> str:
    left = sorted(spot for spot, last in fate.last.items() if last.state not in {ACKNOWLEDGED, ARCHIVED})
    done_with = len(fate.archived | fate.acknowledged)
    return f"the broker is done with {done_with} of {count}, not with {left[:20]}"


def until(condition: Callable[[], bool], seconds: float = _DEADLINE_S, *, what: Callable[[], str] = str) -> float:
    """Wait for something that happens outside of this process; how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"it did not happen in {seconds:.0f} s: {what()}"
        time.sleep(0.05)
    return time.monotonic() - began


def done(futures: Mapping[Any, Any]) -> None:
    """Every call of these must succeed."""
    for future in futures.values():
        future.result(_DEADLINE_S)


def is_refused(futures: Mapping[Any, Any]) -> str:
    """The text with which the only call of these was refused; empty when it was not."""
    [future] = futures.values()
    try:
        future.result(_DEADLINE_S)
    except KafkaException as error:
        return str(error.args[0].str())
    return ""
