"""Dead letters in the spool of a real broker are moved when their topic is there again, with two workers."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from headgate.share_groups.spool.model.records import SpooledDeadLetter, decode_spooled
from tests.integration.breaker.test_spool import spooled
from tests.support.cluster import Cluster
from tests.support.raw_client import RawClient
from tests.support.share_member import REJECT, RawShareMember
from tests.support.share_scene import COPY, DLQ_TOPIC, WRITE_TIMEOUT, ShareScene, done, kafka, share_scene, until
from tests.support.share_truth import Reading

NUMBER, MANY = 30, 1_500
PACE_S = 0.01
TIMEOUT_MS = 3_000


@pytest.fixture(scope="module")
def scene(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareScene]:
    with share_scene(cluster, tmp_path_factory.mktemp("spool"), gateway__workers=2) as running:
        yield running


def delete(scene: ShareScene, topic: str) -> None:
    done(scene.admin().delete_topics([topic]))
    until(lambda: topic not in scene.admin().list_topics(timeout=10).topics)


def create(scene: ShareScene, topic: str) -> None:
    done(scene.admin().create_topics([kafka.NewTopic(topic, 1, 1)]))
    scene.wait_for_topic(topic, 1)


def reject(scene: ShareScene, member: RawShareMember, first: int, last: int) -> None:
    with RawClient(scene.bootstrap) as client:
        member.join(client)
        assert sum(one.last_offset - one.first_offset + 1 for one in member.acquire(client)) == last - first + 1
        for offset in range(first, last + 1):
            assert member.acknowledge(client, offset, offset, [REJECT]) == 0


def test_spooled_dead_letters_reach_their_topic_in_order_when_it_is_created_again(scene: ShareScene) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq, COPY: "true", WRITE_TIMEOUT: str(TIMEOUT_MS)})
    scene.send(topic, [f"value {at}" for at in range(NUMBER)])
    delete(scene, dlq)
    reject(scene, RawShareMember(group=group, topic=topic, topic_id=scene.topic_id(topic)), 0, NUMBER - 1)

    status = scene.wait_for_status(group, lambda status: status["spooled"] == NUMBER)
    assert status["oldest_spooled_at"] is not None
    until(lambda: sum(offsets(event) for event in scene.events(group, "write_timeout")) == NUMBER)

    create(scene, dlq)
    took = until(lambda: scene.status(group)["spooled"] == 0)
    print(f"{NUMBER} dead letters were moved {took:.1f} s after their topic was created")
    dead_letters = scene.dead_letters(dlq)
    assert [dead_letter.spot for dead_letter in dead_letters] == [(0, at) for at in range(NUMBER)]
    assert [dead_letter.value for dead_letter in dead_letters] == [f"value {at}".encode() for at in range(NUMBER)]
    assert spooled(scene, group) == []
    assert scene.status(group)["oldest_spooled_at"] is None
    until(lambda: sum(offsets(event) for event in scene.events(group, "late_write")) == NUMBER)
    assert sum(offsets(event) for event in scene.events(group, "write_timeout")) == NUMBER, "each is reported once"


def test_spooled_dead_letters_outlive_all_workers_and_are_moved_by_the_next_leader(scene: ShareScene) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq, COPY: "true"})
    scene.send(topic, [f"value {at}" for at in range(NUMBER)])
    delete(scene, dlq)
    reject(scene, RawShareMember(group=group, topic=topic, topic_id=scene.topic_id(topic)), 0, NUMBER - 1)
    scene.wait_for_status(group, lambda status: status["spooled"] == NUMBER)

    killed = scene.gateway.workers()
    for worker in killed:
        os.kill(worker, signal.SIGKILL)
    create(scene, dlq)
    until(lambda: len(scene.gateway.workers()) == len(killed) and not set(killed) & set(scene.gateway.workers()))
    scene.wait_for_status(group, lambda status: status["spooled"] == 0)
    spots = [dead_letter.spot for dead_letter in scene.dead_letters(dlq)]
    assert list(dict.fromkeys(spots)) == [(0, at) for at in range(NUMBER)], "in order, also where one is there twice"
    assert spooled(scene, group) == []


def test_dead_letters_go_to_their_topic_again_while_records_are_rejected_all_the_time(scene: ShareScene) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq})
    scene.send(topic, ["value"] * MANY)
    delete(scene, dlq)
    member = RawShareMember(group=group, topic=topic, topic_id=scene.topic_id(topic))
    with RawClient(scene.bootstrap) as client:
        member.join(client)
        rejected = acquired = 0

        def reject_more(number: int) -> None:
            nonlocal rejected, acquired
            for offset in range(rejected, rejected + number):
                if offset == acquired:
                    acquired += sum(one.last_offset - one.first_offset + 1 for one in member.acquire(client))
                assert member.acknowledge(client, offset, offset, [REJECT]) == 0
                time.sleep(PACE_S)
            rejected += number

        reject_more(NUMBER)
        create(scene, dlq)
        directly = 0
        while directly == 0:
            reject_more(10)
            directly = rejected - max(ever_spooled(scene, group)) - 1
    until(lambda: len(scene.dead_letters(dlq)) >= rejected)
    spots = [dead_letter.spot for dead_letter in scene.dead_letters(dlq)]
    assert list(dict.fromkeys(spots)) == [(0, at) for at in range(rejected)]
    assert set(range(NUMBER)) <= ever_spooled(scene, group)
    print(f"of {rejected} dead letters the last {directly} did not go through the spool")


def ever_spooled(scene: ShareScene, group: str) -> set[int]:
    """The offsets of all records whose dead letters are, or were, in the spool."""
    reader = Reading(scene.direct, f"{scene.facts}spool")
    try:
        found = (decode_spooled(key, value, headers) for _, key, value, headers in reader.to_the_end())
        return {one.offset for one in found if isinstance(one, SpooledDeadLetter) and one.group == group}
    finally:
        reader.close()


def offsets(event: dict[str, dict[str, list[tuple[int, int]]]]) -> int:
    return sum(last - first + 1 for first, last in event["detail"]["offsets"])
