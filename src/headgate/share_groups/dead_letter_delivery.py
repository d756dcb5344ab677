"""Dead letters of one worker: from offsets that are not to be delivered again to records in the group's topic.

One rule: nothing here keeps the primary stream waiting beyond the deadline that it is given. What is not written by
then is said (WARN, event, `DlqWriteTimeouts`) and given up; if it arrives all the same, that is said too.

What a client may not read is not copied: records come from answers that it got, or by a Fetch on its own connection.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError, WireError
from headgate.facts.observations import EventName
from headgate.proxy.interceptor import Session
from headgate.share_groups.dead_letter_writer import DeadLetterWriter, NotWritten, Trouble
from headgate.share_groups.model.dead_letter_records import Cause, DeadLetter, topic_id_text
from headgate.share_groups.model.delivery_ledger import PartitionKey
from headgate.share_groups.model.group_configs import GroupSettings
from headgate.share_groups.record_copies import GONE, Copies, Copy, Records, Unpacked
from headgate.share_groups.share_metrics import ShareMeter
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic
from headgate.wire.messages.data import FetchPartition, FetchRequest, FetchTopic

log = structlog.get_logger()

_METADATA_VERSION: Final = 12
_FETCH_VERSION: Final = 13
MOST_OFFSETS: Final = 10_000  # of one request; a broker lets a member hold 2,000 of a partition unless told otherwise
_MOST_NAMES: Final = 10_000
_FETCH_BYTES: Final = 1024 * 1024
_MOST_FETCHES: Final = 8
_CALL_S: Final = 2.0
_AT_ONCE: Final = 200
_COPIES_AT_ONCE: Final = 20  # are looked up: each may be as large as its topic takes
_BYTES_AT_ONCE: Final = 4 * 1024 * 1024
_SLOW_S: Final = 0.05  # of a look-up: what is ready does not wait for more of them
_MOST_SAID: Final = 100  # partitions of one second
_MOST_TOLD: Final = 1_000  # ranges of one event
_DEFAULT_LARGEST: Final = 1024 * 1024  # where the service account may not read the topic's configs
_SAY_S: Final = 1.0

_NO_COPY: Final = Copy()

Ranges = tuple[tuple[int, int], ...]
Tell = Callable[[EventName, str, Mapping[str, object]], None]  # event, group, detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A range of one partition that is to be dead-lettered; `delivery_count` is None when nobody knows it.

    `generation` is the one under which it was acquired.
    """

    key: PartitionKey
    first: int
    last: int
    delivery_count: int | None
    generation: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a `Wanted`, by offsets."""

    written: Ranges
    failed: Ranges


@dataclass(slots=True)
class _Failed:
    """Of one partition, until it is said; with the first reason and the first member."""

    dlq_topic: str | None
    reason: str
    member: str
    offsets: list[tuple[int, int]] = field(default_factory=list)


class Letters:
    """`writer` is None while the service is not open: then nothing can be written."""

    def __init__(
        self,
        *,
        writer: Callable[[], DeadLetterWriter | None],
        cluster: Callable[[], str],
        topic_of: Callable[[str], str | None],
        copies: Copies,
        clock: Clock,
        tell: Tell,
        meter: ShareMeter,
    ) -> None:
        self._writer = writer
        self._cluster = cluster
        self._topic_of = topic_of
        self._copies = copies
        self._unpacked = Unpacked()
        self._clock = clock
        self._tell = tell
        self._meter = meter
        self._names: OrderedDict[bytes, str] = OrderedDict()
        self._late: dict[tuple[str, str, int, bytes], list[int]] = {}
        self._failed: dict[tuple[str, bytes, int], _Failed] = {}

    async def write(
        self, settings: GroupSettings, wanted: Sequence[Wanted], session: Session, deadline_s: float
    ) -> list[Fate]:
        """The fate of each, in order; never raises but for being cancelled."""
        time = asyncio.get_running_loop().time
        until = time() + deadline_s
        topic = settings.dlq_topic
        assert topic is not None
        at_once = _COPIES_AT_ONCE if settings.copy_record else _AT_ONCE
        failed: list[dict[int, str]] = [{} for _ in wanted]
        ready: list[tuple[int, DeadLetter]] = []
        size = 0  # of the copies among them
        names: dict[bytes, str] = {}  # each is asked for once
        copies: Mapping[int, Copy] = {}
        for index, some in enumerate(wanted):
            for begin in range(some.first, some.last + 1, at_once):
                offsets = range(begin, min(begin + at_once, some.last + 1))
                is_slow = False
                if settings.copy_record or some.key[2] not in names:
                    began = time()
                    try:
                        async with asyncio.timeout_at(until):
                            copies = await self._look_up(settings, names, some, offsets, session)
                    except TimeoutError:
                        failed[index].update(dict.fromkeys(offsets, "its record could not be looked up in time"))
                        continue
                    is_slow = settings.copy_record and time() - began > _SLOW_S
                name = names[some.key[2]]
                ready += ((index, self._letter(some, name, offset, copies.get(offset, _NO_COPY))) for offset in offsets)
                size += sum(len(one.key or b"") + len(one.value or b"") for one in copies.values())
                if len(ready) >= _AT_ONCE or size >= _BYTES_AT_ONCE or is_slow:
                    await self._write_some(topic, ready, failed, until)
                    ready, size = [], 0
        await self._write_some(topic, ready, failed, until)
        return [self._fate(topic, some, lost) for some, lost in zip(wanted, failed, strict=True)]

    async def _write_some(
        self, topic: str, some: Sequence[tuple[int, DeadLetter]], failed: Sequence[dict[int, str]], until: float
    ) -> None:
        """Those whose copies are too large for their topic are written once more, without them."""
        bare: list[tuple[int, DeadLetter]] = []
        for (index, letter), said in zip(some, await self._said(topic, [one for _, one in some], until), strict=True):
            if said is None:
                continue
            if said.trouble is Trouble.TOO_LARGE and (letter.key is not None or letter.value is not None):
                bare.append((index, replace(letter, key=None, value=None, copy_problem=said.text)))
            else:
                failed[index][letter.offset] = said.text
        if bare:
            await self._write_some(topic, bare, failed, until)

    async def _said(self, topic: str, letters: Sequence[DeadLetter], until: float) -> list[NotWritten | None]:
        """What the writer says of each."""
        writer = self._writer()
        if writer is None:
            return [NotWritten(Trouble.UNREACHABLE, "share groups are not available")] * len(letters)
        return await writer.write(topic, letters, _left(until), self._on_late)

    def _fate(self, topic: str, some: Wanted, failed: Mapping[int, str]) -> Fate:
        if not failed:
            fate = Fate(((some.first, some.last),), ())
        else:
            lost = ranges(sorted(failed))
            fate = Fate(ranges(one for one in range(some.first, some.last + 1) if one not in failed), lost)
            self._say_failed(topic, some, lost, next(iter(failed.values())))
        self._meter.count(self._meter.dead_letters, some.key[0], some.last - some.first + 1 - len(failed))
        return fate

    def give_up(self, some: Wanted, why: str) -> None:
        """Not even tried: its record is archived without a dead letter."""
        self._say_failed(self._topic_of(some.key[0]), some, ((some.first, some.last),), why)

    def _say_failed(self, topic: str | None, some: Wanted, lost: Ranges, why: str) -> None:
        """In a moment, with all of its partition: a topic that is away must not fill the log."""
        group, member, topic_id, partition = some.key
        self._meter.count(self._meter.write_timeouts, group, sum(last - first + 1 for first, last in lost))
        self._say_soon()
        said = self._failed.setdefault((group, topic_id, partition), _Failed(topic, why, member))
        said.offsets.extend(lost)

    def _tell_failed(self) -> None:
        failed, self._failed = self._failed, {}
        for number, ((group, topic_id, partition), said) in enumerate(failed.items()):
            name = self._names.get(topic_id, topic_id_text(topic_id))
            offsets = tuple(sorted(said.offsets))
            if number < _MOST_SAID:  # the events and the metric have the rest
                log.warning(
                    "a dead letter was not written in time, its record is archived without one",
                    group=group,
                    topic=name,
                    partition=partition,
                    offsets=shown(offsets),
                    dlq_topic=said.dlq_topic,
                    reason=said.reason,
                )
            for begin in range(0, len(offsets), _MOST_TOLD):
                detail = {
                    "topic": name,
                    "topic_id": topic_id_text(topic_id),
                    "partition": partition,
                    "offsets": [list(one) for one in offsets[begin : begin + _MOST_TOLD]],
                    "dlq_topic": said.dlq_topic,
                    "reason": said.reason,
                    "member": said.member,
                }
                self._tell("write_timeout", group, detail)

    def _say_soon(self) -> None:
        if not self._late and not self._failed:
            asyncio.get_running_loop().call_later(_SAY_S, self.say)

    def say(self) -> None:
        """What happened since it was said last."""
        self._tell_failed()
        self._tell_late()

    def _letter(self, some: Wanted, topic: str, offset: int, copy: Copy) -> DeadLetter:
        group, member, topic_id, partition = some.key
        return DeadLetter(
            group=group,
            member=member,
            cluster=self._cluster(),
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            offset=offset,
            delivery_count=some.delivery_count,
            cause=some.cause,
            at=self._clock.epoch_ms(),
            key=copy.key,
            value=copy.value,
            copy_problem=copy.problem,
        )

    # --- a letter that arrives after it was given up

    def _on_late(self, letter: DeadLetter) -> None:
        self._meter.late_writes += 1
        self._say_soon()
        self._late.setdefault((letter.group, letter.topic, letter.partition, letter.topic_id), []).append(letter.offset)

    def _tell_late(self) -> None:
        late, self._late = self._late, {}
        for (group, topic, partition, topic_id), offsets in late.items():
            found = ranges(sorted(offsets))
            log.info("dead letters arrived late", group=group, topic=topic, partition=partition, offsets=shown(found))
            detail = {
                "topic": topic,
                "topic_id": topic_id_text(topic_id),
                "partition": partition,
                "offsets": [list(one) for one in found],
            }
            self._tell("late_write", group, detail)

    # --- what a letter says of its record

    async def _look_up(
        self, settings: GroupSettings, names: dict[bytes, str], some: Wanted, offsets: range, session: Session
    ) -> Mapping[int, Copy]:
        """The topic's name, into `names`, and copies of its records, if they are wanted."""
        _, _, topic_id, partition = some.key
        is_held = some.delivery_count is not None
        if topic_id not in names:
            names[topic_id] = await self._name(topic_id, session, is_held=is_held)
        if not settings.copy_record:
            return {}
        return await self._copied(settings.dlq_topic or "", topic_id, partition, offsets, session, is_held=is_held)

    def known_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    async def _name(self, topic_id: bytes, session: Session, *, is_held: bool) -> str:
        """The topic's name, as the client may know it; its id where that cannot be had.

        What others learnt is for who holds records of the topic: who only says so asks in its own name.
        """
        name = self._names.get(topic_id)
        if name is not None and is_held:
            return name
        request = MetadataRequest(
            topics=(MetadataRequestTopic(topic_id=topic_id, name=None),), allow_auto_topic_creation=False
        )
        try:
            topics = (await session.call(request, _METADATA_VERSION, deadline=_CALL_S)).topics
        except (ClusterError, WireError):
            return topic_id_text(topic_id)
        name = next((one.name for one in topics if one.topic_id == topic_id and one.name), None)
        if name is None:
            return topic_id_text(topic_id)
        self._names[topic_id] = name
        if len(self._names) > _MOST_NAMES:
            self._names.popitem(last=False)
        return name

    async def _copied(
        self, topic: str, topic_id: bytes, partition: int, offsets: range, session: Session, *, is_held: bool
    ) -> Mapping[int, Copy]:
        """From what passed, for a member that got it; for one that only says so from the broker, in its own name."""
        writer = self._writer()
        largest = None
        if writer is not None:
            with suppress(ClusterError):
                largest = (await writer.topic_facts(topic)).max_message_bytes
        most = largest or _DEFAULT_LARGEST
        found: dict[int, Copy] = {}
        for raw in self._copies.of(topic_id, partition, offsets) if is_held else ():
            _add(found, offsets, await self._unpacked.of(raw, most))
        for _ in range(_MOST_FETCHES):
            missing = [one for one in offsets if one not in found]
            if not missing:
                break
            fetched = await self._fetched(topic_id, partition, missing[0], session)
            if isinstance(fetched, str):
                return found | dict.fromkeys(missing, Copy(problem=fetched))
            _add(found, missing, await self._unpacked.of(fetched, most))
            found.setdefault(missing[0], Copy(problem=GONE))
        return {one: found.get(one, Copy(problem=GONE)) for one in offsets}

    async def _fetched(self, topic_id: bytes, partition: int, offset: int, session: Session) -> bytes | str:
        """Records from there on, read with the client's own right; a text when it may not, or they are not there."""
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        request = FetchRequest(max_bytes=_FETCH_BYTES, topics=(FetchTopic(topic_id=topic_id, partitions=(wanted,)),))
        try:
            message = await session.call(request, _FETCH_VERSION, deadline=_CALL_S)
        except (ClusterError, WireError) as problem:
            return f"the record could not be read: {problem}"
        for topic in message.responses:
            for one in topic.partitions:
                if one.error_code:
                    return f"the record could not be read: error code {one.error_code}"
                return one.records or GONE
        return f"the record could not be read: error code {message.error_code}"


def _add(found: dict[int, Copy], offsets: Iterable[int], records: Records) -> None:
    for offset in offsets:
        copy = records.copy_of(offset)
        if copy is not None and offset not in found:
            found[offset] = copy


def _left(until: float) -> float:
    return max(0.0, until - asyncio.get_running_loop().time())


def ranges(offsets: Iterable[int]) -> Ranges:
    """Ascending offsets as ranges."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return tuple(found)


def shown(found: Ranges, most: int = 20) -> str:
    """For a log line."""
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found[:most])
    return text if len(found) <= most else f"{text} and {len(found) - most} more ranges"
