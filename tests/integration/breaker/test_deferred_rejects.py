"""REJECTs that the gateway adds to a member's request, for records over the limit, harm nothing of the member's."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.support.cluster import Cluster
from tests.support.raw_client import RawClient
from tests.support.share_member import RELEASE, RawShareMember
from tests.support.share_scene import DLQ_TOPIC, LIMIT, ShareScene, share_scene, until

INVALID_RECORD_STATE = 121
WAIT_S = 6
LOCK = {"share.record.lock.duration.ms": "8000"}


@pytest.fixture
def own_scene(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareScene]:
    """A gateway that no other test has sent fetches to: they are counted."""
    with share_scene(cluster, tmp_path_factory.mktemp("deferred")) as running:
        yield running


@contextmanager
def stopped(scene: ShareScene) -> Iterator[None]:
    """The gateway's processes, the supervisor first: it ends workers that do not answer."""
    processes = [scene.gateway.pid, *scene.gateway.workers()]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(processes):
            os.kill(pid, signal.SIGCONT)


def fetches(scene: ShareScene) -> float:
    return scene.gateway.metric("headgate_calls_total", api="ShareFetch")


def deliver_twice(rival: RawShareMember, direct: RawClient) -> None:
    """The record at offset 0 is at its limit now, and available."""
    for delivery in (1, 2):
        assert [one.delivery_count for one in rival.acquire(direct)] == [delivery]
        assert rival.acknowledge(direct, 0, 0, [RELEASE]) == 0


def test_a_gateway_that_was_stopped_past_a_lock_does_not_void_the_clients_own_acknowledgements(
    own_scene: ShareScene,
) -> None:
    scene = own_scene
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq, LIMIT: "2"}, **LOCK)
    scene.send(topic, ["over its limit"])
    rival, member = (RawShareMember(group=group, topic=topic, topic_id=scene.topic_id(topic)) for _ in range(2))
    with (
        RawClient(scene.cluster.bootstrap) as direct,
        RawClient(scene.gateway.address(0)) as through,
        ThreadPoolExecutor(1) as thread,
    ):
        rival.join(direct)
        member.join(direct)
        deliver_twice(rival, direct)
        assert [one.delivery_count for one in rival.acquire(direct)] == [3]
        member.fetch(through)
        until(lambda: fetches(scene) == 1)
        waiting = thread.submit(member.fetch, through, wait_ms=1000 * WAIT_S)
        until(lambda: fetches(scene) == 2)
        with stopped(scene):
            # The broker delivers it to the member at the end of its wait; the response stays in the gateway's socket.
            assert rival.acknowledge(direct, 0, 0, [RELEASE]) == 0
            time.sleep(WAIT_S + 1)
            # When the lock has ended, the rival gets it: the member does not hold it any more.
            assert [one.delivery_count for one in rival.acquire(direct)] == [5]
        found = waiting.result(60)
        assert found is not None
        assert found.acquired_records == ()
        scene.send(topic, ["fine"])
        member.session = 0  # a request that opens a session carries no acknowledgements, Headgate's neither
        opened = member.fetch(through, wait_ms=1000 * WAIT_S)
        assert opened is not None
        [fine] = opened.acquired_records
        assert (fine.first_offset, fine.last_offset, fine.delivery_count) == (1, 1, 1)
        time.sleep(1)  # a dead letter of the first record, if there were one, would be written
        answer = member.fetch(through, accepts=[1])
        assert answer is not None
        assert answer.acknowledge_error_code == 0, "a REJECT without a lock would have voided it"
        assert scene.wait_for_end(group, topic, 1).acknowledged == {(0, 1)}
        # It is rejected when the member holds it again: when the rival releases it, or at the end of the rival's lock.
        assert rival.acknowledge(direct, 0, 0, [RELEASE]) in {0, INVALID_RECORD_STATE}

        def is_archived() -> bool:
            member.fetch(through)
            return scene.fate(group, topic).archived == {(0, 0)}

        until(is_archived)
    assert [dead_letter.spot for dead_letter in scene.dead_letters(dlq, 1)] == [(0, 0)]


def test_a_partition_that_left_the_members_session_does_not_come_back(scene: ShareScene) -> None:
    topic, dlq = scene.new_topic(partitions=2), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq, LIMIT: "2"})
    scene.send(topic, ["over its limit"])
    rival, member = (RawShareMember(group=group, topic=topic, topic_id=scene.topic_id(topic)) for _ in range(2))
    with RawClient(scene.cluster.bootstrap) as direct, RawClient(scene.gateway.address(0)) as through:
        rival.join(direct)
        deliver_twice(rival, direct)
        found = member.fetch(through, wait_ms=1000 * WAIT_S)
        assert found is not None
        assert found.acquired_records == (), "its third delivery is removed from the response"
        member.partition, member.session = 1, 0  # a new session, without partition 0

        def is_archived() -> bool:
            assert member.fetch(through) is None, "partition 1 is empty, and no other is in the session"
            return scene.fate(group, topic).archived == {(0, 0)}

        member.fetch(through)
        until(is_archived)
        scene.send(topic, ["not for this member"])
        for _ in range(5):
            assert member.fetch(through) is None
    assert [dead_letter.spot for dead_letter in scene.dead_letters(dlq, 1)] == [(0, 0)]
