"""Who may do what is the broker's business: through the gateway every user gets the broker's own verdicts."""

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from headgate.embedded import SecurityProtocol
from headgate.wire.codec import encode
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic
from headgate.wire.messages.data import ProducePartition, ProduceRequest, ProduceTopic
from headgate.wire.records import WireRecord
from tests.integration.gateway.access_calls import CALLS, GuardedCall, Names
from tests.integration.gateway.exercise import new_topic, until
from tests.support.cluster import USERS, Cluster
from tests.support.gateway import GatewayProcess
from tests.support.oracle import Oracle
from tests.support.raw_client import METADATA, RawClient
from tests.support.record_batches import write_batch
from tests.support.topics import create_topics

SASL_PLAINTEXT = SecurityProtocol.SASL_PLAINTEXT
WAYS = ("d", "g")  # direct, and through the gateway
DENIED = {29, 30, 31, 53}  # topic, group, cluster, transactional id
KIB = 1024
_CONTROLLERS_REQUEST = re.compile(r"Request Request\(.*\)(?= needs )", re.DOTALL)

Verdicts = list[tuple[str, object]]  # of one answer: places in it, and what stands there

# Each user has some rights on some kinds of things, so that every call is allowed to somebody and denied to somebody.
RIGHTS: dict[str, list[tuple[Any, tuple[Any, ...]]]] = {
    "alice": [
        (ResourceType.TOPIC, (AclOperation.WRITE, AclOperation.CREATE, AclOperation.ALTER_CONFIGS)),
        (ResourceType.GROUP, (AclOperation.READ, AclOperation.DELETE)),
        (ResourceType.TRANSACTIONAL_ID, (AclOperation.WRITE,)),
    ],
    "bob": [
        (ResourceType.TOPIC, (AclOperation.READ, AclOperation.DESCRIBE_CONFIGS, AclOperation.DELETE)),
        (ResourceType.GROUP, (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)),
    ],
    "admin": [],  # a super user
}


@dataclass(frozen=True, slots=True)
class Place:
    """The cluster and the gateway, with topics that nobody else uses."""

    clients: Mapping[tuple[str, str], RawClient]  # by way and user
    prefix: str
    oracle: Oracle

    def names(self, way: str, user: str) -> Names:
        base = f"{self.prefix}-{way}-{user}"
        return Names(
            topic=base,
            group=f"{base}-group",
            transaction=f"{base}-txn",
            new_topic=f"{base}-new",
            no_topic=f"{base}-none",
        )

    def verdicts(self, way: str, user: str, call: GuardedCall) -> Verdicts:
        """Every error code and text of the answer, with its place in it."""
        request = self.oracle.encode("request", call.key, call.version, call.request(self.names(way, user)))
        body = self.clients[way, user].ask(call.key, call.version, request)
        tree = self.oracle.decode("response", call.key, call.version, body)["tree"]
        return [(path, _renamed(value)) for path, value in _verdicts(tree, "")]


def _verdicts(tree: Any, path: str) -> Iterator[tuple[str, object]]:
    for name in tree if isinstance(tree, dict) else range(len(tree)):
        here, value = f"{path}/{name}", tree[name]
        if isinstance(value, dict | list):
            yield from _verdicts(value, here)
        elif "error" in str(name).lower() or str(name).endswith("AuthorizedOperations"):
            yield here, value


def _renamed(value: object) -> object:
    """Texts name what was asked for, and that differs by the way; some hold objects of the controller."""
    return _CONTROLLERS_REQUEST.sub("", value.replace("-g-", "-d-")) if isinstance(value, str) else value


@pytest.fixture(scope="module")
def place(cluster: Cluster, sasl: GatewayProcess) -> Iterator[Place]:
    prefix = f"access-{uuid4().hex[:8]}"
    with ExitStack() as stack:
        clients: dict[tuple[str, str], RawClient] = {}
        for way, address in zip(WAYS, (cluster.kafka.bootstrap_of(SASL_PLAINTEXT), sasl.bootstrap), strict=True):
            for user in RIGHTS:
                clients[way, user] = stack.enter_context(RawClient(address))
                assert clients[way, user].log_in(user, USERS[user]).error_code == 0
        place = Place(clients, prefix, stack.enter_context(Oracle()))
        admin = AdminClient(cluster.client_config())
        create_topics(cluster, [place.names(way, user).topic for way in WAYS for user in RIGHTS])
        bindings = [
            AclBinding(
                kind, prefix, ResourcePatternType.PREFIXED, f"User:{user}", "*", operation, AclPermissionType.ALLOW
            )
            for user, rights in RIGHTS.items()
            for kind, operations in rights
            for operation in operations
        ]
        for made in admin.create_acls(bindings).values():
            made.result(60)
        _settle(place)
        yield place


