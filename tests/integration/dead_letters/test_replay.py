"""Replays on a real Kafka: order and content, kills, two operators, sources that are gone, and the trail."""

import multiprocessing
import os
import random
import signal
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer, TopicPartition

from headgate.base.errors import ClusterError
from headgate.dead_letters.audit import refresh_audit
from headgate.dead_letters.model.plans import PlanRecord, ReplayPlan
from headgate.dead_letters.progress_topic import read_past, read_progress
from headgate.dead_letters.record_reader import SOURCE_MISSING, ReadRecord, RecordReader
from headgate.dead_letters.replay_control import ReplayControl
from headgate.dead_letters.replay_transactions import ReplayFencedError, ReplayMoment
from headgate.dead_letters.replayer import ReplayOptions, ReplayResult
from headgate.facts.replays import PROGRESS_TOPIC
from headgate.tables.definitions import TABLES
from headgate.tables.reader import Condition, TableReader
from tests.integration.dead_letters.replays import DEADLINE_S, Scene, new_replayer
from tests.support.cluster import Cluster
from tests.support.topics import create_topics, make_compacted_topic

SLOW = ReplayOptions(by="User:ops", rate=500)  # transactions of 100 records, and after a stall of 500 at most


@pytest.fixture(scope="module")
def scene(cluster: Cluster) -> Scene:
    return Scene(cluster)


@pytest.fixture
def fresh(cluster: Cluster) -> Scene:
    return Scene(cluster)


def by_key(messages: Sequence[Message]) -> dict[bytes | None, list[bytes | None]]:
    found: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    for message in messages:
        key = message.key()
        assert key is None or isinstance(key, bytes)
        value = message.value()
        assert value is None or isinstance(value, bytes)
        found[key].append(value)
    return found


def content(message: Message) -> tuple[object, ...]:
    return (message.partition(), message.key(), message.value(), message.headers(), message.timestamp())


def test_every_record_comes_once_in_order_with_its_content_partition_and_time(fresh: Scene) -> None:
    places = fresh.fill(1000)
    records = fresh.records(places)
    plan = fresh.plan(records)
    seen: list[int] = []
    result = fresh.replayer(plan, options=SLOW, on_progress=lambda now: seen.append(now.written)).run(records[:600])
    assert (result.state, result.written, result.skipped) == ("DONE", 600, 0)
    assert len(seen) > 1
    assert seen == sorted(seen)
    again = fresh.replayer(plan).run(records)
    assert (again.state, again.written) == ("DONE", 1000)
    sources, copies = fresh.committed(fresh.source), fresh.committed(fresh.target)
    assert [content(one) for one in copies] == [content(one) for one in sources]
    assert by_key(copies) == by_key(sources)


def test_the_time_of_the_replay_can_be_the_timestamp(fresh: Scene) -> None:
    fresh.write(fresh.source, [{"value": b"old", "partition": 0, "timestamp": 1_000_000_000_000}])
    records = fresh.records([(0, 0)])
    fresh.replayer(fresh.plan(records), options=ReplayOptions(by="User:ops", timestamps="now")).run(records)
    [copy] = fresh.committed(fresh.target)
    assert copy.timestamp()[1] > 1_700_000_000_000


# --- kills ------------------------------------------------------------------------------------------------------------


def _child(
    settings: dict[str, Any], plan: ReplayPlan, records: list[PlanRecord], die_at: ReplayMoment, turn: int
) -> None:
    """In a process of its own: replay until this moment has come so often, and die there."""
    left = turn

    def on_moment(moment: ReplayMoment) -> None:
        nonlocal left
        left -= moment == die_at
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    new_replayer(settings, plan, options=SLOW, on_moment=on_moment).run(records)


def test_a_process_that_is_killed_between_produce_and_commit_neither_loses_nor_doubles_a_record(fresh: Scene) -> None:
    moments: tuple[ReplayMoment, ...] = ("written", "committed", "written")
    records = fresh.records(fresh.fill(1500))
    plan = fresh.plan(records)
    spawn = multiprocessing.get_context("spawn")
    for moment in moments:  # of the second transaction, because the first has the state alone
        child = spawn.Process(target=_child, args=(fresh.settings, plan, records, moment, 2))
        child.start()
        child.join(DEADLINE_S)
        assert child.exitcode == -signal.SIGKILL
    result = fresh.replayer(plan).run(records)
    assert (result.state, result.written) == ("DONE", 1500)
    assert [content(one) for one in fresh.committed(fresh.target)] == [
        content(one) for one in fresh.committed(fresh.source)
    ]


