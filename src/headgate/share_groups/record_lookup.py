"""The topic name and the copy of a dead letter's record.

Copies come from the responses that passed through this worker, for a client that acquired the record itself, or from a
Fetch on the client's own connection: a client never gets a copy of a record that it may not read. The kept bytes are
bounded, and so are the unpacked ones. A batch stays compressed until one of its records is requested; then it is
unpacked whole, off the event loop, and cached.
"""

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from headgate.base.errors import ClusterError, WireError
from headgate.proxy.decoding import SMALL_BYTES, run_off_loop
from headgate.proxy.interceptor import Session
from headgate.proxy.rights import readable_topics
from headgate.share_groups.model.dead_letter_records import BatchOffsets, PartitionKey, RecordCopy, topic_id_text
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic
from headgate.wire.messages.data import FetchPartition, FetchRequest, FetchTopic
from headgate.wire.primitives import Buffer
from headgate.wire.records import UnpackedBatch, batches, last_offset

_METADATA_VERSION: Final = 12
_FETCH_VERSION: Final = 13
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_UNPACKED_BYTES: Final = 16 * 1024 * 1024
_COMPRESSION: Final = 0x07  # bits of a batch's attributes
TOO_LARGE: Final = "the record's batch is larger than the dead-letter topic takes"
_OVERHEAD: Final = 300  # memory of a batch beside its bytes
_POSITION: Final = 100  # memory of a record's position in its batch
_FEW_RECORDS: Final = 1_000  # in a quarter of a millisecond their positions are known
GONE: Final = "the record is not in the log any more"
_MAX_NAMES: Final = 10_000
_FETCH_BYTES: Final = 1024 * 1024
_MAX_FETCHES: Final = 8
_CALL_S: Final = 2.0
_DEFAULT_MAX_MESSAGE_BYTES: Final = 1024 * 1024  # where the service account may not read the topic's configs


class _GroupCopies:
    """The batches of one group by topic id, partition and base offset, the oldest first."""

    __slots__ = ("bases", "batches", "bytes")

    def __init__(self) -> None:
        self.batches: OrderedDict[tuple[bytes, int, int], bytes] = OrderedDict()
        self.bases: dict[tuple[bytes, int], list[int]] = {}
        self.bytes = 0

    def add(self, key: tuple[bytes, int, int], raw: bytes) -> None:
        self.batches[key] = raw
        insort(self.bases.setdefault(key[:2], []), key[2])
        self.bytes += len(raw) + _OVERHEAD

    def drop_oldest(self, wanted: int) -> int:
        """Drop at least one batch and at least this many bytes; returns the bytes that are free now."""
        freed = 0
        dropped: dict[tuple[bytes, int], list[int]] = {}
        while self.batches and (not freed or freed < wanted):
            key, raw = self.batches.popitem(last=False)
            dropped.setdefault(key[:2], []).append(key[2])
            freed += len(raw) + _OVERHEAD
        for place, gone in dropped.items():  # one change of each list: it moves all that lies behind
            bases = self.bases[place]
            if bases[: len(gone)] == gone:  # the usual case: fetched in the order of the log
                del bases[: len(gone)]
            else:
                out = set(gone)
                bases[:] = [base for base in bases if base not in out]
            if not bases:
                del self.bases[place]
        self.bytes -= freed
        return freed