def _settle(place: Place) -> None:
    """Wait until the rights are known and the coordinators of all groups and transactions are there."""
    calls = {call.label: call for call in CALLS}
    wanted = [
        ("admin", "FindCoordinator", {0}),
        ("admin", "FindCoordinator of a transaction", {0}),
        ("alice", "Produce", {0}),
        ("alice", "Heartbeat", {25}),
        ("alice", "EndTxn", {49}),
        ("bob", "Fetch", {0}),
        ("bob", "DescribeGroups", {0, 69}),
        ("admin", "OffsetCommit", {0}),
        ("admin", "InitProducerId of a transaction", {0}),
        ("admin", "ShareGroupHeartbeat", {69}),
    ]
    for user, label, codes in wanted:
        for way in WAYS:
            deadline = time.monotonic() + 60
            while True:
                found = {value for path, value in place.verdicts(way, user, calls[label]) if path.endswith("errorCode")}
                if found & codes:
                    break
                assert time.monotonic() < deadline, (user, label, found)
                time.sleep(0.1)


@pytest.fixture(scope="module")
def matrix(place: Place) -> dict[tuple[str, str, str], Verdicts]:
    """All verdicts, by way, user and call; made in one order, whatever the order of the tests."""
    cells = [(way, user, call) for user in RIGHTS for call in CALLS for way in WAYS]
    return {(way, user, call.label): place.verdicts(way, user, call) for way, user, call in cells}


@pytest.mark.parametrize("label", [call.label for call in CALLS])
@pytest.mark.parametrize("user", RIGHTS)
def test_the_verdict_is_the_same_as_without_the_gateway(
    matrix: dict[tuple[str, str, str], Verdicts], user: str, label: str
) -> None:
    assert matrix["d", user, label]
    assert matrix["g", user, label] == matrix["d", user, label]


def test_the_users_of_the_matrix_are_denied_some_calls_and_allowed_others(
    matrix: dict[tuple[str, str, str], Verdicts],
) -> None:
    denied: Counter[str] = Counter()
    for (way, user, _), verdicts in matrix.items():
        codes = {value for path, value in verdicts if path.endswith("errorCode")}
        denied[user] += way == "g" and bool(codes & DENIED)
    assert denied["admin"] == 0
    assert 20 < denied["alice"] < len(CALLS) - 10
    assert 20 < denied["bob"] < len(CALLS) - 10


# Before the broker knows who it is.


def metadata_of(size: int) -> bytes:
    """A Metadata request of about `size` bytes."""
    names = tuple(MetadataRequestTopic(name="t" * 200 + str(number)) for number in range(size // 225))
    body = encode(MetadataRequest(topics=names, allow_auto_topic_creation=False), 12)
    assert abs(len(body) - size) < size / 10
    return body


def test_a_request_that_would_be_stored_is_too_large_before_the_first_answer(plain: GatewayProcess) -> None:
    before = plain.metric("headgate_connections_ended_total", cause="frame_too_large")
    with RawClient(plain.bootstrap) as client:
        client.api_versions()
        with pytest.raises((EOFError, ConnectionError)):
            client.ask(METADATA, 12, metadata_of(600 * KIB))
    until(lambda: plain.metric("headgate_connections_ended_total", cause="frame_too_large") == before + 1)


def test_logging_in_does_not_lift_the_cap_and_the_first_answer_behind_it_does(
    cluster: Cluster, sasl: GatewayProcess
) -> None:
    with RawClient(sasl.bootstrap) as client:
        assert client.log_in("admin", USERS["admin"]).error_code == 0
        with pytest.raises((EOFError, ConnectionError)):
            client.ask(METADATA, 12, metadata_of(600 * KIB))
    with RawClient(sasl.bootstrap) as client:
        assert client.log_in("admin", USERS["admin"]).error_code == 0
        topic = MetadataRequestTopic(name=new_topic(cluster))
        request = MetadataRequest(topics=(topic,), allow_auto_topic_creation=False)
        assert client.call(request, 12).topics[0].error_code == 0
        assert client.ask(METADATA, 12, metadata_of(600 * KIB))


def test_a_first_produce_of_any_size_passes_because_it_is_not_stored(cluster: Cluster, plain: GatewayProcess) -> None:
    topic = new_topic(cluster)
    batch = write_batch([WireRecord(offset=0, timestamp=time.time_ns() // 1_000_000, value=bytes(900_000))])
    data = ProduceTopic(name=topic, partition_data=(ProducePartition(index=0, records=batch),))
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=(data,))
    with RawClient(plain.address(0)) as client:
        answer = client.call(request, 11)
    assert answer.responses[0].partition_responses[0].error_code == 0
