"""Rounds of polling against scripted brokers: what is read, what is written, and what becomes of failures."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from headgate.base.errors import ClusterError
from headgate.base.ids import ApiKey
from headgate.facts import GroupLagsObserved
from headgate.kafka.connections import Dialler
from headgate.lags import offset_requests
from headgate.lags import poller as poller_module
from headgate.lags.model.round_plan import RoundLimits
from headgate.lags.poller import ROUND_S, LagPoller
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.cluster import MetadataPartition, MetadataRequest, MetadataTopic
from headgate.wire.messages.data import (
    ListedPartition,
    ListedTopic,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from headgate.wire.messages.groups import ListedGroup, ListGroupsResponse
from headgate.wire.messages.share import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareOffsetsGroup,
    ShareOffsetsPartition,
    ShareOffsetsTopic,
)
from headgate.wire.schema import Message
from tests.support.clock import FakeClock
from tests.support.fake_upstream import BROKER_VERSIONS
from tests.support.scripted_cluster import ScriptedCluster

ID = b"1" * 16
ID_TEXT = "MTExMTExMTExMTExMTExMQ"
END = 100
Commits = Mapping[str, Mapping[int, int]]  # by topic and partition


class LagBrokers(ScriptedCluster):
    """Brokers that lead the partitions with their number modulo their count, and have groups with commits."""

    def __init__(self, *, brokers: int = 1) -> None:
        super().__init__(brokers=brokers, versions={**BROKER_VERSIONS, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1)})
        self.groups: dict[str, tuple[str, int, Commits]] = {}
        self.errors: dict[str, int] = {}
        self.ends: dict[tuple[str, int], int] = defaultdict(lambda: END)
        self.hung_up: set[tuple[int, int]] = set()  # nodes and keys
        self.metadata_fails: dict[int, int] = {}  # by node: the requests for leaders before that
        self.answers = {
            ApiKey.METADATA: self._metadata,
            ApiKey.LIST_GROUPS: self._list_groups,
            ApiKey.OFFSET_FETCH: self._offset_fetch,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: self._share_offsets,
            ApiKey.LIST_OFFSETS: self._list_offsets,
        }

    def add(self, name: str, commits: Commits, *, kind: str = "Consumer", node: int = 0) -> None:
        self.groups[name] = kind, node, commits

    def _metadata(self, node: int, request: Message) -> Message | None:
        assert isinstance(request, MetadataRequest)
        if request.topics and node in self.metadata_fails:
            self.metadata_fails[node] -= 1
            if self.metadata_fails[node] < 0:
                return None
        assert not request.allow_auto_topic_creation
        partitions = tuple(MetadataPartition(partition_index=one, leader_id=one % self.brokers) for one in range(10))
        topics = (
            MetadataTopic(name=one.name, topic_id=ID, partitions=partitions)
            for one in request.topics or ()
            if one.name != "gone"
        )
        return replace(self.metadata(), topics=tuple(topics))

    def _list_groups(self, node: int, _: Message) -> Message | None:
        if (node, ApiKey.LIST_GROUPS) in self.hung_up:
            return None
        listed = (
            ListedGroup(group_id=name, group_type=kind, group_state="Stable")
            for name, (kind, coordinator, _) in self.groups.items()
            if coordinator == node
        )
        return ListGroupsResponse(groups=tuple(listed))

    def _offset_fetch(self, node: int, request: Message) -> Message | None:
        assert isinstance(request, OffsetFetchRequest)
        if (node, ApiKey.OFFSET_FETCH) in self.hung_up:
            return None
        groups = []
        for asked in request.groups:
            assert asked.topics is None
            kind, coordinator, commits = self.groups[asked.group_id]
            assert (coordinator, kind == "Share") == (node, False)
            topics = (
                OffsetFetchResponseTopics(
                    name=topic,
                    partitions=tuple(
                        OffsetFetchResponsePartitions(partition_index=number, committed_offset=offset)
                        for number, offset in partitions.items()
                    ),
                )
                for topic, partitions in commits.items()
            )
            error = self.errors.get(asked.group_id, 0)
            groups.append(
                OffsetFetchResponseGroup(
                    group_id=asked.group_id, error_code=error, topics=() if error else tuple(topics)
                )
            )
        return OffsetFetchResponse(groups=tuple(groups))

    def _share_offsets(self, _: int, request: Message) -> Message:
        assert isinstance(request, DescribeShareGroupOffsetsRequest)
        groups = []
        for asked in request.groups:
            topics = (
                ShareOffsetsTopic(
                    topic_name=topic,
                    partitions=tuple(
                        ShareOffsetsPartition(partition_index=number, start_offset=offset, lag=7 if offset >= 0 else -1)
                        for number, offset in partitions.items()
                    ),
                )
                for topic, partitions in self.groups[asked.group_id][2].items()
            )
            groups.append(ShareOffsetsGroup(group_id=asked.group_id, topics=tuple(topics)))
        return DescribeShareGroupOffsetsResponse(groups=tuple(groups))

    def _list_offsets(self, node: int, request: Message) -> Message | None:
        assert isinstance(request, ListOffsetsRequest)
        if (node, ApiKey.LIST_OFFSETS) in self.hung_up:
            return None
        topics = []
        for topic in request.topics:
            numbers = [one.partition_index for one in topic.partitions]
            assert {one % self.brokers for one in numbers} == {node}
            listed = (ListedPartition(partition_index=one, offset=self.ends[topic.name, one]) for one in numbers)
            topics.append(ListedTopic(name=topic.name, partitions=tuple(listed)))
        return ListOffsetsResponse(topics=tuple(topics))

    def ends_asked(self) -> list[tuple[str, int]]:
        return [
            (topic.name, one.partition_index)
            for asked in self.requests(ApiKey.LIST_OFFSETS)
            if isinstance(asked.request, ListOffsetsRequest)
            for topic in asked.request.topics
            for one in topic.partitions
        ]


@dataclass
class Stage:
    brokers: LagBrokers
    clock: FakeClock = field(default_factory=FakeClock)
    written: list[GroupLagsObserved] = field(default_factory=list)
    leads: bool = True
    refusals: int = 0
    denials: int = 0  # how often the poller was told that it does not lead

    def poller(self, **options: Any) -> LagPoller:
        return LagPoller(
            self.dial, self.write, self.is_leader, self.clock, has_pauses=False, check_lead_s=0.01, **options
        )

    def is_leader(self) -> bool:
        self.denials += not self.leads
        return self.leads

    async def dial(self) -> Dialler:
        return self.brokers.dialler()

    async def write(self, fact: GroupLagsObserved) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ClusterError("refused")
        self.written.append(fact)

    def rows(self) -> list[tuple[str, str, str, int, int | None, int | None, int | None]]:
        """What was written since the last call."""
        found = [
            (fact.group, fact.kind, fact.topic, *row)
            for fact in self.written
            for row in zip(fact.partitions, fact.committed, fact.ends, fact.lags, strict=True)
        ]
        self.written.clear()
        return sorted(found, key=repr)


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.005)


async def test_lags_of_groups_of_all_kinds_are_written() -> None:
    brokers = LagBrokers(brokers=2)
    brokers.add("classic", {"orders": {1: 90, 0: 40}}, kind="Classic")
    brokers.add("consumer", {"orders": {0: 100}, "gone": {0: 5}}, node=1)
    brokers.add("share", {"orders": {0: 30, 1: -1}}, kind="Share", node=1)
    brokers.add("streams", {"orders": {1: -1, 2: 120}}, kind="Streams")
    brokers.add("idle", {})
    brokers.add("of-a-later-broker", {"orders": {0: 1}}, kind="Future")
    stage = Stage(brokers)
    async with brokers:
        counts = await stage.poller().poll()
    assert {fact.topic_id for fact in stage.written if fact.topic == "orders"} == {ID_TEXT}
    assert {fact.at for fact in stage.written} == {1_000_000}
    assert stage.rows() == [
        ("classic", "classic", "orders", 0, 40, END, 60),
        ("classic", "classic", "orders", 1, 90, END, 10),
        ("consumer", "consumer", "gone", 0, 5, None, None),
        ("consumer", "consumer", "orders", 0, 100, END, 0),
        ("share", "share", "orders", 0, 30, END, 7),
        ("share", "share", "orders", 1, None, END, None),
        ("streams", "streams", "orders", 2, 120, END, 0),
    ]
    assert (counts.polled, counts.partitions, counts.is_whole) == (5, 7, True)
    assert sorted(brokers.ends_asked()) == [("orders", 0), ("orders", 1), ("orders", 2)], "once for all groups"


async def test_only_what_has_changed_is_written_again() -> None:
    brokers = LagBrokers()
    brokers.add("a", {"orders": {0: 10}, "bills": {0: 10}})
    brokers.add("b", {"orders": {1: 10}})
    stage = Stage(brokers)
    poller = stage.poller()
    async with brokers:
        await poller.poll()
        assert len(stage.rows()) == 3
        await poller.poll()
        assert stage.rows() == []
        brokers.add("a", {"orders": {0: 10}, "bills": {0: 11}})
        brokers.ends["orders", 1] = 105
        await poller.poll()
        assert [row[0:3] for row in stage.rows()] == [("a", "consumer", "bills"), ("b", "consumer", "orders")]
        stage.clock.now += 3600
        await poller.poll()
        assert len(stage.rows()) == 3, "once an hour at least"


async def test_a_fact_that_was_not_written_is_written_in_the_next_round() -> None:
    brokers = LagBrokers()
    brokers.add("a", {"orders": {0: 10}})
    stage = Stage(brokers, refusals=1)
    poller = stage.poller()
    async with brokers:
        with capture_logs() as logs:
            await poller.poll()
        assert (poller.facts_written, poller.facts_lost) == (0, 1)
        assert [line["event"] for line in logs] == ["lags not written"]
        await poller.poll()
    assert (poller.facts_written, len(stage.rows())) == (1, 1)


async def test_ten_thousand_groups_are_polled_in_some_hundred_requests() -> None:
    brokers = LagBrokers()
    for number in range(10_000):
        brokers.add(f"g-{number}", {f"t-{number % 50}": {0: number % 100, 1: 7}})
    stage = Stage(brokers)
    async with brokers:
        counts = await stage.poller().poll()
    assert (counts.polled, counts.partitions, counts.left_out) == (10_000, 20_000, 0)
    assert len(stage.written) == 10_000
    assert len(brokers.requests(ApiKey.LIST_GROUPS)) == 1
    assert len(brokers.requests(ApiKey.OFFSET_FETCH)) == 50
    assert len(brokers.ends_asked()) == len(set(brokers.ends_asked())) == 100
    assert len(brokers.requests(ApiKey.LIST_OFFSETS)) == 1


async def test_responses_become_offsets_and_facts_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    on_loop: dict[str, bool] = {}

    def spy(module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*arguments: Any, **options: Any) -> Any:
            on_loop[name] = threading.current_thread() is threading.main_thread()
            return real(*arguments, **options)

        monkeypatch.setattr(module, name, call)

    for name in ("_listed", "_committed_offsets", "_share_offsets", "_leaders", "_ends"):
        spy(offset_requests, name)
    for name in ("_partitions", "_sort_by_leader", "lag_facts"):
        spy(poller_module, name)
    brokers = LagBrokers()
    brokers.add("a", {"orders": {0: 1}})
    brokers.add("b", {"orders": {0: 1}}, kind="Share")
    stage = Stage(brokers)
    async with brokers:
        await stage.poller().poll()
    assert len(on_loop) == 8
    assert not any(on_loop.values()), on_loop


@pytest.mark.parametrize(
    "limits", [RoundLimits(groups=4), RoundLimits(partitions=8), RoundLimits(fact_bytes=4 * 2 * 250)], ids=str
)
async def test_groups_beyond_a_limit_are_counted_logged_and_polled_in_the_next_round(limits: RoundLimits) -> None:
    brokers = LagBrokers()
    for number in range(6):
        brokers.add(f"g-{number}", {"orders": {0: 1}, "bills": {0: 1}})
    stage = Stage(brokers)
    poller = stage.poller(limits=limits)
    async with brokers:
        with capture_logs() as logs:
            counts = await poller.poll()
        assert 3 <= counts.polled <= 4
        assert counts.polled + counts.left_out == 6
        [line] = logs
        assert (line["event"], line["left_out"]) == ("lags of some groups are not known", counts.left_out)
        first = {row[0] for row in stage.rows()}
        with capture_logs() as logs:
            await poller.poll()
        assert logs == [], "not again every minute"
        assert first | {row[0] for row in stage.rows()} == set(brokers.groups)


async def test_groups_that_the_account_may_not_describe_are_counted_as_not_visible() -> None:
    brokers = LagBrokers()
    for name in ("mine", "secret", "gone", "moved"):
        brokers.add(name, {"orders": {0: 1}})
    brokers.errors = {
        "secret": ErrorCode.GROUP_AUTHORIZATION_FAILED,
        "gone": ErrorCode.GROUP_ID_NOT_FOUND,
        "moved": ErrorCode.NOT_COORDINATOR,
    }
    stage = Stage(brokers)
    async with brokers:
        counts = await stage.poller().poll()
    assert (counts.polled, counts.not_visible, counts.failed) == (1, 1, 1)
    assert [row[0] for row in stage.rows()] == ["mine"]


@pytest.mark.parametrize("key", [ApiKey.LIST_GROUPS, ApiKey.OFFSET_FETCH, ApiKey.LIST_OFFSETS])
async def test_a_slow_broker_that_fails_in_the_end_does_not_stop_the_others(key: ApiKey) -> None:
    """Node 1 answers only after node 0 was asked for the same, and then closes the connection."""
    brokers = LagBrokers(brokers=2)
    for node in range(2):
        brokers.add(f"g-{node}", {"orders": {0: 1, 1: 1}}, node=node)
    brokers.hung_up.add((1, key))
    gate = brokers.gates[1, key] = asyncio.Event()
    stage = Stage(brokers)

    async def open_gate() -> None:
        await until(lambda: any(asked.node == 0 for asked in brokers.requests(key)))
        gate.set()

    async with brokers, asyncio.timeout(60):
        opening = asyncio.create_task(open_gate())
        counts = await stage.poller().poll()
        await opening
    assert counts.failed_brokers == 1
    assert counts.problem is not None
    assert counts.problem.startswith("node 1: ")
    rows = {row[:4]: row[4:] for row in stage.rows()}
    assert rows["g-0", "consumer", "orders", 0] == (1, END, 99)
    if key == ApiKey.LIST_OFFSETS:
        assert counts.failed == 0
        assert rows["g-1", "consumer", "orders", 1] == (1, None, None), "its leader did not tell"
    else:
        assert {name for name, *_ in rows} == {"g-0"}
        assert counts.failed == (1 if key == ApiKey.OFFSET_FETCH else 0)


async def test_a_broker_that_does_not_name_leaders_leaves_them_to_the_next_one() -> None:
    brokers = LagBrokers(brokers=3)
    for number in range(1200):
        brokers.add(f"g-{number}", {f"t-{number}": {1: 1}}, node=1)
    brokers.metadata_fails = {0: 2, 1: 0}  # after so many requests for leaders
    stage = Stage(brokers)
    async with brokers:
        counts = await stage.poller().poll()
    assert (counts.polled, counts.failed_brokers, counts.failed) == (1200, 3, 0)
    assert {row[3:] for row in stage.rows()} == {(1, 1, END, 99)}


async def test_without_any_broker_that_names_leaders_the_ends_are_unknown() -> None:
    brokers = LagBrokers()
    brokers.add("g", {"orders": {0: 1}})
    brokers.metadata_fails = {0: 0}
    stage = Stage(brokers)
    async with brokers:
        counts = await stage.poller().poll()
    assert not counts.is_whole
    assert stage.rows() == [("g", "consumer", "orders", 0, 1, None, None)]


async def test_leaders_are_asked_for_no_longer_than_a_step() -> None:
    brokers = LagBrokers(brokers=2)
    for number in range(2000):
        brokers.add(f"g-{number}", {f"t-{number:04}": {0: 1}})
    stage = Stage(brokers)
    ask = brokers.answers[ApiKey.METADATA]

    def slowly(node: int, request: Message) -> Message | None:
        stage.clock.now += 10
        return ask(node, request)

    brokers.answers = {**brokers.answers, ApiKey.METADATA: slowly}
    async with brokers:
        counts = await stage.poller().poll()
    assert counts.problem == "the leaders of partitions were not read within 15 s"
    assert len([row for row in stage.rows() if row[5] == END]) == 1000, "of two requests"


async def test_a_broker_that_takes_too_long_is_left_for_the_next_round() -> None:
    brokers = LagBrokers()
    for number in range(450):
        brokers.add(f"g-{number}", {"orders": {0: 1}})
    stage = Stage(brokers)
    fetch = brokers.answers[ApiKey.OFFSET_FETCH]

    def slowly(node: int, request: Message) -> Message | None:
        stage.clock.now += 10
        return fetch(node, request)

    brokers.answers = {**brokers.answers, ApiKey.OFFSET_FETCH: slowly}
    async with brokers:
        counts = await stage.poller().poll()
    assert (counts.polled, counts.left_out, counts.failed) == (400, 50, 0)
    assert len(brokers.requests(ApiKey.OFFSET_FETCH)) == 2


async def test_only_the_leader_polls_and_once_a_minute() -> None:
    brokers = LagBrokers()
    brokers.add("a", {"orders": {0: 1}})
    stage = Stage(brokers, leads=False)
    poller = stage.poller()
    async with brokers:
        running = asyncio.create_task(poller.run())
        await asyncio.sleep(0.05)
        assert brokers.asked == []
        stage.leads = True
        await until(lambda: poller.rounds == 1)
        stage.clock.now += ROUND_S - 1
        await asyncio.sleep(0.05)
        assert poller.rounds == 1
        stage.clock.now += 1
        await until(lambda: poller.rounds == 2)
        assert len(stage.rows()) == 1

        stage.leads = False
        await until(lambda: poller.last.polled == 0)
        stage.leads = True
        await until(lambda: poller.rounds == 3)
        assert len(stage.rows()) == 1, "another leader may have written what is not known here"
        running.cancel()
        await asyncio.wait({running})


async def test_a_round_ends_when_the_lead_is_lost() -> None:
    brokers = LagBrokers()
    brokers.add("a", {"orders": {0: 1}})
    gate = brokers.gates[0, ApiKey.OFFSET_FETCH] = asyncio.Event()
    stage = Stage(brokers)
    poller = stage.poller()
    async with brokers:
        running = asyncio.create_task(poller.run())
        await until(lambda: brokers.requests(ApiKey.LIST_GROUPS))
        stage.leads = False
        await until(lambda: stage.denials > 5)  # it waits for the lead again
        gate.set()
        await asyncio.sleep(0.05)
        assert (poller.rounds, stage.rows()) == (0, [])
        running.cancel()
        await asyncio.wait({running})


async def test_a_cluster_that_does_not_answer_is_logged_once_and_asked_again() -> None:
    stage = Stage(LagBrokers())
    attempts = 0

    async def dial() -> Dialler:
        nonlocal attempts
        attempts += 1
        raise ClusterError("away")

    poller = LagPoller(dial, stage.write, lambda: True, stage.clock, has_pauses=False, check_lead_s=0.005)
    with capture_logs() as logs:
        running = asyncio.create_task(poller.run())
        for number in (1, 2, 3):
            await until(lambda number=number: attempts == number)
            stage.clock.now += ROUND_S
        running.cancel()
        await asyncio.wait({running})
    assert [(line["event"], line["problem"]) for line in logs] == [("lags could not be read, retrying", "away")]
