"""Makes a replay plan: checks its targets, scans the source topics, and writes the plan's tables.

The records of a plan are written before the plan itself: a plan that can be found is whole. What may refuse a plan is
checked before the scan, which can take long; only what is parked is known after it, and so who reads the parking topic.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaException
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headgate.base.errors import ClusterError, PlatformError, UsageError
from headgate.base.locations import Location
from headgate.config import Config
from headgate.config.values import GroupPatterns
from headgate.dead_letters.model.plans import (
    MOST_REASONS,
    NOT_REPLAYABLE,
    ORIGINAL,
    PLANNABLE,
    UNIDENTIFIED,
    WHERE_COLUMNS,
    PlanNotFoundError,
    ReplayPlan,
    ReplayRefusedError,
    ReplayRules,
    other_readers,
)
from headgate.dead_letters.model.where import parse_where
from headgate.dead_letters.plan_store import kept_request
from headgate.facts.plan_requests import PlanRequested
from headgate.kafka.topics import TopicAdmin, reason
from headgate.pipeline.derived.source_tables import SourceTables, all_files, read_rows
from headgate.pipeline.queries import java_client_options
from headgate.pipeline.replay_plans import (
    PlanSelection,
    PlanSettings,
    build_plan,
    find_superseded,
    select_letters,
    where_column,
    with_replayed_ids,
    with_source_ids,
)
from headgate.tables.definitions import table_named
from headgate.tables.reader import Condition, Now, TableReader
from headgate.tables.writer import TableWriter

_CALL_S: Final = 30.0
_SCAN_SCHEMA: Final = "topic string, partition int, offset bigint, key binary"
_SHOWN_GROUPS: Final = 10
# The rows of a plan pass through this process, which is the pipeline's; so many are written at once.
MOST_LETTERS: Final = 1_000_000
PART_ROWS: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What an operator asks for; `asked` is kept with the plan, `topics` are patterns."""

    plan: str
    at: int
    by: str
    to: str
    selection: PlanSelection
    asked: Mapping[str, str]
    topics: tuple[str, ...] | None = None
    accept_fanout: bool = False
    include_superseded: bool = False


def plan_request_of(asked: PlanRequested, *, plan: str, at: int, cluster_id: str) -> PlanRequest:
    """What to make of a request; `UsageError` when it cannot be made at all."""
    if asked.since is not None and asked.until is not None and asked.since >= asked.until:
        raise UsageError("--since must be before --until")
    where = None if asked.where is None else parse_where(asked.where, WHERE_COLUMNS)
    return PlanRequest(
        plan=plan,
        at=at,
        by=asked.by,
        to=asked.to,
        selection=PlanSelection(
            cluster_id=cluster_id,
            group=asked.group,
            dlq_topic=asked.dlq_topic,
            where=where,
            since=asked.since,
            until=asked.until,
            episode=asked.episode,
        ),
        asked=kept_request(asked),
        topics=asked.topics,
        accept_fanout="accept_fanout" in asked.options,
        include_superseded="include_superseded" in asked.options,
    )


@dataclass(frozen=True, slots=True)
class _SourcePartition:
    topic: str
    topic_id: str
    partition: int
    first: int