def _slow_child(settings: dict[str, Any], plan: ReplayPlan, records: list[PlanRecord], started: Event) -> None:
    started.set()
    new_replayer(settings, plan, options=SLOW).run(records)


def test_a_process_that_is_killed_at_any_moment_neither_loses_nor_doubles_a_record(fresh: Scene) -> None:
    records = fresh.records(fresh.fill(2500))
    plan = fresh.plan(records)
    spawn = multiprocessing.get_context("spawn")
    chance = random.Random(20)
    for _ in range(3):
        started = spawn.Event()
        child = spawn.Process(target=_slow_child, args=(fresh.settings, plan, records, started))
        child.start()
        assert started.wait(DEADLINE_S)
        child.join(chance.uniform(0.0, 2.5))  # fencing, reading progress, the first transactions
        child.kill()
        child.join(DEADLINE_S)
        assert child.exitcode in {-signal.SIGKILL, 0}
    assert fresh.replayer(plan).run(records).state == "DONE"
    assert [content(one) for one in fresh.committed(fresh.target)] == [
        content(one) for one in fresh.committed(fresh.source)
    ]


# --- two at once ------------------------------------------------------------------------------------------------------


def test_of_two_operators_the_one_who_starts_last_goes_on_and_no_record_comes_twice(fresh: Scene) -> None:
    records = fresh.records(fresh.fill(300))
    plan = fresh.plan(records)
    others: list[ReplayResult] = []

    def start_another(_result: ReplayResult) -> None:
        if not others:
            others.append(fresh.replayer(plan, options=ReplayOptions(by="User:other")).run(records))

    with pytest.raises(ReplayFencedError, match="another replay of group"):
        fresh.replayer(plan, options=SLOW, on_progress=start_another).run(records)
    assert (others[0].state, others[0].written) == ("DONE", 300)
    assert fresh.values(fresh.target) == fresh.values(fresh.source)


def test_a_record_of_two_plans_is_replayed_once(scene: Scene) -> None:
    records = scene.records(scene.fill(10))
    first, second = scene.plan(records), scene.plan(records)
    before = len(scene.values(scene.target))
    scene.replayer(first).run(records[:6])
    result = scene.replayer(second).run(records)
    assert (result.written, result.skipped, result.reasons) == (4, 6, {"already_replayed": 6})
    assert len(scene.values(scene.target)) == before + 10


def test_a_plan_that_was_aborted_is_not_replayed_any_more(scene: Scene) -> None:
    records = scene.records(scene.fill(300)[-300:])
    plan = scene.plan(records)
    aborted: list[ReplayResult] = []

    def abort(_result: ReplayResult) -> None:
        if not aborted:
            aborted.append(scene.replayer(plan).abort())

    with pytest.raises(ReplayFencedError):
        scene.replayer(plan, options=SLOW, on_progress=abort).run(records)
    assert aborted[0].state == "ABORTED"
    with pytest.raises(ClusterError, match="was aborted"):
        scene.replayer(plan).run(records)


# --- pause and stop ---------------------------------------------------------------------------------------------------


def test_a_replay_pauses_goes_on_and_stops_between_transactions(fresh: Scene) -> None:
    records = fresh.records(fresh.fill(1500))
    plan = fresh.plan(records)
    control = ReplayControl()
    states: list[str] = []
    paused = threading.Event()

    def on_progress(result: ReplayResult) -> None:
        states.append(result.state)
        if result.state == "PAUSED" and not paused.is_set():
            paused.set()
            assert read_past(fresh.settings, fresh.admin, group=fresh.group, plan=plan.plan).state == "PAUSED"
            control.resume()
        elif not paused.is_set():
            control.pause()
        else:
            control.stop("the group tripped")

    result = fresh.replayer(plan, options=SLOW, control=control, on_progress=on_progress).run(records)
    assert states[:3] == ["RUNNING", "PAUSED", "RUNNING"]
    assert (result.state, result.stopped_by) == ("PAUSED", "the group tripped")
    assert 0 < result.written < 1500
    assert len(fresh.values(fresh.target)) == result.written
    assert fresh.replayer(plan).run(records).state == "DONE"
    assert fresh.values(fresh.target) == fresh.values(fresh.source)


