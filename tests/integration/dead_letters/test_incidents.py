"""Whole incidents: a share group fails, is triaged, repaired and resumed, and its records are replayed and accepted.

Four groups side by side, each with another cause: real share consumers behind one gateway, one running pipeline, and
for every step the command of an operator. Only the pauses between the runs of the pipeline are shorter than usual.
"""

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Event

import pytest
from confluent_kafka import Message
from pyspark.sql import SparkSession

from headgate.base.clock import SystemClock
from headgate.config import load
from headgate.dead_letters.model.episodes import BUCKET_MS
from headgate.pipeline import plan_requests, runner
from headgate.pipeline.derived import derived_runner
from headgate.pipeline.derived.dead_letters import DEAD_LETTERS
from headgate.pipeline.derived.lineage import LINEAGE
from headgate.pipeline.queries import APPEND, FACTS
from tests.integration.dead_letters.incidents import (
    DEADLINE_S,
    HEALTHY,
    WAITING,
    BadProducer,
    BrokenMember,
    Document,
    Incident,
    Outage,
    Poison,
    headgate,
)
from tests.support.cluster import Cluster
from tests.support.share_consumers import ShareJvm
from tests.support.share_scene import MINIMUM, ShareScene, share_scene
from tests.support.share_truth import Spot
from tests.support.spark import spark_session
from tests.support.topics import committed_records

Incidents = dict[type[Incident], Incident]


@contextmanager
def running_pipeline(scene: ShareScene, spark: SparkSession) -> Iterator[None]:
    """`headgate pipeline run` on the session of the tests, without its long pauses."""
    stop = Event()
    config = load(scene.gateway.setup.folder / "headgate.toml", {})
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as threads:
        patch.setattr(derived_runner, "EVERY_S", 2.0)
        patch.setattr(runner, "_LOOK_FOR_TOPICS_S", 0.5)
        patch.setattr(plan_requests, "_RETRY_S", 0.5)
        pipeline = runner.PipelineRunner(
            config,
            spark,
            SystemClock(),
            stop,
            queries=(FACTS, replace(APPEND, max_delay_s=2)),
            derivations=(DEAD_LETTERS, replace(LINEAGE, minutes=10)),
        )
        running = threads.submit(pipeline.run, once=False)
        try:
            yield
        finally:
            stop.set()
            assert running.result(DEADLINE_S)
            pipeline.close()


def wait_for_next_bucket() -> None:
    """Until another bucket of triage begins, so that the first failures share none with what was before."""
    time.sleep((BUCKET_MS - time.time() * 1000 % BUCKET_MS) / 1000 + 0.1)


def run_all(incidents: Sequence[Incident]) -> None:
    """Each step for all groups, because most steps wait for something."""
    for one in incidents:
        one.begin()
    for one in incidents:
        one.wait_until_it_works()
    wait_for_next_bucket()
    for one in incidents:
        one.fail()
        one.tried = one.sent - HEALTHY
    for one in incidents:
        one.wait_until_it_has_failed()
    tripped = [one for one in incidents if one.trips]
    delivered = [len(one.outcomes()) for one in tripped]
    for one in tripped:
        one.send(WAITING)
    for one in incidents:
        one.failing = one.wait_for_triage(one.is_triaged)
    assert [len(one.outcomes()) for one in tripped] == delivered  # a paused group is given nothing
    for one in incidents:
        one.repair()
    for one in tripped:
        one.resume()
    for one in incidents:
        one.wait_until_all_is_delivered()
    for one in incidents:
        one.repaired = one.wait_for_triage(one.is_repaired)
        one.put_back()
    for one in incidents:
        one.wait_until_targets_are_accepted()


@pytest.fixture(scope="module")
def incidents(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incidents]:
    folder = tmp_path_factory.mktemp("incidents")
    with (
        spark_session() as spark,
        share_scene(
            cluster,
            folder / "gateway",
            activity__enable=True,  # by which the pipeline knows the readers of a topic
            pipeline__checkpoint=str(folder / "checkpoints"),
            pipeline__trigger_ms=1_000,
            replay__topics=["t-*"],
        ) as scene,
        ShareJvm("clients", folder / "members.log") as jvm,
        running_pipeline(scene, spark),
    ):
        causes: Sequence[type[Incident]] = (Outage, BadProducer, BrokenMember, Poison)
        made = {cause: cause(scene, jvm) for cause in causes}
        try:
            run_all(list(made.values()))
            yield made
        finally:
            for one in made.values():
                one.close()


# --- what came of them ------------------------------------------------------------------------------------------------


def trips_of(one: Incident) -> list[tuple[int, int]]:
    """The accepted records and the dead letters of each trip."""
    details = [event["detail"] for event in one.scene.events(one.group, "tripped")]
    return [(detail["delivered"], detail["dlq_written"]) for detail in details]


def figures(rate: Document) -> tuple[int, int]:
    return (rate["failed"], rate["attempts"])


def verdict(episode: Document) -> tuple[str, str, int]:
    return (episode["verdict"], episode["action"], episode["count"])


