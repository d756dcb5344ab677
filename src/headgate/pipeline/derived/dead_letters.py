"""`dead_letters` and `dead_letter_clusters`: every dead letter once, its source, and the episode that it belongs to.

Dead-letter topics are read in bounded parts. How far each partition was read is committed with the rows, so no dead
letter counts twice, whenever a run is killed. Then the groups with new or recent dead letters are triaged: their dead
letters are joined with the records at the source, by offset, and episodes are found in all attempts of the group.

The topics are no tables: the derivation runs when dispositions or events have changed, and each hour, and then reads
what the topics have.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.dead_letters.model.clusters import Letter, LetterCluster, clusters_of, pauses_of
from headgate.dead_letters.model.episodes import BASE_MS, BUCKET_MS, QUIET_MS, Attempts, Pause
from headgate.dead_letters.model.topic_ids import NAMED
from headgate.pipeline.derived.dead_letter_edges import dead_letter_periods
from headgate.pipeline.derived.dead_letter_expiry import REFRESHED_PARTS, outdated_letters, topics_of
from headgate.pipeline.derived.dead_letter_frames import Ranges, read_each, read_letters
from headgate.pipeline.derived.dead_letter_rows import (
    KEY,
    LetterKey,
    Row,
    add_copy,
    dead_letter_row,
    identity,
    key_of,
    key_schema,
)
from headgate.pipeline.derived.dead_letter_sources import join_sources
from headgate.pipeline.derived.dead_letter_topics import KnownTopic, TopicCatalog
from headgate.pipeline.derived.dead_letter_window import MOST_TRIAGED, LetterWindow, letters_since
from headgate.pipeline.derived.dead_letter_withdrawals import event_numbers, withdrawn_letters
from headgate.pipeline.derived.derivation import HOUR_MS, Derivation, DerivedRun
from headgate.pipeline.run_log import print_message
from headgate.share_groups.model.recorded_history import RecordedEvent
from headgate.tables.definitions import ORIGIN_KEY, table_named

_LETTERS, _CLUSTERS = "dead_letters", "dead_letter_clusters"
_DISPOSITIONS, _EVENTS = "dispositions", "breaker_events"
# Dead letters that are read, or written, at once; their rows pass through this process.
PART_LETTERS: Final = 50_000
# Dead letters of this time are triaged again, because dispositions, events and withdrawals are read later than they;
# those that belong to no episode yet for longer, because a pipeline that was stopped reads dispositions last. So are
# episodes that ended within this time: what the group does after a resume says whether the cause is gone.
RECENT_MS: Final = HOUR_MS // 4
UNASSIGNED_MS: Final = 2 * HOUR_MS
# Older dead letters keep the episode that they have.
TRIAGED_MS: Final = 72 * HOUR_MS


def _derive(run: DerivedRun) -> None:
    catalog = TopicCatalog(run.config)
    names = catalog.dead_letter_topics(_configured_topics(run))
    groups = _read_new_letters(run, catalog, names)
    if run.made_in_hour_ms + HOUR_MS <= run.now_ms:
        _refresh_expiry(run, catalog)
    _triage(run, catalog, groups | _mark_withdrawn(run, catalog.listing.cluster))
    run.record()


def _configured_topics(run: DerivedRun) -> list[str]:
    named = dead_letter_periods(run.rows(_EVENTS)).select("topic").distinct().toArrow()
    return [str(one) for one in named["topic"].to_pylist()]


# --- dead letters -----------------------------------------------------------------------------------------------------


def _read_new_letters(run: DerivedRun, catalog: TopicCatalog, names: Sequence[str]) -> set[str]:
    """Read all dead letters that came since the last run, part by part; returns their groups."""
    topics = catalog.topics(names)
    places = [(name, partition) for name, topic in topics.items() for partition in topic.bounds]
    next_offsets = {place: _start(run, topics[place[0]], place[1]) for place in places}
    groups: set[str] = set()
    known: set[LetterKey] = set()  # only of a run that makes all anew, because there may be very many
    while True:
        share = max(PART_LETTERS // max(len(places), 1), 1)
        part = {
            (name, number): (begin, min(begin + share, topics[name].bounds[number][1]))
            for (name, number), begin in next_offsets.items()
            if begin < topics[name].bounds[number][1]
        }
        if not part:
            return groups
        added, unread = _add_letters(run, catalog, part, known)
        groups |= {group for group, *_ in added}
        known |= added if run.is_full else set()
        next_offsets = {
            place: part[place][1] if place in part else begin
            for place, begin in next_offsets.items()
            if place[0] not in unread
        }
        for name, text in unread.items():
            run.add_problem(f"the dead letters in {name} cannot be read, and are left out: {text}")


def _start(run: DerivedRun, topic: KnownTopic, partition: int) -> int:
    """Where to go on: after what was read, unless retention has deleted it; a truncated topic is read anew."""
    first, end = topic.bounds[partition]
    known = run.position(f"{topic.topic_id}/{partition}")
    return first if known is None or not first <= known <= end else known


def _add_letters(
    run: DerivedRun, catalog: TopicCatalog, part: Ranges, known: Collection[LetterKey]
) -> tuple[set[LetterKey], dict[str, str]]:
    """Add the dead letters of a part to the table; `known` are those that a run that makes all anew added before.

    Returns their keys, and why a topic could not be read, by topic: the next run begins where it was.
    """
    rows: dict[LetterKey, Row] = {}
    letters, unread = read_each(part, lambda some: read_letters(run.session, run.config, some).toArrow().to_pylist())
    for letter in letters:
        topic = catalog.topic(letter["dlq_topic"])
        if topic is not None:
            row = dead_letter_row(letter, topic, catalog.listing.cluster)
            add_copy(rows, row)
    for (name, partition), (_, end) in part.items():
        topic = catalog.topic(name)
        if topic is not None and name not in unread:
            run.keep_position(f"{topic.topic_id}/{partition}", end)
    keys = pa.Table.from_pylist([key_of(row) for row in rows.values()], key_schema())
    stored_keys: list[Row] = []
    for topic_id, old in _stored_with(run, keys):
        stored_keys.append(key_of(old) | {"topic_id": topic_id})
        new = rows[identity(old)]
        if not run.is_full or identity(old) in known:  # else all copies that there are come in this run
            rows[identity(old)] = old | {"copies": old["copies"] + new["copies"], "withdrawn": False}
    made = pa.Table.from_pylist(list(rows.values()), table_named(_LETTERS).columns)
    within = pa.concat_tables([keys, pa.Table.from_pylist(stored_keys, key_schema())])
    run.replace(_LETTERS, made, within=within, is_last=False)
    return set(rows), unread


def _stored_with(run: DerivedRun, keys: pa.Table) -> list[tuple[str, Row]]:
    """The stored rows of these keys, each with its stored topic id, which is empty in rows of earlier releases."""
    if not keys.num_rows:
        return []
    wanted = sf.broadcast(run.session.createDataFrame(keys))
    stored_id = sf.col("topic_id")
    topic_id = sf.when(stored_id == "", sf.concat(sf.lit(NAMED), "topic")).otherwise(stored_id)
    stored = run.stored(_LETTERS).withColumns({"stored_id": stored_id, "topic_id": topic_id})
    found = stored.join(wanted, list(KEY), "left_semi").toArrow().to_pylist()
    return [(row.pop("stored_id"), row) for row in found]


def _refresh_expiry(run: DerivedRun, catalog: TopicCatalog) -> None:
    """The parts that are left are written in the next hours."""
    for _ in range(REFRESHED_PARTS):
        stored = run.stored(_LETTERS).where(sf.col("cluster_id") == catalog.listing.cluster)
        names = topics_of(stored)
        known, gone = catalog.topics(names), catalog.gone(names)
        part = _replace_part(run, outdated_letters(run.session, stored, known, gone, run.now_ms))
        if part.num_rows < PART_LETTERS:
            return


def _mark_withdrawn(run: DerivedRun, cluster: str) -> set[str]:
    """Mark all dead letters that events withdraw, also those that are not triaged; returns their groups."""
    events = run.rows(_EVENTS).where((sf.col("event") == "dead_letter_withdrawn") & (sf.col("cluster_id") == cluster))
    numbers = event_numbers(events.select("group", "detail").toArrow().to_pylist())
    groups: set[str] = set()
    while numbers:
        stored = run.stored(_LETTERS).where(sf.col("cluster_id") == cluster)
        part = _replace_part(run, withdrawn_letters(stored, numbers))
        groups |= set(part["group"].to_pylist())
        if part.num_rows < PART_LETTERS:
            break
    return groups


def _replace_part(run: DerivedRun, changed: DataFrame) -> pa.Table:
    """Write the first part of these changed rows; those of the next part are the ones that still differ."""
    part = changed.limit(PART_LETTERS).toArrow()
    if part.num_rows:
        run.replace(_LETTERS, part, within=part.select(KEY).cast(key_schema()), is_last=False)
    return part


# --- triage -----------------------------------------------------------------------------------------------------------


def _triage(run: DerivedRun, catalog: TopicCatalog, new: Collection[str]) -> None:
    """Find the sources of new and recent dead letters, and the episodes of their groups."""
    cluster = catalog.listing.cluster
    stored = run.stored(_LETTERS).where(sf.col("cluster_id") == cluster)
    clusters = run.stored(_CLUSTERS).where(sf.col("cluster_id") == cluster)
    groups, since = _to_triage(run, stored, clusters, new)
    if not groups:
        return
    window = letters_since(run.session, stored, groups, since, MOST_TRIAGED)
    letters = window.letters
    for group, number in window.left_out.items():
        print_message(f"dead letters: {number} older ones of {group} are not compared: too many for one run")
    sources = join_sources(run, catalog, letters)
    rows: list[Row] = []
    events = _pause_events(run, cluster, groups)
    pauses = {group: pauses_of(events.get(group, ())) for group in groups}
    attempts = _attempts(run, cluster, window, pauses)
    for group in sorted(groups):
        of_group = [one for one in letters if one["group"] == group and not one["withdrawn"]]
        made = clusters_of(
            cluster,
            group,
            map(_letter, of_group),
            attempts.get(group, ()),
            pauses[group],
            sources,
            now=run.now_ms,
        )
        rows += [_cluster_row(cluster, group, one, window) for one in made]
        ids = {(group, *_letter_place(letter)): one.id for one in made for letter in one.letters}
        for letter in of_group:
            letter["cluster"] = ids.get(identity(letter))
    known = {one["cluster"] for one in rows}
    earlier = clusters.where(sf.col("group").isin(sorted(groups))).toArrow().to_pylist()
    rows += [
        one
        for one in earlier
        if one["cluster"] not in known and one["first_at"] < window.begins.get(one["group"], since)
    ]
    within = pa.table({"cluster_id": [cluster] * len(groups), "group": sorted(groups)})
    run.replace(_CLUSTERS, pa.Table.from_pylist(rows, table_named(_CLUSTERS).columns), within=within)
    _replace_letters(run, letters)


def _replace_letters(run: DerivedRun, letters: Sequence[Row]) -> None:
    """Write the dead letters that were triaged, in parts: a part is compared with the stored rows in little memory.

    Those of a group come together, because they lie in the same files.
    """
    ordered = sorted(letters, key=lambda row: str(row["group"]))
    for begin in range(0, max(len(ordered), 1), PART_LETTERS):
        part = ordered[begin : begin + PART_LETTERS]
        keys = pa.Table.from_pylist([key_of(row) for row in part], key_schema())
        made = pa.Table.from_pylist(part, table_named(_LETTERS).columns)
        run.replace(_LETTERS, made, within=keys, is_last=begin + PART_LETTERS >= len(ordered))


def _to_triage(run: DerivedRun, letters: DataFrame, clusters: DataFrame, new: Collection[str]) -> tuple[set[str], int]:
    """The groups to triage now, and the time from which on their dead letters are looked at."""
    oldest = run.now_ms - TRIAGED_MS
    at, is_unassigned = sf.col("dead_lettered_at"), sf.col("cluster").isNull() & (sf.col("format") == "kafka")
    recent = letters.where(
        (at >= run.now_ms - RECENT_MS) | (is_unassigned & ~sf.col("withdrawn") & (at >= run.now_ms - UNASSIGNED_MS))
    )
    counted = recent.groupBy("group").agg(sf.min("dead_lettered_at").alias("at")).toArrow().to_pylist()
    times = {one["group"]: one["at"] for one in counted}
    if new:
        of_new = letters.where(sf.col("group").isin(sorted(new)) & (sf.col("dead_lettered_at") >= oldest))
        first = of_new.groupBy("group").agg(sf.min("dead_lettered_at").alias("at")).toArrow().to_pylist()
        times |= {one["group"]: min(one["at"], times.get(one["group"], one["at"])) for one in first}
    stored = clusters.where(sf.col("first_at") >= oldest).select("group", "first_at", "ended_at").toArrow().to_pylist()
    for one in stored:
        if one["ended_at"] is None or one["ended_at"] >= run.now_ms - RECENT_MS:
            times[one["group"]] = min(one["first_at"], times.get(one["group"], one["first_at"]))
    since = min(times.values(), default=run.now_ms) - BUCKET_MS
    # A dead letter that came late may belong to an episode that had begun before.
    open_then = [one["first_at"] for one in stored if one["ended_at"] is None or one["ended_at"] >= since]
    return set(times), max(min([since, *(at - BUCKET_MS for at in open_then)]), oldest)


def _attempts(
    run: DerivedRun, cluster: str, window: LetterWindow, pauses: Mapping[str, Sequence[Pause]]
) -> dict[str, list[Attempts]]:
    """All attempts of the groups in the hours around their dead letters and after resumes, each disposition once."""
    first_letters: dict[str, int] = {}
    spans: set[tuple[str, int, int]] = set()
    for group, at in (*((one["group"], one["dead_lettered_at"]) for one in window.letters), *window.times):
        first_letters[group] = min(at, first_letters.get(group, at))
        spans.add((group, (at - BASE_MS) // HOUR_MS, (at + 2 * QUIET_MS) // HOUR_MS))
    for group, first_at in first_letters.items():
        resumes = (one.until for one in pauses[group] if one.until is not None and one.until >= first_at)
        spans |= {(group, at // HOUR_MS, (at + 2 * QUIET_MS) // HOUR_MS) for at in resumes}
    hours = {(group, hour) for group, first, last in spans for hour in range(first, last + 1)}
    if not hours:
        return {}
    wanted = run.session.createDataFrame(
        pa.table({"group": [one for one, _ in hours], "hour": [at for _, at in hours]})
    )
    first, last = min(at for _, at in hours) * HOUR_MS // 1000, (max(at for _, at in hours) + 1) * HOUR_MS // 1000
    used = (*ORIGIN_KEY, "group", "member", "second", "accepted", "released", "rejected", "over_limit")
    of_hours = (
        run.rows(_DISPOSITIONS)
        .where((sf.col("cluster_id") == cluster) & sf.col("second").between(first, last))
        .withColumn("hour", sf.floor(sf.col("second") * 1000 / HOUR_MS).cast("long"))
        .join(sf.broadcast(wanted), ["group", "hour"], "left_semi")
        .select(*used)
        .distinct()
    )
    slot_s = BUCKET_MS // 1000
    slot = (sf.col("second") - sf.pmod("second", sf.lit(slot_s))).alias("slot")
    summed = of_hours.groupBy("group", "member", slot).agg(
        sf.try_sum(sf.col("released") + sf.col("rejected") + sf.col("over_limit")).alias("failed"),
        sf.try_sum("accepted").alias("succeeded"),
    )
    found: dict[str, list[Attempts]] = {}
    for one in summed.toArrow().to_pylist():
        if one["failed"] is not None and one["succeeded"] is not None:
            attempts = Attempts(
                at=one["slot"] * 1000, member=one["member"], failed=one["failed"], succeeded=one["succeeded"]
            )
            found.setdefault(one["group"], []).append(attempts)
    return found


def _pause_events(run: DerivedRun, cluster: str, groups: Iterable[str]) -> dict[str, list[RecordedEvent]]:
    is_pause = sf.col("event").isin("tripped", "paused", "resumed")
    of_groups = (sf.col("cluster_id") == cluster) & sf.col("group").isin(sorted(groups))
    found: dict[str, list[RecordedEvent]] = {}
    events = run.rows(_EVENTS).where(is_pause & of_groups).select("group", "at", "event", "by")
    for one in events.toArrow().to_pylist():
        found.setdefault(one["group"], []).append(RecordedEvent(at=one["at"], event=one["event"], by=one["by"]))
    return found


def _letter(row: Row) -> Letter:
    return Letter(
        topic=row["topic"],
        topic_id=row["topic_id"],
        partition=row["partition"],
        offset=row["offset"],
        at=row["dead_lettered_at"],
        delivery_count=row["delivery_count"],
    )


def _letter_place(letter: Letter) -> tuple[str, int, int]:
    return (letter.topic_id, letter.partition, letter.offset)


def _cluster_row(cluster: str, group: str, found: LetterCluster, window: LetterWindow) -> Row:
    evidence = dict(found.verdict.evidence)
    if found.episode.since < window.begins.get(group, 0):
        evidence["dead_letters_left_out"] = window.left_out.get(group, 0)
    return {
        "cluster_id": cluster,
        "group": group,
        "cluster": found.id,
        "verdict": found.verdict.cause.value,
        "action": found.verdict.action.value,
        "count": len(found.letters) + window.assigned.get(found.id, 0),
        "first_at": found.episode.since,
        "last_at": found.episode.until,
        "ended_at": found.episode.ended_at,
        "topics": json.dumps(found.topics, separators=(",", ":")),
        "member": found.verdict.member,
        "feature": found.verdict.feature,
        "evidence": json.dumps(evidence, separators=(",", ":")),
    }


DEAD_LETTERS = Derivation(
    name="dead_letters",
    sources=(_DISPOSITIONS, _EVENTS),
    results=(_CLUSTERS, _LETTERS),
    derive=_derive,
    hourly=True,
    urgent=(_EVENTS,),
)
