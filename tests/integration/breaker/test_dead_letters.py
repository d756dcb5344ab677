"""A rejected record becomes a dead letter, as KIP-1191 shipped it, whoever rejects it and however."""

import random
from collections.abc import Iterator

import pytest

from tests.integration.breaker.conftest import KINDS, Consuming
from tests.support.cluster import Cluster
from tests.support.raw_client import RawClient
from tests.support.share_consumers import ShareJvm, console_share_consumer
from tests.support.share_member import REJECT, RawShareMember
from tests.support.share_scene import COPY, DLQ_TOPIC, ShareScene, share_scene, until
from tests.support.share_truth import Spot

REJECTED = "Offset rejected by client."
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def spots(values: list[str], partitions: int, dead_letter: str) -> set[Spot]:
    """Where the records with this letter lie that were sent one after the other over the partitions."""
    return {(at % partitions, at // partitions) for at, value in enumerate(values) if value.startswith(dead_letter)}


@pytest.mark.parametrize("kind", KINDS)
def test_each_rejected_offset_has_one_dead_letter_when_it_is_archived(
    scene: ShareScene, consuming: Consuming, kind: str
) -> None:
    topic, dlq = scene.new_topic(partitions=3), scene.new_topic("dlq", partitions=2)
    group = scene.new_group({DLQ_TOPIC: dlq})
    values = ["A:", "R:", "A:", "A:", "R:", "R:", "l:"] * 4
    scene.send(topic, values, partitions=3)
    rejected = spots(values, 3, "R")
    with consuming(kind, group, topic):
        scene.wait_for_end(group, topic, len(values))
        found = scene.dead_letters(dlq, len(rejected))
        fate = scene.fate(group, topic)
        assert fate.archived == rejected
    assert sorted(dead_letter.spot for dead_letter in found) == sorted(rejected)
    for dead_letter in found:
        partition, offset = dead_letter.spot
        assert dead_letter.partition == partition % 2
        assert (dead_letter.key, dead_letter.value) == (None, None)
        kafkas = {name: value for name, value in dead_letter.headers.items() if name.startswith("__dlq.errors.")}
        assert kafkas == {
            "__dlq.errors.topic": topic,
            "__dlq.errors.partition": str(partition),
            "__dlq.errors.offset": str(offset),
            "__dlq.errors.group": group,
            "__dlq.errors.delivery.count": "1",
            "__dlq.errors.message": REJECTED,
        }
        assert all(name.startswith(("__dlq.errors.", "__headgate.")) for name in dead_letter.headers)
    assert len(scene.dead_letters(dlq)) == len(rejected), "none came later"


@pytest.mark.parametrize("kind", ["4.4.0 sync", "librdkafka sync"])
def test_a_copy_has_the_key_and_the_value_whatever_the_compression(
    scene: ShareScene, consuming: Consuming, kind: str
) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq, COPY: "true"})
    sent: dict[Spot, tuple[bytes, bytes]] = {}
    for codec in CODECS:
        values = [f"{'R' if at % 3 == 0 else 'A'}:{codec} {at} ".encode() * 20 for at in range(10)]
        keys = [f"{codec}-{at}".encode() for at in range(10)]
        sent |= {(0, len(sent) + at): (keys[at], value) for at, value in enumerate(values)}
        scene.send(topic, values, keys=keys, codec=codec, headers={"theirs": b"x"})
    with consuming(kind, group, topic):
        scene.wait_for_end(group, topic, len(sent))
    expected = {spot: both for spot, both in sent.items() if both[1].startswith(b"R")}
    found = {dead_letter.spot: dead_letter for dead_letter in scene.dead_letters(dlq, len(expected))}
    assert {spot: (dead_letter.key, dead_letter.value) for spot, dead_letter in found.items()} == expected
    assert not any("theirs" in dead_letter.headers for dead_letter in found.values())