def test_an_outage_pauses_the_group_and_its_records_can_be_replayed_when_it_works_again(
    incidents: Incidents,
) -> None:
    one = incidents[Outage]
    assert trips_of(one) == [(HEALTHY, 80)]
    assert verdict(one.failing) == ("outage", "resume_and_watch", 80)
    assert one.failing["ended_at"] is None
    assert one.failing["evidence"]["base_rate"] == 0.0
    assert verdict(one.repaired) == ("outage", "replay_now", 80)
    [resume] = one.scene.events(one.group, "resumed")
    assert one.repaired["ended_at"] == resume["at"]
    assert one.repaired["id"] == one.failing["id"]
    [trip] = one.scene.events(one.group, "tripped")
    assert one.repaired["evidence"]["paused_ms"] == resume["at"] - trip["at"]


def test_the_records_of_a_bad_producer_are_named_by_its_id(incidents: Incidents) -> None:
    one = incidents[BadProducer]
    assert trips_of(one) == [(HEALTHY + 64, 96)]
    for episode in (one.failing, one.repaired):
        assert verdict(episode) == ("content", "fix_first", 96)
        assert episode["feature"] == f"producer_id={one.bad_producer.id}"
        evidence = episode["evidence"]
        assert figures(evidence["worst_features"][0]) == (96, 96)
        failed, compared = figures(evidence["other_records"])
        assert failed == 0
        assert 48 <= compared <= 64  # those that lie between the dead letters of their partition
        assert evidence["recall"] == 1.0


def test_poison_does_not_pause_the_group(incidents: Incidents) -> None:
    one = incidents[Poison]
    assert trips_of(one) == []
    assert verdict(one.failing) == ("poison", "quarantine", 3)
    assert figures(one.failing["evidence"]["attempts_of_others"])[0] == 0
    assert one.plan["reasons"] == {"Offset delivery count exceeded the threshold.": 3}


def test_a_broken_member_is_named_and_the_others_go_on(incidents: Incidents) -> None:
    one = incidents[BrokenMember]
    assert isinstance(one, BrokenMember)
    assert trips_of(one) == []
    assert verdict(one.failing) == ("member", "restart_member", len(one.failed()))
    assert one.failing["member"] == one.broken_id
    assert figures(one.failing["evidence"]["other_members"])[0] == 0


@pytest.mark.parametrize("cause", [Outage, BadProducer, Poison, BrokenMember])
def test_the_live_setting_trips_in_the_back_test_when_the_breaker_tripped(
    incidents: Incidents, cause: type[Incident]
) -> None:
    one = incidents[cause]
    said, _ = headgate("share-groups", "--backtest", "--group", one.group, *one.config, "--json")
    found = json.loads(said)
    live = found["configs"][found["live"]]
    assert live["min_messages"] == int(one.configs.get(MINIMUM, 100))
    seconds = {
        name: [row["at"] // 1000 for row in one.scene.events(one.group, name)] for name in ("tripped", "resumed")
    }
    assert live["trips"] == len(seconds["tripped"]) == (1 if cause.trips else 0)
    for tripped, resumed in zip(seconds["tripped"], seconds["resumed"], strict=True):
        assert found["left_out_s"] == resumed - tripped - 1
        # The breaker trips at the end of the second that the simulation names, or in the next.
        assert live["paused_s"] - found["left_out_s"] in {0, 1}


@pytest.mark.parametrize("cause", [Outage, BadProducer, Poison, BrokenMember])
def test_the_planned_records_are_replayed_in_order_accepted_and_audited(
    incidents: Incidents, cause: type[Incident]
) -> None:
    one = incidents[cause]
    failed = one.failed()
    assert one.plan["readers"] == []
    assert one.plan["records"] == len(failed)
    assert [one.plan[name] for name in ("expired", "superseded", "already_replayed", "over_max_replays")] == [0] * 4
    assert (one.replay["state"], one.replay["written"], one.replay["skipped"]) == ("DONE", len(failed), 0)
    assert "cannot be watched" not in one.warnings

    # A row for each record, in the order of the plan.
    assert [(row["partition"], row["offset"]) for row in one.trail] == failed
    assert [row["position"] for row in one.trail] == list(range(len(failed)))
    assert {(row["outcome"], row["why"], row["topic"], row["target_topic"], row["by"]) for row in one.trail} == {
        ("replayed", None, one.topic, one.topic, "User:ANONYMOUS")
    }

    # The topic has each of them once more, after all others, as it was.
    assert one.targets == sorted(one.targets)
    assert [partition for partition, _ in one.targets] == [partition for partition, _ in failed]
    records = {place(record): record for record in committed_records(one.scene.direct, one.topic)}
    assert [content(records[target]) for target in one.targets] == [content(records[spot]) for spot in failed]
    assert len(records) == one.sent + len(failed)

    # Their consumers have accepted each of them, when it was delivered first.
    outcomes = one.outcomes()
    assert {tuple(outcomes[target]) for target in one.targets} == {("accept",)}
    assert outcomes.keys() == records.keys()


def place(record: Message) -> Spot:
    partition, offset = record.partition(), record.offset()
    assert partition is not None
    assert offset is not None
    return (partition, offset)


def content(record: Message) -> tuple[object, ...]:
    return (record.key(), record.value(), record.headers(), record.timestamp())
