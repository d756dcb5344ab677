"""Joins dead letters with their records at the source, by offset: what is left of each, and what it was like.

A record is found only if the broker returned the very offset that was asked for. Ranges of offsets are read, bounded in
a run, so that the records between the dead letters, which were processed, are there to compare with. Their producers
are read apart, because Spark's source does not tell them; where that fails they are unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyspark.errors import PySparkException

from headgate.dead_letters.model.clusters import FEATURES, Place, SourceRecord, source_ranges
from headgate.dead_letters.model.topic_ids import is_topic_id, named_topic
from headgate.kafka.producer_ids import ProducerIdReader
from headgate.pipeline.derived.dead_letter_frames import FEATURE_NAMES, Ranges, read_sources
from headgate.pipeline.derived.dead_letter_topics import KnownTopic, TopicCatalog
from headgate.pipeline.derived.derivation import DerivedRun
from headgate.pipeline.run_log import print_message

# At the source: so many records of a partition at once, so often, and so many of all in a run. What is left is read by
# the next runs.
RANGE_RECORDS: Final = 20_000
RANGE_GAP: Final = 2_000
RANGES: Final = 5
SOURCE_RECORDS: Final = 200_000

Row = dict[str, Any]


def join_sources(
    run: DerivedRun, catalog: TopicCatalog, letters: Sequence[Row]
) -> Mapping[Place, Sequence[SourceRecord]]:
    """Set what is known of the dead letters' records at their source; returns the records that were read, by place."""
    by_place: dict[tuple[str, str, int], list[Row]] = {}
    for letter in letters:
        if letter["topic"] is not None:
            by_place.setdefault((letter["topic"], letter["topic_id"], letter["partition"]), []).append(letter)
    topics = catalog.topics(sorted({topic for topic, _, _ in by_place}))
    gone = catalog.gone(sorted({topic for topic, _, _ in by_place}))
    wanted: list[tuple[bool, int, str, int, tuple[int, int]]] = []
    for (name, topic_id, partition), some in by_place.items():
        topic = topics.get(name)
        readable = [one for one in some if set_source_state(one, topic, is_there=name not in gone)]
        if topic is None or (is_topic_id(topic_id) and topic_id != topic.topic_id):
            continue
        waiting = {one["offset"] for one in readable if one["source_state"] == "unknown"}
        for begin, end in source_ranges((one["offset"] for one in readable), gap=RANGE_GAP, longest=RANGE_RECORDS):
            is_known = not any(begin <= offset < end for offset in waiting)
            wanted.append((is_known, -end, name, partition, (begin, end)))
    read: dict[Place, dict[int, SourceRecord]] = {}
    producers = ProducerIdReader(run.config.upstream)
    for part in source_rounds(wanted):
        for name in sorted({topic for topic, _ in part}):
            of_topic = {place: bounds for place, bounds in part.items() if place[0] == name}
            _read_part(run, topics[name], name, of_topic, by_place, read, producers)
    if producers.problem is not None:
        print_message(f"dead letters: the producers of some records are not known: {producers.problem}")
    return {place: [records[offset] for offset in sorted(records)] for place, records in read.items()}


def source_rounds(
    wanted: Iterable[tuple[bool, int, str, int, tuple[int, int]]],
) -> list[dict[tuple[str, int], tuple[int, int]]]:
    """Ranges that can be read together, one of each partition: those of unknown records first, then the newest."""
    rounds: list[dict[tuple[str, int], tuple[int, int]]] = [{} for _ in range(RANGES)]
    left = SOURCE_RECORDS
    for _, _, name, partition, (begin, end) in sorted(wanted):
        part = next((one for one in rounds if (name, partition) not in one), None)
        if part is not None and end - begin <= left:
            part[name, partition] = (begin, end)
            left -= end - begin
    return rounds


def set_source_state(letter: Row, topic: KnownTopic | None, *, is_there: bool) -> bool:
    """Set the state that needs no reading; returns whether the record can be asked for."""
    if topic is None:
        letter["source_state"] = "unreadable" if is_there else "expired"
        return False
    if is_topic_id(letter["topic_id"]) and letter["topic_id"] != topic.topic_id:
        letter["source_state"] = "recreated"
        return False
    if letter["partition"] not in topic.bounds:
        return False
    first, end = topic.bounds[letter["partition"]]
    if letter["offset"] < first:
        letter["source_state"] = "expired"
    is_readable = bool(first <= letter["offset"] < end)
    if is_readable and letter["source_state"] == "expired":  # its topic could not be seen for a time
        letter["source_state"] = "unknown"
    return is_readable


def _read_part(
    run: DerivedRun,
    topic: KnownTopic,
    name: str,
    ranges: Ranges,
    by_place: Mapping[tuple[str, str, int], Sequence[Row]],
    read: dict[Place, dict[int, SourceRecord]],
    producers: ProducerIdReader,
) -> None:
    try:
        rows = read_sources(run.session, run.config, ranges).toArrow().to_pylist()
    except PySparkException:  # the service account may not read the topic, or it was deleted meanwhile
        rows = None
    found: dict[tuple[int, int], Row] = {}
    spans = producers.read(ranges) if rows else {}
    for row in rows or ():
        of_partition = spans.get((name, row["partition"]))
        row["producer_id"] = None if of_partition is None else of_partition.producer_of(row["offset"])
        found[row["partition"], row["offset"]] = row
        record = SourceRecord(offset=row["offset"], features=[row[feature] for feature in FEATURES])
        for topic_id in ("", named_topic(name), topic.topic_id):
            read.setdefault((topic_id, row["partition"]), {})[row["offset"]] = record
    for (topic_name, _, partition), letters in by_place.items():
        begin, end = ranges.get((topic_name, partition), (0, 0)) if topic_name == name else (0, 0)
        for letter in letters:
            is_of_now = not is_topic_id(letter["topic_id"]) or letter["topic_id"] == topic.topic_id
            if not begin <= letter["offset"] < end or not is_of_now:
                continue
            source = found.get((partition, letter["offset"]))
            if rows is None:
                letter["source_state"] = "unreadable"
            elif source is None:
                letter["source_state"] = "compacted" if topic.is_compacted else "unreadable"
            else:
                known = letter["producer_id"] if source["producer_id"] is None else source["producer_id"]
                letter |= {feature: source[feature] for feature in (*FEATURE_NAMES, "source_at")}
                letter["producer_id"] = known
                letter |= {"source_state": "found", "source_expires_at": topic.expires_at(source["source_at"])}
