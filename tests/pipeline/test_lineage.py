"""Random histories of use and descriptions: the derived tables say what a plain program says, killed or not."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headgate.lineage.estate import Estate
from headgate.pipeline.derived.gaps import LINEAGE_GAPS, mismatch_gaps, with_coverage
from headgate.pipeline.derived.impact import IMPACT_OF_TOPICS
from headgate.pipeline.derived.lineage import LINEAGE
from headgate.share_groups.model.group_configs import DLQ_TOPIC
from tests.pipeline import lineage_oracle as oracle
from tests.pipeline.lineage_scene import DAY, HOUR, NOW, LineageScene, Row

QUIET = 7 * DAY
ACTORS = (
    ("streams", "app"),
    ("streams", "free"),
    ("streams", "part"),
    ("spark", "free"),
    ("client", "shop"),
    ("connector", "src"),
    ("share_group", "sg"),
)
TOPICS = ("orders", "totals", "other", "app-count-changelog", "free-x-repartition", None)
DERIVATIONS = (LINEAGE, LINEAGE_GAPS, IMPACT_OF_TOPICS)
RESULTS = tuple(result for one in DERIVATIONS for result in one.results)


class History:
    """Facts of one estate, drawn with a seed."""

    def __init__(self, scene: LineageScene, seed: int) -> None:
        self._scene = scene
        self._random = random.Random(seed)
        self.intervals: list[Row] = []
        self.descriptions: list[Row] = []
        self.events: list[Row] = []
        self.rates: list[Row] = []
        self._seq = 0

    def _interval(self, until: int, length: int, **values: Any) -> Row:
        draw, self._seq = self._random, self._seq + 1
        kind, actor = draw.choice(ACTORS)
        row: Row = {
            "cluster_id": draw.choice("ccd"),
            "writer": draw.choice(("gw-a/0", "gw-b/0")),
            "boot": "b",
            "seq": self._seq,
            "actor_kind": kind,
            "actor": actor,
            "rule": draw.choice(("principal", "other")),
            "topic": draw.choice(TOPICS),
            "topic_id": draw.choice((None, "id-1", "id-2")),
            "direction": draw.choice(("read", "write")),
            "since": until - length,
            "until": until,
            "bytes": draw.choice((0, 7, 1_000_003, 2**62)),
            "records": draw.choice((None, 0, 5, 1001)),
            "principal": draw.choice((None, "User:a")),
            "client_id": draw.choice((None, "x")),
            "software": draw.choice((None, "java")),
            "software_version": "4.3",
            "host": "h",
        }
        return row | values

    def _growth(self, until: int) -> Row:
        records = self._random.choice((1000, 5000))
        until -= until % HOUR
        values = {"actor_kind": "unattributed", "actor": "unattributed", "rule": "end-offsets", "direction": "write"}
        return self._interval(until, 300_000, bytes=0, records=records, **values)

    def use(self, first: int, last: int, count: int) -> None:
        """Uses between two times before now, in hours, and the growth of topics."""
        draw, now = self._random, self._scene.clock.now_ms
        rows = []
        for _ in range(count):
            until = now - draw.randrange(first * HOUR, last * HOUR + 1)
            length = draw.choice((0, 1, 60_000, 900_000, 3 * HOUR, -5, 40 * DAY))
            rows += [self._interval(until, length), self._growth(until)]
        rows.append(self._interval(2**63 - 1, draw.choice((1, 2**63 - 1))))  # a clock that is far off
        rows.append(self._interval(now, -10 * DAY))
        self._add(rows)

    def batch_job(
        self, every: int, runs: int, *, topic: str, kind: str = "client", actor: str = "job", direction: str = "write"
    ) -> None:
        """Runs of a job after regular pauses, the last of them before now."""
        now = self._scene.clock.now_ms
        edge = {"cluster_id": "c", "actor_kind": kind, "actor": actor, "topic": topic, "direction": direction}
        self._add([self._interval(now - number * every * DAY - HOUR, HOUR, **edge) for number in range(1, runs + 1)])

    def _add(self, rows: list[Row]) -> None:
        copies = self._random.sample(rows, len(rows) // 4)
        if self.intervals:
            copies += self._random.sample(self.intervals, min(5, len(self.intervals)))
        self.intervals += rows
        self._scene.append("activity_intervals", [*rows, *copies])

    def configure(self, group: str, at: int, changes: dict[str, str | None], event: str = "config_changed") -> None:
        self._seq += 1
        row: Row = {"cluster_id": "c", "event_id": f"e{self._seq}", "group": group, "event": event, "at": at}
        self.events.append(row | {"detail": json.dumps({"changes": changes})})
        self._scene.upsert("breaker_events", self.events)

    def dead_letters(self, group: str, at: int, *counts: int) -> None:
        """So many dead letters of one topic each, in the hour of a time."""
        hour = at - at % HOUR
        known: Row = {"cluster_id": "c", "group": group, "hour": hour, "accepted": 7}
        rows = [known | {"topic": f"t{number}", "dead_lettered": count} for number, count in enumerate(counts)]
        self.rates += rows
        self._scene.upsert("dlq_rates_hourly", rows)

    def describe(self, app: str, kind: str, at: int, ended_at: int | None, digest: str) -> None:
        """A version that reads orders and an internal topic; that of `free` reads by a pattern, and chooses topics."""
        is_open = app == "free"
        provenance = "assignment" if app == "part" else "pushed"
        version = {"cluster_id": "c", "app_id": app, "incarnation": "i", "hash": digest, "provenance": provenance}
        internal = "x-repartition"
        named = {"topic_id": "id-9", "is_internal": False}
        edges: list[Row] = [
            {"from_kind": "topic", "from_node": "orders", "to_kind": "source", "to_node": "s"} | named,
            {"from_kind": "topic", "from_node": internal, "to_kind": "source", "to_node": "s", "is_internal": True},
            {"from_kind": "source", "from_node": "s", "to_kind": "sink", "to_node": "k"},
        ]
        written = [] if is_open else [("totals" if digest == "1" else "other", False)]
        edges += [{"from_kind": "sink", "from_node": "k", "to_kind": "topic", "to_node": one} for one, _ in written]
        nodes = [
            {"kind": "source", "node": "s", "pattern": "o.*" if is_open else None},
            {"kind": "sink", "node": "k", "pattern": None},
        ]
        period = {"valid_from": at, "valid_to": ended_at, "at": at, "ended_at": ended_at}
        self._scene.upsert("topology_edges", [version | row for row in edges])
        pairs = [("orders", one) for one, _ in written] or [("orders", ""), ("", "totals")]
        io = [{"component": "0", "in_topic": one, "out_topic": other} for one, other in pairs]
        self._scene.upsert("app_io", [version | period | row for row in io])
        self._scene.upsert("topology_nodes", [version | row for row in nodes])
        self._scene.upsert("applications", [version | {"kind": kind} | period])
        known = {"app_id": app, "kind": kind, "at": at}
        self.descriptions = [one for one in self.descriptions if not known.items() <= one.items()]
        self.descriptions.append(
            {
                **known,
                "cluster_id": "c",
                "ended_at": ended_at,
                "read": [("orders", False), (internal, True)],
                "write": written,
                "read_open": is_open,
                "write_open": is_open,
                "is_partial": provenance == "assignment",
            }
        )


def check(scene: LineageScene, history: History) -> None:
    names = ("first_seen", "last_seen", "bytes", "records", "topic_id")
    stored = {key: {name: row[name] for name in names} for key, row in scene.rows("activity_hours").items()}
    assert stored == oracle.hours(history.intervals)
    covered = {
        key: (row["seen_records"], row["all_records"], row["coverage"])
        for key, row in scene.rows("topic_coverage").items()
    }
    assert covered == oracle.coverage(history.intervals)
    clients = {key[:-1]: (row["first_seen"], row["last_seen"]) for key, row in scene.rows("client_identities").items()}
    assert clients == oracle.identities(history.intervals)
    letters = oracle.dead_letters(history.events, history.rates)
    expected = oracle.edges(history.intervals, history.descriptions, letters, scene.clock.now_ms, QUIET)
    found = scene.rows("lineage_edges")
    columns = next(iter(expected.values())).keys()
    assert {key: {name: row[name] for name in columns} for key, row in found.items()} == expected
    assert any(row["filled"] for row in found.values())
    check_gaps(scene, history)
    check_impact(scene)


def check_gaps(scene: LineageScene, history: History) -> None:
    edges, covered = scene.rows("lineage_edges"), scene.rows("topic_coverage")
    expected = oracle.gaps(edges, covered, history.descriptions, scene.clock.now_ms, QUIET)
    found = scene.rows("lineage_gaps")
    names = ("closed_at", "coverage", "state")
    assert {key: {name: row[name] for name in names} for key, row in found.items()} == expected
    assert {key[1] for key in found} == {"declared_silent", "used_undeclared"}


def check_impact(scene: LineageScene) -> None:
    """As `headgate lineage impact` walks the graph."""
    found = scene.rows("impact_summary")
    for cluster in "cd":
        estate = Estate(scene.root, cluster=cluster)
        graph = estate.graph()
        estate.close()
        assert {key[1] for key in found if key[0] == cluster} == set(graph.topics)
        for topic in graph.topics:
            row, down, up = (
                found[cluster, topic],
                graph.closure(topic, "down", limit=0),
                graph.closure(topic, "up", limit=0),
            )
            assert (row["downstream_topics"], row["downstream_apps"], row["depth_down"]) == (
                down.topics,
                down.actors,
                down.depth,
            )
            assert (row["upstream_topics"], row["upstream_apps"], row["depth_up"]) == (up.topics, up.actors, up.depth)


def test_histories_are_what_a_plain_program_says(spark: SparkSession, tmp_path: Path) -> None:
    scene = LineageScene(spark, tmp_path, DERIVATIONS)
    history = History(scene, 18)
    history.describe("app", "streams", NOW - 20 * DAY, None, "1")
    history.describe("free", "streams", NOW - 30 * DAY, NOW - 2 * DAY, "1")
    history.describe("part", "streams", NOW - 12 * DAY, None, "1")
    history.describe("named", "spark", NOW - 12 * DAY, None, "1")
    history.describe("unnamed", "spark", NOW - 12 * DAY, None, "1")
    history.batch_job(2, 3, kind="spark", actor="named", topic="other", direction="read")
    history.batch_job(2, 3, kind="spark", actor="unnamed", topic="totals", direction="write")
    history.use(0, 24 * 40, 150)
    history.batch_job(9, 5, topic="daily")
    history.batch_job(30, 3, topic="monthly")
    history.configure("sg", NOW - 12 * DAY - 5, {DLQ_TOPIC: " dlq.a ", "other": "1"})
    history.configure("sg", NOW - 11 * DAY, {"other": None})
    history.configure("blank", NOW - DAY, {DLQ_TOPIC: ""})
    history.configure("quiet", NOW - DAY, {DLQ_TOPIC: "dlq.quiet"})
    history.configure("sg", NOW - DAY, {DLQ_TOPIC: "no"}, "paused")
    history.dead_letters("sg", NOW - 13 * DAY, 4)  # before the topic was configured
    history.dead_letters("sg", NOW - 12 * DAY, 4, 5)
    history.dead_letters("sg", NOW - HOUR, 6)
    history.dead_letters("quiet", NOW - HOUR, 0)
    history.dead_letters("unknown", NOW - HOUR, 9)
    assert not scene.derive(kill_after=3)
    assert scene.derive()
    moments = len(scene.moments)
    assert moments >= 8, "each table, before and after"
    check(scene, history)
    versions = scene.versions()
    scene.start()
    assert scene.derive()
    assert scene.versions() == versions, "nothing new is no commit"

    scene.clock.now_ms += HOUR // 2
    history.use(0, 1, 20)  # most of it continues
    for kill_after in (4, 8):  # after some tables, and between the two parts of the edges
        assert not scene.derive(kill_after=kill_after)
    assert scene.derive()
    check(scene, history)

    scene.clock.now_ms += 3 * DAY
    history.describe("app", "streams", NOW - 20 * DAY, NOW + DAY, "1")
    history.describe("app", "streams", NOW + DAY, None, "2")
    history.describe("free", "spark", NOW - 35 * DAY, None, "2")
    history.configure("sg", NOW + 2 * DAY + 9, {DLQ_TOPIC: "dlq.b"})
    history.configure("quiet", NOW + 2 * DAY, {DLQ_TOPIC: None})
    history.dead_letters("sg", NOW + 2 * DAY, 3)  # in the hour of the change
    history.use(0, 24 * 30, 30)  # late ones too
    assert scene.derive()
    check(scene, history)

    to_dead_letters = {key[3]: row for key, row in scene.rows("lineage_edges").items() if key[3].startswith("dlq.")}
    states = {topic: (row["declared"], row["observed"]) for topic, row in to_dead_letters.items()}
    assert states == {"dlq.a": (False, True), "dlq.b": (True, True), "dlq.quiet": (True, False)}, "the last row of each"

    scene.clock.now_ms += 8 * DAY  # no use, and edges close
    assert scene.derive()
    check(scene, history)
    gaps_of_spark = {key[1:6] for key in scene.rows("lineage_gaps") if key[2] == "spark"}
    assert gaps_of_spark == {
        ("declared_silent", "spark", "free", "orders", "read"),
        ("declared_silent", "spark", "named", "orders", "read"),
        ("used_undeclared", "spark", "named", "other", "read"),
    }, "reads of queries that were seen by their names"
    before = {name: scene.rows(name) for name in RESULTS}
    scene.rebuild(LINEAGE)
    assert {name: scene.rows(name) for name in RESULTS} == before


def test_a_gap_is_unknown_below_95_percent_of_the_records_in_the_hours_of_its_window(spark: SparkSession) -> None:
    """Quiet is two hours, so that the window of a gap is the last two hours of it, from a full hour on."""
    many = 10**6
    cases: dict[str, tuple[int, int | None, dict[int, tuple[int, int, bool]]]] = {
        # When it opened and closed, and hours with seen and all records and whether they are counted: before now.
        "below": (-9 * HOUR, None, {-1: (9_499, 10_000, True)}),
        "at": (-9 * HOUR, None, {-1: (9_500, 10_000, True)}),
        "closed": (-9 * HOUR, 0, {-1: (9_500, 10_000, True)}),
        "the hours together": (-9 * HOUR, None, {-2: (9_000, 10_000, True), -1: (10_000, 10_000, True)}),
        "not more than all": (-9 * HOUR, None, {-2: (20_000, 10_000, True), -1: (8_999, 10_000, True)}),
        "the last two hours": (-9 * HOUR, None, {-3: (0, many, True), -2: (95, 100, True), 0: (0, many, True)}),
        "until it closed": (-9 * HOUR, -HOUR, {-4: (0, many, True), -3: (95, 100, True), -1: (0, many, True)}),
        "from a full hour": (1 - HOUR, None, {-2: (0, many, True), -1: (95, 100, True)}),
        "uncounted and enough": (-9 * HOUR, None, {-1: (95, 100, False)}),
        "uncounted": (-9 * HOUR, None, {-1: (94, 100, False)}),
        "no records": (-9 * HOUR, None, {-1: (0, 0, True)}),
    }
    edge = {"cluster_id": "c", "actor_kind": "streams", "app_id": "a", "direction": "write", "kind": "declared_silent"}
    gaps = [
        {**edge, "topic": topic, "opened_at": NOW + opened, "closed_at": None if closed is None else NOW + closed}
        for topic, (opened, closed, _) in cases.items()
    ]
    hours = [
        {"cluster_id": "c", "topic": topic, "hour": NOW + hour * HOUR, "seen_records": seen, "all_records": every}
        | {"coverage": 0.5 if is_counted else None}
        for topic, (_, _, found) in cases.items()
        for hour, (seen, every, is_counted) in found.items()
    ]
    found_gaps, coverage = (spark.createDataFrame(pa.Table.from_pylist(rows)) for rows in (gaps, hours))
    found = with_coverage(found_gaps, coverage, NOW, 2 * HOUR).toArrow().to_pylist()
    assert {row["topic"]: (row["coverage"], row["state"]) for row in found} == {
        "below": (0.9499, "unknown"),
        "at": (0.95, "open"),
        "closed": (0.95, "closed"),
        "the hours together": (0.95, "open"),
        "not more than all": (0.94995, "unknown"),
        "the last two hours": (0.95, "open"),
        "until it closed": (0.95, "closed"),
        "from a full hour": (0.95, "open"),
        "uncounted and enough": (0.95, "open"),
        "uncounted": (None, "unknown"),
        "no records": (None, "unknown"),
    }


def test_a_mismatch_is_a_gap_until_it_ends(spark: SparkSession) -> None:
    def event(number: int, subject: str, at: int, **detail: object) -> Row:
        row: Row = {"cluster_id": "c", "event": "topology_mismatch", "subject_kind": "application"}
        return row | {"event_id": str(number), "subject": subject, "at": at, "detail": json.dumps(detail)}

    events = [
        event(1, "a", 10, state="open", mismatch="m1", kind="refused", topology_count=2),
        event(2, "a", 15, state="open", mismatch="m1", kind="assignment", topology_count=3),
        event(3, "a", 30, state="ended", mismatch="m1"),
        event(4, "a", 40, state="open", mismatch="m2", kind="description", topology_count=2),
        event(5, "b", 50, state="ended", mismatch="m3"),  # its beginning is not retained
        event(6, "b", 60, state="open", mismatch="m4"),
        event(7, "b", 60, state="open", mismatch="m5", topology_count="many"),  # of another worker
        event(8, "b", 70, state="ended", mismatch="m5"),
        event(9, "b", 80, state="open", mismatch="m6") | {"event": "tripped"},
    ]
    found = mismatch_gaps(spark.createDataFrame(pa.Table.from_pylist(events))).toArrow().to_pylist()
    columns = ("app_id", "opened_at", "closed_at", "state", "topic", "direction")
    assert sorted(tuple(row[name] for name in columns) for row in found) == [
        ("a", 10, 30, "closed", "", ""),
        ("a", 40, None, "open", "", ""),
        ("b", 60, None, "open", "", ""),
    ]
    assert {row["detail"] for row in found if row["app_id"] == "a"} == {
        '{"kind":"assignment","topology_count":3}',
        '{"kind":"description","topology_count":2}',
    }