class PlanMaker:
    """Makes plans in one Spark session; `tell` is called with each step."""

    def __init__(self, config: Config, session: SparkSession, admin: TopicAdmin, tell: Callable[[str], None]) -> None:
        self._config = config
        self._session = session
        self._admin = admin
        self._tell = tell

    def make(self, request: PlanRequest) -> ReplayPlan:
        """Write the plan and return it; nothing is written when it is refused."""
        if request.to != ORIGINAL:
            self._refuse([request.to])
        names = ("dead_letters", "replay_audit")
        versions = SourceTables(self._config.tables.path).versions(names)
        if "dead_letters" not in versions:
            raise PlatformError(
                f"{self._config.tables.path} has no table dead_letters: run `headgate pipeline run --config FILE` first"
            )
        letters, audit = (read_rows(self._session, name, all_files(versions.get(name))) for name in names)
        letters = with_replayed_ids(letters)
        audit = audit.where(sf.col("cluster_id") == request.selection.cluster_id)
        selected = select_letters(letters, request.selection).persist()
        try:
            chosen = selected if request.topics is None else _of_topics(selected, request.topics)
            return self._make(request, letters, audit, chosen)
        except PySparkException as failure:
            first = next(iter(str(failure).splitlines()), type(failure).__name__)
            raise ClusterError(f"the plan could not be made: {first}") from None
        finally:
            selected.unpersist()

    def _make(self, request: PlanRequest, letters: DataFrame, audit: DataFrame, chosen: DataFrame) -> ReplayPlan:
        plannable = where_column(PLANNABLE)
        group = _only_group(chosen, chosen.where(plannable))
        check_number(chosen.count())
        topics = {row[0] for row in chosen.where(plannable).select("topic").distinct().collect()}
        ids = self._admin.ids(topics, timeout_s=_CALL_S)
        of_group = letters.where((sf.col("cluster_id") == request.selection.cluster_id) & (sf.col("group") == group))
        chosen, of_group, audit = (
            with_source_ids(rows, ids) for rows in (chosen.where(sf.col("group") == group), of_group, audit)
        )
        sources = [
            _SourcePartition(*row)
            for row in chosen.where(plannable)
            .groupBy("topic", "source_id", "partition")
            .agg(sf.min("offset"))
            .collect()
        ]
        dlq_topics = {row[0] for row in of_group.select("dlq_topic").distinct().collect()}
        targets, partitions = self._targets(request, topics, dlq_topics)
        replay_targets = topics if request.to == ORIGINAL else {request.to}
        readers = self._readers(request, group, replay_targets)
        scan = self._scan([one for one in sources if ids.get(one.topic) == one.topic_id])
        self._tell("looking for later records of the same keys")
        is_current = sf.struct("topic", "source_id").isin(*_pairs(ids)) if ids else sf.expr("false")
        superseded = find_superseded(chosen.where(plannable & is_current), of_group.where(is_current), scan, audit)
        settings = PlanSettings(
            plan=request.plan,
            to=request.to,
            partitions=partitions,
            ids=ids,
            max_replays=self._config.replay.max_replays,
            parking_topic=self._config.replay.parking_topic,
            include_superseded=request.include_superseded,
        )
        rows = build_plan(chosen, superseded, audit, settings).toArrow()
        parking = {topic for topic in rows["target_topic"].unique().to_pylist() if topic is not None} - replay_targets
        readers = tuple(sorted({*readers, *self._readers(request, group, parking)}))
        plan = _plan_of(request, group, targets, readers, rows)
        write_plan(self._config.tables.path, plan, request.asked, rows)
        return plan

    def _targets(
        self, request: PlanRequest, sources: Collection[str], dlq_topics: Collection[str]
    ) -> tuple[dict[str, str], dict[str, int]]:
        """The ids of the topics that may be written to, and their numbers of partitions."""
        wanted = sorted(sources) if request.to == ORIGINAL else [request.to]
        self._refuse(wanted, dlq_topics)
        if self._config.replay.parking_topic is not None:
            wanted.append(self._config.replay.parking_topic)
        ids = self._admin.ids(wanted, timeout_s=_CALL_S)
        absent = [topic for topic in wanted if topic not in ids]
        if absent:
            raise ReplayRefusedError(
                f"the topic {absent[0]} does not exist, or the service account may not describe it"
            )
        try:
            partitions = {topic: len(self._admin.partitions(topic, timeout_s=_CALL_S)) for topic in wanted}
        except KafkaException as failure:
            raise ClusterError(f"the partitions of the targets cannot be read: {reason(failure)}") from None
        return ids, partitions

    def _refuse(self, targets: Collection[str], dlq_topics: Collection[str] = ()) -> None:
        replay = self._config.replay
        rules = ReplayRules(
            topics=replay.topics,
            dlq_prefix=self._config.share_groups.dlq_prefix,
            facts_prefix=self._config.facts.prefix,
            dlq_topics=dlq_topics,
            parking_topic=replay.parking_topic,
        )
        refusals = [*map(rules.target_refusal, targets), rules.parking_refusal()]
        refused = [one for one in refusals if one is not None]
        if refused:
            raise ReplayRefusedError("\n".join(refused))

    def _readers(self, request: PlanRequest, group: str, targets: Collection[str]) -> tuple[str, ...]:
        """The other readers of these targets; a `ReplayRefusedError` when there are any and that is not accepted."""
        if not targets:
            return ()
        table = table_named("lineage_edges")
        reader = TableReader(self._config.tables.path)
        try:
            edges: list[dict[str, Any]] | None = []
            for topic in targets:
                where = [Condition("topic", "=", topic), Condition("cluster_id", "=", request.selection.cluster_id)]
                found = reader.stream(table, where=where, as_of=Now())
                edges = None if found is None or edges is None else [*edges, *found]
        finally:
            reader.close()
        readers = other_readers(edges, group)
        if readers and not request.accept_fanout:
            listed = "\n".join(f"  {one}" for one in readers)
            raise ReplayRefusedError(
                f"others read {', '.join(sorted(targets))} too, and would get the replayed records again:\n{listed}\n"
                "use --accept-fanout if they can take records twice, or replay to a topic that only the group reads"
            )
        return readers

    def _scan(self, sources: Sequence[_SourcePartition]) -> DataFrame:
        """The records of the sources from the first dead letter of each partition to the end that it has now."""
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for one in sources:
            try:
                first, end = self._admin.bounds(one.topic, [one.partition], timeout_s=_CALL_S)[one.partition]
            except KafkaException as failure:
                raise ClusterError(f"the offsets of {one.topic} cannot be read: {reason(failure)}") from None
            if max(first, one.first) < end:
                starts.setdefault(one.topic, {})[str(one.partition)] = max(first, one.first)
                ends.setdefault(one.topic, {})[str(one.partition)] = end
        if not starts:
            return self._session.createDataFrame([], _SCAN_SCHEMA)
        number = sum(ends[topic][part] - start for topic, parts in starts.items() for part, start in parts.items())
        self._tell(f"scanning {number} records of {', '.join(starts)}")
        options = {
            "assign": json.dumps({topic: [int(part) for part in parts] for topic, parts in starts.items()}),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            "failOnDataLoss": "false",
            "kafka.isolation.level": "read_committed",
            "groupIdPrefix": "headgate-pipeline",
            **{f"kafka.{name}": value for name, value in java_client_options(self._config.upstream).items()},
        }
        return (
            self._session.read.format("kafka").options(**options).load().select("topic", "partition", "offset", "key")
        )