def test_reading_behind_an_open_transaction_waits_for_it_and_can_be_stopped(fresh: Scene) -> None:
    producer = Producer({**fresh.settings, "transactional.id": fresh.source})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(PROGRESS_TOPIC, key=b"open", value=b"{}", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    began = time.monotonic()
    with pytest.raises(ClusterError, match="was stopped"):
        list(read_progress(fresh.settings, fresh.admin, is_stopped=lambda: time.monotonic() > began + 0.5))
    assert time.monotonic() - began < 10
    producer.abort_transaction(DEADLINE_S)
    assert b"open" not in [message.key() for message in read_progress(fresh.settings, fresh.admin)]


def test_reading_ends_where_the_topic_ended_while_others_go_on_writing(fresh: Scene) -> None:
    producer = Producer({**fresh.settings, "linger.ms": 0})
    stopped = threading.Event()

    def write() -> None:
        while not stopped.wait(0.02):
            producer.produce(PROGRESS_TOPIC, key=fresh.source.encode(), value=b"{}", partition=0)
            producer.flush(DEADLINE_S)

    writing = threading.Thread(target=write)
    writing.start()
    began = time.monotonic()
    try:
        found = list(read_progress(fresh.settings, fresh.admin, is_stopped=lambda: time.monotonic() > began + 20))
    finally:
        stopped.set()
        writing.join(DEADLINE_S)
    assert len(found) < len(list(read_progress(fresh.settings, fresh.admin)))


def test_a_dry_run_reads_everything_and_writes_nothing(scene: Scene) -> None:
    records = [*scene.records(scene.fill(5)), scene.record(99, 0, 10**9)]
    plan = scene.plan(records)
    before = len(scene.values(scene.target))
    result = scene.replayer(plan).check(records)
    assert (result.written + result.skipped, result.reasons["source_missing"]) == (6, 1)
    assert len(scene.values(scene.target)) == before
    assert read_past(scene.settings, scene.admin, group=scene.group, plan=plan.plan).state is None


def test_a_dry_run_counts_what_is_left_of_a_plan(scene: Scene) -> None:
    records = scene.records(scene.fill(5))
    plan = scene.plan(records)
    assert scene.replayer(plan).run(records).written == 5
    result = scene.replayer(plan).check(records)
    assert (result.written, result.parked, result.skipped) == (0, 0, 0)


# --- sources that are gone --------------------------------------------------------------------------------------------


def test_an_expired_source_is_replaced_by_the_copy_and_a_forged_copy_is_skipped(fresh: Scene) -> None:
    fresh.write(fresh.source, [{"value": b"gone", "partition": 0}] * 3)
    fresh.admin.client.delete_records([TopicPartition(fresh.source, 0, 3)])[TopicPartition(fresh.source, 0, 3)].result(
        DEADLINE_S
    )

    def letter(offset: int) -> dict[str, object]:
        named = {"topic": fresh.source, "partition": "0", "offset": str(offset), "message": "rejected"}
        headers = [(f"__dlq.errors.{name}", text.encode()) for name, text in named.items()]
        return {"key": b"k", "value": b"copy", "partition": 0, "headers": [*headers, ("type", b"order")]}

    fresh.write(fresh.dlq, [letter(0), letter(7)])
    records = [
        fresh.record(0, 0, 0, copied=True, dlq_offset=0),
        fresh.record(1, 0, 1, copied=True, dlq_offset=1),  # the letter names another record
        fresh.record(2, 0, 2),
    ]
    result = fresh.replayer(fresh.plan(records)).run(records)
    assert (result.written, result.reasons) == (1, {"copy_differs": 1, "source_missing": 1})
    [copy] = fresh.committed(fresh.target)
    assert (copy.key(), copy.value(), copy.headers()) == (b"k", b"copy", [("type", b"order")])


def test_a_later_record_is_never_taken_for_a_missing_one(fresh: Scene) -> None:
    """Of an aborted transaction, and of one that was compacted away."""
    producer = Producer({**fresh.settings, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(fresh.source, value=b"aborted", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    producer.abort_transaction(DEADLINE_S)
    [(_, after)] = fresh.write(fresh.source, [{"value": b"next", "partition": 0}])
    records = [fresh.record(0, 0, 0), fresh.record(1, 0, after)]
    result = fresh.replayer(fresh.plan(records)).run(records)
    assert (result.written, result.reasons) == (1, {"source_missing": 1})
    assert fresh.values(fresh.target) == [b"next"]

    compacted = f"{fresh.source}.compacted"
    make_compacted_topic(fresh.settings, compacted)
    found = fresh.admin.ids([compacted])[compacted]
    records = [fresh.record(number, 0, number, topic=compacted, topic_id=found) for number in range(2)]
    result = fresh.replayer(fresh.plan(records)).run(records)
    assert (result.written, result.reasons) == (1, {"source_missing": 1})
    assert fresh.values(fresh.target) == [b"next", b"1"]


def test_a_topic_that_was_created_again_is_not_the_source(fresh: Scene) -> None:
    records = fresh.records(fresh.fill(2))
    plan = fresh.plan(records)
    fresh.admin.client.delete_topics([fresh.source])[fresh.source].result(DEADLINE_S)
    create_topics(fresh.cluster, [fresh.source], partitions=2)
    fresh.fill(2)
    result = fresh.replayer(plan).run(records)
    assert (result.written, result.reasons) == (0, {"source_missing": 2})


def recreate(scene: Scene, topic: str) -> None:
    scene.admin.client.delete_topics([topic])[topic].result(DEADLINE_S)
    create_topics(scene.cluster, [topic], partitions=2)


def test_a_source_that_is_created_again_during_a_replay_is_not_the_source_any_more(fresh: Scene) -> None:
    places = fresh.fill(4)
    [later] = fresh.records([place for place in places if place == (1, 1)])
    reader = RecordReader(fresh.settings, fresh.admin)
    assert reader.read(fresh.record(0, 0, 10**9)) == SOURCE_MISSING, "the id is read, and nothing is fetched yet"
    recreate(fresh, fresh.source)
    fresh.fill(4)
    assert reader.read(later) == SOURCE_MISSING
    reader.close()
    again = RecordReader(fresh.settings, fresh.admin)
    assert isinstance(again.read(replace(later, topic_id=fresh.admin.ids([fresh.source])[fresh.source])), ReadRecord)
    again.close()


def test_a_target_that_is_created_again_during_a_replay_ends_it(fresh: Scene) -> None:
    records = fresh.records(fresh.fill(1500))
    plan = fresh.plan(records)
    done: list[int] = []

    def create_again(result: ReplayResult) -> None:
        if not done:
            recreate(fresh, fresh.target)
        done.append(result.written)

    with pytest.raises(ClusterError, match=f"the topic {fresh.target} was deleted or created again meanwhile"):
        fresh.replayer(plan, options=SLOW, on_progress=create_again).run(records)
    assert fresh.values(fresh.target) == []
    past = read_past(fresh.settings, fresh.admin, group=fresh.group, plan=plan.plan)
    assert len(past.positions) == done[-1] < 1500


# --- the trail --------------------------------------------------------------------------------------------------------


def test_the_audit_has_a_row_for_each_record_with_its_new_place(fresh: Scene, tmp_path: Path) -> None:
    parking = f"{fresh.source}.parked"
    create_topics(fresh.cluster, [parking], partitions=2)
    records = fresh.records(fresh.fill(20))
    records[3] = replace(records[3], action="park", why="over_max_replays", target_topic=parking)
    records.append(fresh.record(20, 1, 10**9))
    plan = fresh.plan(records)
    result = fresh.replayer(plan).run(records)
    assert (result.written, result.parked, result.skipped) == (19, 1, 1)
    assert refresh_audit(tmp_path, fresh.settings, fresh.admin, plan.cluster_id) >= 21
    assert refresh_audit(tmp_path, fresh.settings, fresh.admin, plan.cluster_id) == 0
    rows = TableReader(tmp_path).rows(TABLES["replay_audit"], where=[Condition("plan", "=", plan.plan)]).rows
    assert [row["position"] for row in rows] == list(range(21))
    placed = {(one.topic(), one.partition(), one.offset()): one for one in fresh.committed(fresh.target)}
    placed |= {(one.topic(), one.partition(), one.offset()): one for one in fresh.committed(parking)}
    sources = {(one.partition(), one.offset()): one for one in fresh.committed(fresh.source)}
    for row in rows[:20]:
        after = placed.pop((row["target_topic"], row["target_partition"], row["target_offset"]))
        assert after.value() == sources[row["partition"], row["offset"]].value()
        assert row["target_topic_id"] == plan.targets[row["target_topic"]]
    assert not placed
    assert (rows[3]["outcome"], rows[3]["why"]) == ("parked", "over_max_replays")
    assert (rows[20]["outcome"], rows[20]["why"], rows[20]["target_topic"]) == ("skipped", "source_missing", None)
    assert {row["by"] for row in rows} == {"User:ops"}