def test_a_copy_that_the_topic_cannot_hold_is_left_out_and_the_dead_letter_says_why(
    scene: ShareScene, consuming: Consuming
) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq", configs={"max.message.bytes": "4000"})
    group = scene.new_group({DLQ_TOPIC: dlq, COPY: "true"})
    # Batches of one record each: one is large and cannot be made smaller, the last is large only when it is unpacked.
    scene.send(topic, [b"R:small"])
    scene.send(topic, [b"R:" + random.Random(1).randbytes(10_000)])
    scene.send(topic, [b"R:" + b"0" * 100_000], codec="zstd")
    with consuming("4.4.0 sync", group, topic):
        scene.wait_for_end(group, topic, 3)
    found = {dead_letter.spot: dead_letter for dead_letter in scene.dead_letters(dlq, 3)}
    assert [found[0, at].value for at in range(3)] == [b"R:small", None, None]
    for at in (1, 2):
        assert "__headgate.copy.problem" in found[0, at].headers
        assert found[0, at].headers["__dlq.errors.message"] == REJECTED


def test_without_a_topic_a_rejected_record_is_archived_and_nothing_else(
    scene: ShareScene, consuming: Consuming
) -> None:
    topic, group = scene.new_topic(), scene.new_group()
    scene.send(topic, ["R:", "A:"])
    with consuming("4.4.0 sync", group, topic):
        scene.wait_for_end(group, topic, 2)
    assert scene.fate(group, topic).archived == {(0, 0)}
    assert scene.events(group) == []


def test_what_is_released_or_renewed_is_no_dead_letter(
    scene: ShareScene, java_431: ShareJvm, java_440: ShareJvm
) -> None:
    for jvm in (java_431, java_440):
        topic, dlq = scene.new_topic(), scene.new_topic("dlq")
        group = scene.new_group({DLQ_TOPIC: dlq})
        scene.send(topic, ["N:", "l:", "A:", "N:"])
        one = jvm.join(group, scene.bootstrap, group, [topic], commit="sync")
        scene.wait_for_end(group, topic, 4)
        one.close()
        assert one.errors == []
        assert "renew" in {verdict for _, _, verdict in one.deliveries()}
        assert scene.fate(group, topic).archived == set()
        assert scene.dead_letters(dlq) == []


def test_the_console_consumer_makes_dead_letters_too(scene: ShareScene) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq})
    scene.send(topic, ["one", "two", "three"])
    assert "Processed a total of 3 messages" in console_share_consumer(
        scene.bootstrap, group, topic, records=3, reject=True
    )
    scene.wait_for_end(group, topic, 3)
    assert [dead_letter.spot for dead_letter in scene.dead_letters(dlq, 3)] == [(0, 0), (0, 1), (0, 2)]


# --- who acknowledges elsewhere -------------------------------------------------------------------------------------


@pytest.fixture
def other(scene: ShareScene, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareScene]:
    """A second gateway of the same estate."""
    with share_scene(cluster, tmp_path_factory.mktemp("other"), facts__prefix=scene.facts) as running:
        yield running


@pytest.mark.parametrize("version", [1, 2])
def test_a_reject_through_a_gateway_that_did_not_see_the_fetch_is_dead_lettered(
    scene: ShareScene, other: ShareScene, version: int
) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq, COPY: "true"})
    scene.send(topic, ["one", "two", "three"])
    member = RawShareMember(group=group, topic=topic, topic_id=scene.topic_id(topic), version=version)
    with RawClient(scene.gateway.address(0)) as here, RawClient(other.gateway.address(0)) as there:
        member.join(here)
        until(lambda: other.status(group).get("dlq_topic") == dlq)
        [acquired] = member.acquire(here)
        assert (acquired.first_offset, acquired.last_offset) == (0, 2)
        assert member.acknowledge(there, 0, 2, [1, REJECT, 1]) == 0
        scene.wait_for_end(group, topic, 3)
    [dead_letter] = scene.dead_letters(dlq, 1)
    assert dead_letter.spot == (0, 1)
    assert dead_letter.value == b"two", "fetched, for want of passing bytes"
    assert dead_letter.headers["__dlq.errors.message"] == REJECTED
    # Nobody here knows it.
    assert dead_letter.headers["__dlq.errors.delivery.count"] == "0"
    assert dead_letter.headers["__headgate.delivery.count"] == "unknown"
