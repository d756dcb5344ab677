"""The topics of a query as it knows them: notices a topic that was created again, and records that were lost.

Spark's checkpoint has an offset for each partition and no topic ids: in a new topic of the same name Spark would go on
at the offset of the old one, and skip records. So the id of each topic is kept in a file beside the checkpoint. When a
topic was created again, the query begins a new checkpoint: the new topic is read from its beginning, every other topic
where it was.

Tables are in the order of offsets, and the offsets of a new topic begin at 0. So the *generation* of a topic rises each
time that it was created again, and the tables have `generation * GENERATION_OFFSETS + offset`: what was read from the
new topic is later than everything before.

A log that was truncated gives its last offsets to other records, so it begins another generation too, at its new end.
Records that were deleted before they were read (retention, DeleteRecords) are reported, and the query goes on.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from headgate.base.errors import ClusterError
from headgate.base.locations import Location
from headgate.kafka.topics import id_text
from headgate.pipeline.fact_rows import GENERATION_OFFSETS
from headgate.tables.files import has_file, names_in, read_file, remove_folder, write_file

_EARLIEST: Final = -2  # in Spark's offsets
Offsets = Mapping[str, Mapping[str, int]]  # of the next record, by topic and partition: as Spark writes them
AskIds = Callable[[Collection[str]], Mapping[str, str]]
AskFirst = Callable[[Mapping[str, Collection[int]]], Mapping[tuple[str, int], int]]


class OffsetsReusedError(ClusterError):
    """A topic was created again or truncated while the query read it; the next attempt begins a new checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRecords:
    """Offsets of one partition that were not read and are not in the topic any more."""

    topic: str
    partition: int
    first: int
    count: int

    @property
    def text(self) -> str:
        last = self.first + self.count - 1
        return (
            f"records of {self.topic} were deleted before they were read: partition {self.partition}, offsets "
            f"{self.first} to {last}. Run the pipeline more often than the topic's retention, or keep records longer"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The content of the file. `start` are the offsets of a checkpoint that has not begun; `retired` is an old one.

    `past` are the earlier ids of topics: a broker whose metadata is behind may still return one of them.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    past: Mapping[str, Sequence[str]] = field(default_factory=dict)
    generations: Mapping[str, int] = field(default_factory=dict)
    start: Offsets | None = None
    retired: str | None = None

    def was_created_again(self, topic: str, topic_id: str) -> bool:
        return self.ids.get(topic, topic_id) != topic_id and topic_id not in self.past.get(topic, ())


class SourceTopics:
    """The topics of one query; used on the thread of the query."""

    def __init__(self, checkpoint: Location) -> None:
        self._checkpoint = checkpoint
        self._file = checkpoint.with_name(f"{checkpoint.name}.topics.json")
        self._known = _read(self._file)

    def generations(self, found: Mapping[str, str]) -> dict[str, int]:
        """The generation of each topic, by the ids that topics have now."""
        known = self._known
        return {
            topic: known.generations.get(topic, 0) + known.was_created_again(topic, topic_id)
            for topic, topic_id in found.items()
        }

    def reconcile(self, found: Mapping[str, str]) -> Sequence[str]:
        """Before the query starts: returns the topics that were created again, of which the checkpoint is rid then."""
        known = self._known
        if known.retired is not None and checkpoint_id(self._checkpoint) == known.retired:
            self._move_checkpoint_away()  # a kill came in between
        again = [topic for topic, topic_id in found.items() if known.was_created_again(topic, topic_id)]
        new = {topic: topic_id for topic, topic_id in found.items() if topic in again or topic not in known.ids}
        after = replace(
            known,
            ids={**known.ids, **new},
            past={**known.past, **{topic: [*known.past.get(topic, ()), known.ids[topic]] for topic in again}},
            generations={**known.generations, **self.generations(found)},
        )
        retiring = checkpoint_id(self._checkpoint)
        if again and retiring is not None:
            committed = _committed_offsets(self._checkpoint)
            kept = {topic: offsets for topic, offsets in committed.items() if topic not in again}
            after = replace(after, start=kept, retired=retiring)
        elif again and known.start is not None:
            after = replace(after, start={topic: own for topic, own in known.start.items() if topic not in again})
        elif retiring is not None:
            after = replace(after, start=None, retired=None)
        self._keep(after)
        if again and retiring is not None:
            self._move_checkpoint_away()
        return again

    def read_before(self) -> Offsets:
        """The offsets that were read, also by a checkpoint that went away because a topic was created again."""
        return _committed_offsets(self._checkpoint) or self._known.start or {}

    def starting_offsets(self, partitions: Mapping[str, Collection[int]]) -> str:
        """Spark's option for a checkpoint that has not begun; `partitions` are those that exist."""
        start = self._known.start
        if start is None:
            return "earliest"
        every = {
            topic: {str(one): start.get(topic, {}).get(str(one), _EARLIEST) for one in sorted(numbers)}
            for topic, numbers in partitions.items()
        }
        return json.dumps(every)

    def check(self, batch: int, topics: Collection[str], ask_ids: AskIds, ask_first: AskFirst) -> list[LostRecords]:
        """Before a batch is written: what it cannot read any more. Raises when a topic was created again."""
        found = ask_ids(topics)
        known = self._known
        again = sorted(topic for topic, topic_id in found.items() if known.was_created_again(topic, topic_id))
        if again:
            raise OffsetsReusedError(f"the topic {again[0]} was created again")
        if not found.keys() <= known.ids.keys():  # one that did not exist before
            self._keep(replace(known, ids={**found, **known.ids}))
        begin, end = _offsets(self._checkpoint, batch - 1), _offsets(self._checkpoint, batch)
        begin = {topic: own for topic, own in begin.items() if topic in found}
        self._check_ends(begin, end)
        first = ask_first({topic: [int(one) for one in own] for topic, own in begin.items()})
        return [
            LostRecords(topic=topic, partition=int(one), first=offset, count=earliest - offset)
            for topic, own in begin.items()
            for one, offset in own.items()
            if (earliest := first.get((topic, int(one)), offset)) > offset
        ]

    def _check_ends(self, begin: Offsets, end: Offsets) -> None:
        """Raise when a partition ends below what was read: the next checkpoint begins at its end."""
        ends = {topic: {**own, **end.get(topic, {})} for topic, own in begin.items()}
        truncated = [topic for topic, own in begin.items() if any(ends[topic][one] < own[one] for one in own)]
        if not truncated:
            return
        known = self._known
        start = {topic: ends[topic] if topic in truncated else own for topic, own in begin.items()}
        risen = {topic: known.generations.get(topic, 0) + 1 for topic in truncated}
        retired = checkpoint_id(self._checkpoint)
        self._keep(replace(known, generations={**known.generations, **risen}, start=start, retired=retired))
        raise OffsetsReusedError(
            f"the topic {truncated[0]} was truncated below what was read: the rows of lost records stay, and the query "
            f"goes on at its end; in the tables its offsets are higher by {GENERATION_OFFSETS}"
        )

    def _keep(self, known: _Known) -> None:
        if known == self._known and has_file(self._file):
            return
        content = {
            "ids": dict(known.ids),
            "past": dict(known.past),
            "generations": dict(known.generations),
            "start": known.start,
            "retired": known.retired,
        }
        write_file(self._file, json.dumps(content))
        self._known = known

    def _move_checkpoint_away(self) -> None:
        """In one step, so that no kill leaves a part of it; then it is removed.

        An object store has no such step: there the id goes last, and while it is there, this is done again.
        """
        if not isinstance(self._checkpoint, Path):
            remove_folder(self._checkpoint, last="metadata")
            return
        retired = self._checkpoint.with_name(f"{self._checkpoint.name}.retired")
        remove_folder(retired)
        self._checkpoint.rename(retired)
        remove_folder(retired)


def batch_sizes(checkpoint: Location, batch: int) -> dict[str, int]:
    """The number of offsets of a batch by topic, without topics of which the batch reads a partition from its start."""
    begin, end = _offsets(checkpoint, batch - 1), _offsets(checkpoint, batch)
    return {
        topic: sum(offset - begin[topic][one] for one, offset in own.items())
        for topic, own in end.items()
        if own.keys() <= begin.get(topic, {}).keys()
    }


def max_batch_size(checkpoint: Location, batch: int) -> int | None:
    """The number of offsets of a batch at most: from 0 where it reads a partition from its start; None: not known."""
    begin, end = _offsets(checkpoint, batch - 1), _offsets(checkpoint, batch)
    if not end:
        return None
    ranges = [(begin.get(topic, {}).get(one, 0), last) for topic, own in end.items() for one, last in own.items()]
    return sum(last - (first if first <= last else 0) for first, last in ranges)


def created_again_text(topic: str) -> str:
    """The problem of `pipeline_runs`."""
    return (
        f"the topic {topic} was created again: records that were not read are lost, and the new topic is read from its "
        f"beginning; in the tables its offsets are higher by {GENERATION_OFFSETS}"
    )


def _read(file: Location) -> _Known:
    try:
        content = json.loads(read_file(file))
        # Earlier versions wrote ids in librdkafka's form, and these topics were not created again.
        ids = {topic: id_text(one) for topic, one in content.pop("ids", {}).items()}
        past = {topic: [id_text(one) for one in ids] for topic, ids in content.pop("past", {}).items()}
        return _Known(ids=ids, past=past, **content)
    except FileNotFoundError:
        return _Known()
    except (ValueError, TypeError, AttributeError):
        raise ClusterError(f"{file} is damaged: remove it, and the ids that topics have now are taken over") from None


def checkpoint_id(checkpoint: Location) -> str | None:
    """Spark's id of the checkpoint; None when it has not begun."""
    try:
        return str(json.loads(read_file(checkpoint / "metadata"))["id"])
    except (OSError, ValueError, KeyError):
        return None


def last_batch(checkpoint: Location) -> int:
    """The number of the last completed batch; -1 when there is none."""
    return max((int(name) for name in names_in(checkpoint / "commits") if name.isdecimal()), default=-1)


def _committed_offsets(checkpoint: Location) -> Offsets:
    """The offsets after the last completed batch; none when there is none."""
    return _offsets(checkpoint, last_batch(checkpoint))


def _offsets(checkpoint: Location, batch: int) -> Offsets:
    """The end offsets of a batch: the last line of Spark's file."""
    try:
        lines = read_file(checkpoint / "offsets" / str(batch)).splitlines()
        found = json.loads(lines[-1])
    except (OSError, ValueError, IndexError):
        return {}
    return found if isinstance(found, dict) else {}
