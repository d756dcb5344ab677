"""Reading single dead letters of the spool: only what is wanted is kept, and what is gone is not waited for."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headgate.kafka.topic_consumer import TopicConsumer
from headgate.share_groups.spool.model.index import SpoolIndex, SpoolPlace, spool_record
from headgate.share_groups.spool.model.records import DeadlinesReported, SpooledDeadLetter, encode_spooled
from headgate.share_groups.spool.readers import SpoolFollower, SpoolReader
from headgate.share_groups.spool.transfer import SpoolClients
from tests.unit.kafka.fake_topics import FakeTopics, Record
from tests.unit.proxy.stage import until
from tests.unit.share_groups.spool.test_spool_index import dead_letter
from tests.unit.share_groups.spool.test_spool_mover import DEADLINE, bench

_EOF = KafkaError._PARTITION_EOF


class FakeMessage:
    def __init__(self, partition: int, offset: int, content: SpooledDeadLetter | None, code: int | None = None) -> None:
        self._place = (partition, offset)
        record: Any = (None, None, None) if content is None else encode_spooled(content)
        self._key, self._value, self._headers = record
        self._error = None if code is None else KafkaError(code)

    def error(self) -> KafkaError | None:
        return self._error

    def partition(self) -> int:
        return self._place[0]

    def offset(self) -> int:
        return self._place[1]

    def key(self) -> Any:
        return self._key

    def value(self) -> Any:
        return self._value

    def headers(self) -> Any:
        return self._headers


class FakeLog:
    """Partitions that have some offsets only, as after compaction; it counts what is fetched."""

    def __init__(self) -> None:
        self.records: dict[int, dict[int, SpooledDeadLetter | None]] = {}
        self.away: set[int] = set()
        self.failures = 0
        self.fetched = 0
        self.seeks: list[int] = []
        self.opened = self.closed = 0

    def consumer(self, _settings: Any) -> "FakeConsumer":
        self.opened += 1
        return FakeConsumer(self)


class FakeConsumer:
    def __init__(self, log: FakeLog) -> None:
        self._log = log
        self._at: dict[int, int] = {}

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self._at = {one.partition: one.offset for one in places}

    def seek(self, place: TopicPartition) -> None:
        self._log.seeks.append(place.offset)
        self._at[place.partition] = place.offset

    def unassign(self) -> None:
        self._at = {}

    def close(self) -> None:
        self._log.closed += 1

    def poll(self, _timeout: float) -> FakeMessage | None:
        return next(self._messages(1), None)

    def consume(self, num_messages: int, timeout: float) -> list[FakeMessage]:  # noqa: ARG002
        return list(self._messages(num_messages))

    def _messages(self, count: int) -> Iterator[FakeMessage]:
        if self._log.failures:
            self._log.failures -= 1
            raise KafkaException(KafkaError(KafkaError._FAIL))
        for partition in self._at.keys() - self._log.away:
            for offset, content in sorted(self._log.records[partition].items()):
                if offset >= self._at[partition] and count:
                    self._at[partition] = offset + 1
                    count -= 1
                    self._log.fetched += 1
                    yield FakeMessage(partition, offset, content)
            if count:
                count -= 1
                yield FakeMessage(partition, self._at[partition], None, _EOF)


@pytest.fixture
def log() -> FakeLog:
    return FakeLog()


def reading(log: FakeLog, **options: Any) -> SpoolReader:
    make: Any = log.consumer
    return SpoolReader({}, prefix="p.", make_consumer=make, **options)


def place(offset: int, partition: int = 0) -> SpoolPlace:
    found = spool_record(partition, offset, dead_letter(offset))[2]
    assert isinstance(found, SpoolPlace)
    return found


async def read(log: FakeLog, *places: SpoolPlace, **options: Any) -> tuple[list[tuple[int, int]], set[int]]:
    reader = reading(log, **options)
    found = await reader.read(places)
    await reader.close()
    assert log.closed == log.opened
    assert all(one.offset == at[1] for at, one in found.dead_letters.items())
    return sorted(found.dead_letters), set(found.unread)


async def test_only_the_dead_letters_at_these_places_are_kept(log: FakeLog) -> None:
    log.records = {number: {offset: dead_letter(offset) for offset in range(9)} for number in (0, 1)}
    assert await read(log, place(5), place(2), place(3, 1)) == ([(0, 2), (0, 5), (1, 3)], set())


async def test_places_whose_records_are_gone_are_left_out(log: FakeLog) -> None:
    log.records = {0: {1: dead_letter(1), 4: dead_letter(4)}, 1: {}, 2: {7: None}}
    assert await read(log, place(1), place(2), place(4), place(5), place(3, 1), place(7, 2)) == (
        [(0, 1), (0, 4)],
        set(),
    )


async def test_a_partition_that_does_not_answer_is_unread_and_the_others_are_read(log: FakeLog) -> None:
    log.records = {number: {offset: dead_letter(offset) for offset in range(3)} for number in (0, 1)}
    log.away = {1}
    assert await read(log, place(1), place(1, 1), read_s=0.05) == ([(0, 1)], {1})


async def test_a_long_run_of_other_records_is_skipped(log: FakeLog) -> None:
    log.records = {0: {offset: dead_letter(offset) for offset in range(5000)}}
    assert await read(log, place(10), place(4900)) == ([(0, 10), (0, 4900)], set())
    assert log.seeks == [4900]
    assert log.fetched < 1500


async def test_a_consumer_that_failed_is_replaced(log: FakeLog) -> None:
    log.records = {0: {1: dead_letter(1)}}
    log.failures = 1
    reader = reading(log)
    assert (await reader.read([place(1)])).unread == {0}
    assert list((await reader.read([place(1)])).dead_letters) == [(0, 1)]
    assert log.opened == 2
    await reader.close()


async def test_a_spool_that_was_created_again_with_as_many_records_is_noticed_by_its_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, index = FakeTopics(), SpoolIndex()
    log.install(monkeypatch)
    log.create("p.spool", partitions=2)
    log.append("p.spool", record_with(dead_letter(1)))
    consumer = TopicConsumer({}, admin=log.admin)
    follower = SpoolFollower(consumer, prefix="p.", index=index, on_change=lambda: None)
    reader: Any = follower._reader
    reader.look_s = 0.01
    follower.start()
    await until(lambda: follower.replayed.is_set() and reader._log is not None)
    assert [one.offset for one in index.waiting("dlq.g", dead_letter(1).lane)] == [1]
    log.create("p.spool", partitions=1, topic_id="second")
    log.append("p.spool", record_with(dead_letter(2)))
    await until(lambda: [one.offset for one in index.waiting("dlq.g", dead_letter(2).lane)] == [2])
    await until(follower.replayed.is_set)  # also when it has fewer partitions
    await follower.close()
    await consumer.close()


@pytest.mark.parametrize("fails_to_look", [False, True])
async def test_dead_letters_that_were_deleted_from_any_partition_leave_the_index(
    monkeypatch: pytest.MonkeyPatch, *, fails_to_look: bool
) -> None:
    """If the look before reading failed, what was read shows where each partition began."""
    log, index = FakeTopics(), SpoolIndex()
    log.install(monkeypatch)
    log.create("p.spool", partitions=8)
    log.append("p.spool", record_with(dead_letter(1)))
    log.append("p.spool", record_with(dead_letter(2)), record_with(dead_letter(3)), partition=3)
    if fails_to_look:
        del log.ids["p.spool"]
    consumer = TopicConsumer({}, admin=log.admin)
    follower = SpoolFollower(consumer, prefix="p.", index=index, on_change=lambda: None)
    reader: Any = follower._reader
    reader.look_s = 0.01

    def indexed() -> list[int]:
        return [one.offset for one in index.waiting("dlq.g", dead_letter(1).lane)]

    follower.start()
    await until(lambda: indexed() == [1, 2, 3] and follower.replayed.is_set())
    log.first["p.spool", 3] = 1
    log.ids["p.spool"] = "first"
    await until(lambda: indexed() == [1, 3] and follower.replayed.is_set())
    log.first["p.spool", 3] = 2
    await until(lambda: indexed() == [1] and follower.replayed.is_set())
    await follower.close()
    await consumer.close()


async def test_a_lane_goes_on_after_its_next_dead_letter_was_deleted_from_the_spool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Deleted by DeleteRecords or by a retention: no tombstone says so, and the mover finds nothing there."""
    log = FakeTopics()
    log.install(monkeypatch)
    log.create("p.spool", partitions=2)
    consumer = TopicConsumer({}, admin=log.admin)
    async with bench() as on:
        follower = SpoolFollower(consumer, prefix="p.", index=on.index, on_change=on.mover.wake)
        reader: Any = follower._reader
        reader.look_s = 0.01
        clients: Any = {"dead_letters": on.topics, "spool": on.spool, "reader": on.spool}
        on.mover.open(SpoolClients(**clients, replayed=follower.replayed))
        lost, kept = dead_letter(1, deadline=DEADLINE), dead_letter(2, deadline=DEADLINE)
        log.append("p.spool", record_with(lost), record_with(kept), partition=1)
        follower.start()
        await until(follower.replayed.is_set)
        on.spool.log[1] = [DeadlinesReported(0), kept]  # as a read finds it: the first record is no dead letter
        for _ in range(3):
            await on.tick(6)
        assert on.topics.offsets() == []
        log.first["p.spool", 1] = 1
        await until(lambda: len(list(on.index.waiting("dlq.g", kept.lane))) == 1 and follower.replayed.is_set())
        await on.tick(6)
        assert on.topics.offsets() == [2]
        assert not on.index.has_dead_letters(kept.lane)
        await follower.close()
    await consumer.close()


def record_with(content: SpooledDeadLetter) -> Record:
    key, value, headers = encode_spooled(content)
    return key, value, list(headers)


async def test_a_spool_that_was_created_again_is_indexed_from_its_start() -> None:
    index, changes = SpoolIndex(), []
    follower = SpoolFollower(TopicConsumer({}), prefix="p.", index=index, on_change=lambda: changes.append(1))
    follower._take([spool_record(0, 0, dead_letter(1)), spool_record(0, 1, None)])
    assert list(index.groups()) == ["g"]
    follower._take(None)
    follower._take([spool_record(0, 0, dead_letter(2))])
    assert [one.offset for one in index.waiting("dlq.g", dead_letter(2).lane)] == [2]
    assert len(changes) == 3
    assert not follower.replayed.is_set()