def write_plan(root: Location, plan: ReplayPlan, asked: Mapping[str, str], rows: pa.Table) -> None:
    """Write the records of a plan in parts, and then the plan."""
    head = {name: getattr(plan, name) for name in ReplayPlan.__dataclass_fields__} | {
        "selection": json.dumps(asked),
        "targets": json.dumps(plan.targets),
        "reasons": json.dumps(plan.reasons),
        "readers": json.dumps(plan.readers),
    }
    heads = pa.Table.from_pylist([head], schema=table_named("replay_plans").columns)
    for name, batch in (("replay_plan_records", rows), ("replay_plans", heads)):
        writer = TableWriter(root, table_named(name))
        try:
            for begin in range(0, max(batch.num_rows, 1), PART_ROWS):
                is_last = begin + PART_ROWS >= batch.num_rows
                writer.upsert(batch.slice(begin, PART_ROWS), query=f"plan-{plan.plan}", batch=0, last=is_last)
        finally:
            writer.close()


def check_number(letters: int) -> None:
    """`UsageError` when these are too many dead letters for one plan."""
    if letters > MOST_LETTERS:
        raise UsageError(
            f"{letters} dead letters are selected, and a plan has at most {MOST_LETTERS}: select fewer with --where, "
            "--since and --until, and make a plan for each part"
        )


def _of_topics(chosen: DataFrame, patterns: tuple[str, ...]) -> DataFrame:
    """The dead letters of topics that one of the patterns matches."""
    shown = GroupPatterns(allow=patterns)
    named = chosen.where(sf.col("topic").isNotNull())
    names = [row[0] for row in named.select("topic").distinct().collect() if shown.matches(row[0])]
    return chosen.where(sf.col("topic").isin(names) if names else sf.expr("false"))


def _only_group(chosen: DataFrame, plannable: DataFrame) -> str:
    """The group of all chosen dead letters that can be planned: a replay is fenced by its group, so a plan has one."""
    groups: list[str] = sorted(row[0] for row in plannable.select("group").distinct().collect())
    if not groups:
        number = chosen.count()
        if not number:
            raise PlanNotFoundError("no dead letter is selected: check --group, --topic, --where and the times")
        raise PlanNotFoundError(
            f"none of the {number} selected dead letters can be replayed: they do not identify their record by its "
            "topic and the id of that topic, and have no copy of it"
        )
    if len(groups) > 1:
        shown = ", ".join(groups[:_SHOWN_GROUPS])
        raise UsageError(f"the dead letters are of {len(groups)} groups: make a plan for each, with --group: {shown}")
    return groups[0]


def _pairs(ids: Mapping[str, str]) -> list[Any]:
    return [
        sf.struct(sf.lit(topic).alias("topic"), sf.lit(topic_id).alias("topic_id")) for topic, topic_id in ids.items()
    ]


def _plan_of(
    request: PlanRequest, group: str, targets: Mapping[str, str], readers: tuple[str, ...], rows: pa.Table
) -> ReplayPlan:
    written = Counter[str]()
    left_out = Counter[str]()
    reasons = Counter[str]()
    oldest: int | None = None
    used: set[str] = set()
    columns = [rows[name].to_pylist() for name in ("action", "why", "reason", "target_topic", "source_at")]
    for action, why, words, target, source_at in zip(*columns, strict=True):
        if action == "leave_out":
            left_out[why] += 1
            continue
        written[action] += 1
        used.add(target)
        reasons[words or "unknown"] += 1
        oldest = source_at if oldest is None else min(oldest, oldest if source_at is None else source_at)
    return ReplayPlan(
        cluster_id=request.selection.cluster_id,
        plan=request.plan,
        at=request.at,
        by=request.by,
        group=group,
        to=request.to,
        targets={topic: topic_id for topic, topic_id in targets.items() if topic in used},
        records=written["replay"],
        parked=written["park"],
        expired=left_out[NOT_REPLAYABLE] + left_out[UNIDENTIFIED],
        superseded=left_out["superseded"],
        already_replayed=left_out["already_replayed"],
        over_max_replays=left_out["over_max_replays"],
        reasons=dict(reasons.most_common(MOST_REASONS)),
        readers=readers,
        oldest_at=oldest,
    )