class RecordCopies:
    """Keeps batches of records; when they exceed `max_bytes`, the group with the most bytes loses its oldest.

    So a group keeps what fits into an equal share of `max_bytes`, whatever the other groups fetch.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._groups: dict[str, _GroupCopies] = {}
        self.bytes = 0

    def keep(self, group: str, topic_id: bytes, partition: int, records: Buffer) -> None:
        """Keep the batches of one partition of a response."""
        kept = self._groups.get(group)
        for batch in batches(records):
            size = len(batch.raw) + _OVERHEAD
            key = (topic_id, partition, batch.base_offset)
            if batch.is_control or size > self._max_bytes or (kept is not None and key in kept.batches):
                continue
            if kept is None:
                kept = self._groups[group] = _GroupCopies()
            kept.add(key, bytes(batch.raw))
            self.bytes += size
            if self.bytes > self._max_bytes:
                self._shrink()
                kept = self._groups.get(group)

    def of(self, group: str, topic_id: bytes, partition: int, offsets: Sequence[int]) -> tuple[bytes, ...]:
        """The kept batches that contain these offsets."""
        kept = self._groups.get(group)
        if kept is None:
            return ()
        bases = kept.bases.get((topic_id, partition), [])
        found: dict[int, None] = {}
        for offset in offsets:
            at = bisect_right(bases, offset)
            if at:
                found[bases[at - 1]] = None
        return tuple(kept.batches[topic_id, partition, base] for base in found)

    def batch_of(self, group: str, topic_id: bytes, partition: int, offset: int) -> BatchOffsets | None:
        """The first and the last offset of the kept batch with this offset; None when there is none."""
        kept = self._groups.get(group)
        bases = kept.bases.get((topic_id, partition)) if kept is not None else None
        at = bisect_right(bases, offset) if bases else 0
        if kept is None or bases is None or not at:
            return None
        base = bases[at - 1]
        last = last_offset(kept.batches[topic_id, partition, base])
        return (base, last) if offset <= last else None

    def _shrink(self) -> None:
        """To a little less than the bound, so that the largest group is not searched for each batch."""
        least = self._max_bytes - self._max_bytes // 64
        while self.bytes > least:
            group, largest = max(self._groups.items(), key=lambda one: one[1].bytes)
            share = least // len(self._groups)
            self.bytes -= largest.drop_oldest(min(self.bytes - least, largest.bytes - share))
            if not largest.batches:
                del self._groups[group]


@dataclass(frozen=True, slots=True)
class UnpackedRecords:
    """Some batches, unpacked; a record is read when it is asked for, and the others are jumped over.

    `problem` is the reason why a batch could not be read.
    """

    batches: Sequence[UnpackedBatch]
    problem: str | None
    size: int

    def copy_of(self, offset: int) -> RecordCopy | None:
        try:
            for batch in self.batches:
                found = batch.read(offset)
                if found is not None:
                    return RecordCopy(*found)
        except WireError:
            return RecordCopy(problem=TOO_LARGE)
        return None if self.problem is None else RecordCopy(problem=self.problem)


def unpack(raw: bytes, max_bytes: int) -> UnpackedRecords:
    """Every batch of these; `problem` is set when a compressed one unpacks to more than `max_bytes`."""
    found: list[UnpackedBatch] = []
    size = 0
    for batch in batches(raw):
        if batch.is_control:
            continue
        try:
            one = batch.unpack(max_bytes=max_bytes if batch.attributes & _COMPRESSION else len(raw))
        except WireError:
            return UnpackedRecords(found, TOO_LARGE, size)
        found.append(one)
        size += len(one.body) + _POSITION * batch.record_count
    return UnpackedRecords(found, None, size)


def _is_small(raw: bytes) -> bool:
    """Whether it is unpacked in a moment: a few bytes, or one batch of a few records; not compressed."""
    found = batches(raw)
    if len(raw) > SMALL_BYTES:
        first = next(found, None)
        if first is None or len(first.raw) < len(raw):
            return False
        found = iter((first,))
    return all(one.record_count <= _FEW_RECORDS and not one.attributes & _COMPRESSION for one in found)


class UnpackCache:
    """Keeps the batches unpacked last: the dead letters of one request are often of one batch."""

    def __init__(self, max_bytes: int = MAX_UNPACKED_BYTES) -> None:
        self._max_bytes = max_bytes
        # By the identity of the bytes, which are kept beside it, and their bound: hashing them would take longer.
        self._kept: OrderedDict[tuple[int, int], tuple[bytes, UnpackedRecords]] = OrderedDict()
        self._bytes = 0

    async def of(self, raw: bytes, max_bytes: int) -> UnpackedRecords:
        key = (id(raw), max_bytes)
        found = self._kept.get(key)
        if found is not None:
            return found[1]
        records = unpack(raw, max_bytes) if _is_small(raw) else await run_off_loop(lambda: unpack(raw, max_bytes))
        if key not in self._kept:
            self._kept[key] = (raw, records)
            self._bytes += records.size + len(raw)
            while self._bytes > self._max_bytes:
                _, (gone, dropped) = self._kept.popitem(last=False)
                self._bytes -= dropped.size + len(gone)
        return records


class RecordLookup:
    """Finds topic names and record copies, with the client's own rights where this worker does not know them."""

    def __init__(self) -> None:
        self._copies = RecordCopies()
        self._unpacked = UnpackCache()
        self._names: OrderedDict[bytes, str] = OrderedDict()
        # Topics whose names the broker showed the client at its last request with records that it is not known to hold.
        self._shown: WeakKeyDictionary[Session, frozenset[bytes]] = WeakKeyDictionary()

    def keep(self, group: str, topic_id: bytes, partition: int, records: Buffer) -> None:
        self._copies.keep(group, topic_id, partition, records)

    def kept_batch(self, key: PartitionKey, offset: int) -> BatchOffsets | None:
        group, _, topic_id, partition = key
        return self._copies.batch_of(group, topic_id, partition, offset)

    async def readable_topics(self, topic_ids: Collection[bytes], session: Session) -> Collection[bytes]:
        """The topics among these on which the client has READ; `ClusterError` when the broker does not respond."""
        names = await readable_topics(session, topic_ids)
        for topic_id, name in names.items():
            self._keep_name(topic_id, name)
        self._shown[session] = frozenset(names)
        return names.keys()

    def known_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def shown_name(self, topic_id: bytes, session: Session, *, is_held: bool) -> str | None:
        """The topic's name as far as this worker knows that the client may know it.

        A name that another client asked for is used only for a member that holds records of the topic (`is_held`).
        """
        name = self._names.get(topic_id)
        return name if name is not None and (is_held or topic_id in self._shown.get(session, ())) else None

    async def topic_name(self, topic_id: bytes, session: Session, *, is_held: bool) -> str:
        """The topic's name if the client may know it, else its id."""
        name = self.shown_name(topic_id, session, is_held=is_held)
        if name is not None:
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
        self._keep_name(topic_id, name)
        return name

    def _keep_name(self, topic_id: bytes, name: str) -> None:
        self._names[topic_id] = name
        if len(self._names) > _MAX_NAMES:
            self._names.popitem(last=False)

    async def copies(
        self,
        group: str,
        topic_id: bytes,
        partition: int,
        offsets: Sequence[int],
        session: Session,
        *,
        max_message_bytes: int | None,
        is_held: bool,
    ) -> Mapping[int, RecordCopy]:
        """Copies from passing responses for a member that holds the records; else from the broker, by its own Fetch."""
        max_bytes = max_message_bytes or _DEFAULT_MAX_MESSAGE_BYTES
        found: dict[int, RecordCopy] = {}
        for raw in self._copies.of(group, topic_id, partition, offsets) if is_held else ():
            _add(found, offsets, await self._unpacked.of(raw, max_bytes))
        for _ in range(_MAX_FETCHES):
            missing = [one for one in offsets if one not in found]
            if not missing:
                break
            fetched = await _fetch(topic_id, partition, missing[0], session)
            if isinstance(fetched, str):
                return found | dict.fromkeys(missing, RecordCopy(problem=fetched))
            _add(found, missing, await self._unpacked.of(fetched, max_bytes))
            found.setdefault(missing[0], RecordCopy(problem=GONE))
        return {one: found.get(one, RecordCopy(problem=GONE)) for one in offsets}


async def _fetch(topic_id: bytes, partition: int, offset: int, session: Session) -> bytes | str:
    """Records from this offset on, read on the client's connection; a text when that fails."""
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


def _add(found: dict[int, RecordCopy], offsets: Iterable[int], records: UnpackedRecords) -> None:
    for offset in offsets:
        copy = records.copy_of(offset)
        if copy is not None and offset not in found:
            found[offset] = copy
