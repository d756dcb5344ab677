"""Derivations: when they run, from which versions, and that one that is killed is repaired by the next run."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headgate.base.errors import PlatformError, UsageError
from headgate.config import load
from headgate.pipeline.batches import Moment, TableWriters
from headgate.pipeline.derived.causes import CAUSES
from headgate.pipeline.derived.derivation import Derivation, DerivedContext, DerivedRun
from headgate.pipeline.derived.derived_runner import DerivedTables
from headgate.pipeline.derived.lineage import irregular_edges
from headgate.pipeline.derived.registry import check_order
from headgate.pipeline.derived.source_tables import SourceTables, changed_files, has_value
from headgate.pipeline.derived.trip_causes import TRIPPED
from headgate.pipeline.run_log import PipelineHealth, RunLog
from headgate.tables.definitions import TABLES, table_named
from headgate.tables.files import read_file, remove_file
from headgate.tables.reader import TableReader
from headgate.tables.writer import TableWriter
from tests.support.clock import FakeClock

HOUR = 3_600_000
SOURCE, RESULTS = "applications", ("impact_summary", "topic_coverage")


class NoSession:
    """Stands for Spark: these derivations read the tables themselves."""

    def newSession(self) -> "NoSession":  # noqa: N802 - as Spark's
        return self


def whole_row(name: str, **values: object) -> dict[str, object]:
    empty = {pa.string(): "", pa.bool_(): False}
    columns = TABLES[name].columns
    return {one.name: None if one.nullable else empty.get(one.type, 0) for one in columns} | values


class FailingExporter:
    """Sends to a catalogue that is away while `problem` is set."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self.failure: type[Exception] = PlatformError
        self.clusters: list[str] = []

    def export(self, cluster: str, stop: Event) -> int:  # noqa: ARG002
        if self.problem is not None:
            raise self.failure(self.problem)
        self.clusters.append(cluster)
        return len(self.clusters)


class Scene:
    """Tables in a folder, and a derivation that has a row for each application in each of its results."""

    def __init__(self, root: Path, *, hourly: bool = False, daily: bool = False) -> None:
        self.root = root
        self.exporter: FailingExporter | None = None
        self.clock = FakeClock(5 * HOUR)
        self.runs: list[DerivedRun] = []
        self.killed_at: tuple[Moment, str] | None = None
        self.derivation = Derivation(
            name="d", sources=(SOURCE, "changes"), results=RESULTS, derive=self.derive, hourly=hourly, daily=daily
        )
        self.start()

    def start(self) -> None:
        """As a new process."""
        self.writers = TableWriters(self.root)
        config = load(None, {}, {"tables.path": str(self.root)})
        session = cast("SparkSession", NoSession())
        context = DerivedContext(config=config, session=session, writers=self.writers, on_moment=self.on_moment)
        self.log = RunLog(self.writers, self.clock, PipelineHealth())
        self.tables = DerivedTables((self.derivation,), context, self.clock, self.log, self.exporter)

    def on_moment(self, moment: Moment, table: str) -> None:
        if (moment, table) == self.killed_at:
            raise PlatformError("killed")

    def derive(self, run: DerivedRun) -> None:
        self.runs.append(run)
        apps = [row["app_id"] for row in self.rows(SOURCE)]
        for name in RESULTS:
            rows = [whole_row(name, cluster_id="c", topic=app) for app in apps]
            run.replace(name, pa.Table.from_pylist(rows, TABLES[name].columns))

    def add_app(self, name: str, table: str = SOURCE) -> None:
        key = "app_id" if table == SOURCE else "event_id"
        rows = [whole_row(table, cluster_id="c", **{key: name})]
        with self.writers.writer(table) as writer:
            found = pa.Table.from_pylist(rows, TABLES[table].columns)
            writer.upsert(found, query="facts", batch=(writer.version() or 0) + 1)

    def rows(self, name: str) -> list[dict[str, Any]]:
        return list(TableReader(self.root).rows(table_named(name)).rows)

    def topics(self) -> dict[str, list[str]]:
        return {name: [row["topic"] for row in self.rows(name)] for name in RESULTS}

    def run(self) -> bool:
        return self.tables.run_once("c", Event())


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_derivation_runs_when_a_source_has_changed_and_only_then(scene: Scene) -> None:
    assert scene.run()
    assert not scene.runs, "there is no source yet"
    scene.add_app("a")
    scene.run()
    assert scene.topics() == {name: ["a"] for name in RESULTS}
    assert scene.runs[0].is_full
    scene.run()
    scene.start()
    scene.run()
    assert len(scene.runs) == 1, "the commit says from which versions the results were made"
    scene.add_app("b")
    scene.start()
    scene.run()
    assert scene.topics() == {name: ["a", "b"] for name in RESULTS}
    assert not scene.runs[1].is_full
    assert scene.runs[1].has_changed(SOURCE)


def test_a_source_that_comes_later_has_changed(scene: Scene) -> None:
    scene.add_app("a")
    scene.run()
    scene.add_app("e", "changes")
    scene.run()
    assert [run.has_changed("changes") for run in scene.runs] == [False, True]
    assert not scene.runs[1].has_changed(SOURCE)
    assert scene.runs[1].changed_rows("changes") is None, "all of it has to be read"


@pytest.mark.parametrize("hourly", [False, True])
def test_an_hourly_derivation_runs_again_in_the_next_hour(tmp_path: Path, *, hourly: bool) -> None:
    scene = Scene(tmp_path, hourly=hourly)
    scene.add_app("a")
    scene.run()
    scene.clock.now_ms += HOUR - 1
    scene.run()
    assert len(scene.runs) == 1
    scene.clock.now_ms += 1
    scene.run()
    assert len(scene.runs) == (2 if hourly else 1)


@pytest.mark.parametrize("table", RESULTS)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("restart", [False, True])
def test_a_derivation_that_is_killed_is_repaired(
    scene: Scene, table: str, moment: Moment, capsys: pytest.CaptureFixture[str], *, restart: bool
) -> None:
    scene.add_app("a")
    scene.run()
    scene.add_app("b")
    scene.killed_at = moment, table
    assert not scene.run()
    assert "derived d: killed" in capsys.readouterr().err
    assert scene.log.health.problems() == {"derived d": "derived d: killed"}
    scene.killed_at = None
    if restart:
        scene.start()
    assert scene.run()
    assert scene.topics() == {name: ["a", "b"] for name in RESULTS}
    assert scene.log.health.problems() == {}


def test_what_a_derivation_had_to_leave_out_is_a_problem_until_a_run_without_it(scene: Scene) -> None:
    derive, left_out = scene.derive, ["the topic x cannot be read"]

    def some(run: DerivedRun) -> None:
        derive(run)
        for text in left_out:
            run.add_problem(text)

    scene.derivation = Derivation(name="d", sources=(SOURCE,), results=RESULTS, derive=some)
    scene.add_app("a")
    scene.start()
    assert not scene.run()
    assert scene.topics() == {name: ["a"] for name in RESULTS}, "the rest is there"
    problem = {"derived d": "derived d: the topic x cannot be read"}
    assert scene.log.health.problems() == problem
    scene.run()
    assert (len(scene.runs), scene.log.health.problems()) == (1, problem), "it did not run"
    scene.log.health.set_problem("derived d", "the tables could not be read")
    assert scene.run(), "that is over"
    assert scene.log.health.problems() == problem
    assert [row["problem"] for row in scene.rows("pipeline_runs") if row["problem"]] == list(problem.values())
    left_out.clear()
    scene.add_app("b")
    assert scene.run()
    assert scene.log.health.problems() == {}


def test_a_derivation_that_ends_because_of_a_stop_is_no_problem(scene: Scene) -> None:
    stop = Event()

    def stopped(_run: DerivedRun) -> None:
        stop.set()
        raise PlatformError("its jobs were cancelled")

    scene.derivation = Derivation(name="d", sources=(SOURCE,), results=RESULTS, derive=stopped)
    scene.add_app("a")
    scene.start()
    assert scene.tables.run_once("c", stop)
    assert scene.log.health.problems() == {}


@pytest.mark.parametrize("gone", [*RESULTS, SOURCE])
def test_a_table_that_was_deleted_is_made_anew(scene: Scene, gone: str) -> None:
    scene.add_app("a")
    scene.run()
    (scene.root / gone).rename(scene.root / "moved")
    scene.start()
    scene.add_app("b")
    scene.run()
    expected = ["b"] if gone == SOURCE else ["a", "b"]
    assert scene.topics() == dict.fromkeys(RESULTS, expected)
    assert scene.runs[1].is_full == (gone != SOURCE)
    assert scene.runs[1].changed_rows(SOURCE) is None


def test_tables_of_another_release_are_made_anew(scene: Scene) -> None:
    scene.add_app("a")
    scene.run()
    older = replace(TABLES[RESULTS[0]], version=7, buckets=2, bucket_by=("topic",))
    TableWriter(scene.root, older).replace_all(pa.Table.from_pylist([], older.columns))
    scene.start()
    assert scene.run()
    assert scene.runs[-1].is_full
    assert scene.topics() == {name: ["a"] for name in RESULTS}
    scene.add_app("b")
    assert scene.run()
    assert not scene.runs[-1].is_full


def test_a_folder_that_is_no_table_is_left_alone(scene: Scene) -> None:
    folder = scene.root / RESULTS[0]
    folder.mkdir(parents=True)
    (folder / "notes").write_text("mine")
    scene.add_app("a")
    assert not scene.run()
    assert (folder / "notes").read_text() == "mine"


def test_a_rebuild_replaces_a_table_of_another_schema(scene: Scene) -> None:
    scene.add_app("a")
    (scene.root / RESULTS[1] / "_delta_log").mkdir(parents=True)
    with scene.writers.writer(SOURCE) as writer:
        commit = writer.folder / "_delta_log" / f"{0:020}.json"
        (scene.root / RESULTS[1] / "_delta_log" / commit.name).write_text(read_file(commit))
    assert not scene.run(), "its columns are those of another table"
    scene.tables.make_anew(scene.derivation)
    assert scene.topics() == {name: ["a"] for name in RESULTS}


def test_a_record_alone_spares_the_next_process_the_work(scene: Scene) -> None:
    derive = scene.derive

    def with_record(run: DerivedRun) -> None:
        derive(run)
        run.record()

    scene.derivation = Derivation(name="d", sources=(SOURCE, "changes"), results=RESULTS, derive=with_record)
    for app, table in (("a", SOURCE), ("e", "changes")):
        scene.add_app(app, table)
        scene.start()
        scene.run()
    versions = scene.writers, [len(scene.runs)]
    scene.start()
    scene.run()
    assert [len(scene.runs)] == versions[1] == [2]


def test_changed_files_are_those_that_came_and_went(scene: Scene) -> None:
    scene.add_app("a")
    sources = SourceTables(scene.root)
    (first,) = sources.versions([SOURCE]).values()
    scene.add_app("b")
    scene.add_app("b")
    (second,) = sources.versions([SOURCE]).values()
    assert second.version == first.version + 1, "an equal row is no commit"
    found = changed_files(second, first.version)
    assert found is not None
    assert set(found) & {file.path for file in second.files}
    assert changed_files(second, second.version) == []
    remove_file(second.folder / "_delta_log" / f"{second.version:020}.json")
    assert changed_files(second, first.version) is None


def test_a_cluster_without_trips_needs_no_spark_for_their_causes(scene: Scene) -> None:
    scene.derivation = CAUSES
    scene.start()
    scene.add_app("paused", "breaker_events")
    assert scene.run(), "Spark, which is not there, was not asked"
    (events,) = SourceTables(scene.root).versions(["breaker_events"]).values()
    assert has_value(events, "event_id", "paused")
    assert not has_value(events, "event", TRIPPED)
    assert not has_value(None, "event", TRIPPED)


def test_a_file_that_came_and_went_is_not_among_the_changed_files(scene: Scene) -> None:
    """So that an unchanged row is in an even number of them."""
    sources = SourceTables(scene.root)
    files = []
    with scene.writers.writer(SOURCE) as writer:
        for batch, kind in enumerate(("streams", "spark", "other")):
            row = whole_row(SOURCE, cluster_id="c", app_id="a", kind=kind)
            writer.upsert(pa.Table.from_pylist([row], TABLES[SOURCE].columns), query="facts", batch=batch)
            (version,) = sources.versions([SOURCE]).values()
            files.append([file.path for file in version.files])
    before, _, after = files
    assert set(changed_files(version, version.version - 2) or ()) == {*before, *after}


def _nothing(_run: DerivedRun) -> None: ...


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((("lineage_edges",), ("lineage_gaps",)), ((SOURCE,), ("lineage_edges",))),
        (((SOURCE,), ("lineage_gaps",)), ((SOURCE,), ("lineage_gaps",))),
    ],
    ids=["read before it is made", "made twice"],
)
def test_derivations_have_an_order(first: tuple[Any, Any], second: tuple[Any, Any]) -> None:
    make: Callable[[str, tuple[Any, Any]], Derivation] = lambda name, one: Derivation(  # noqa: E731
        name=name, sources=one[0], results=one[1], derive=_nothing
    )
    with pytest.raises(UsageError, match="made later, or by two derivations"):
        check_order((make("x", first), make("y", second)))


class PassingTime:
    """A stop that comes after so many seconds of the clock, of which each wait takes ten, or `step_s`.

    `at` says what happens after how many seconds.
    """

    def __init__(
        self, clock: FakeClock, seconds: int, step_s: int = 10, at: Mapping[int, Callable[[], None]] | None = None
    ) -> None:
        self._clock = clock
        self._began = clock.now_ms
        self._until = clock.now_ms + 1000 * seconds
        self._step_s = step_s
        self._at = at or {}

    def wait(self, _timeout: float) -> bool:
        self._clock.now_ms += 1000 * self._step_s
        self._at.get((self._clock.now_ms - self._began) // 1000, lambda: None)()
        return self.is_set()

    def is_set(self) -> bool:
        return self._clock.now_ms > self._until


def test_each_derivation_looks_at_its_sources_once_in_its_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    often, seldom = (replace(scene.derivation, name=f"every {number}", minutes=number) for number in (1, 5))
    spark = SimpleNamespace(setLocalProperty=lambda *_: None, setJobGroup=lambda *_, **__: None)
    session = cast("SparkSession", SimpleNamespace(sparkContext=spark))
    context = DerivedContext(
        config=load(None, {}, {"tables.path": str(tmp_path)}), session=session, writers=scene.writers
    )
    tables = DerivedTables((often, seldom), context, scene.clock, scene.log)
    began, looks = scene.clock.now_ms, []
    monkeypatch.setattr(
        tables, "_derive_if_changed", lambda one: looks.append((one.name, (scene.clock.now_ms - began) // 60_000))
    )
    tables.run("c", cast("Event", PassingTime(scene.clock, 660)))
    assert [minute for name, minute in looks if name == often.name] == list(range(1, 12))
    assert [minute for name, minute in looks if name == seldom.name] == [1, 6, 11]


def run_times(tmp_path: Path, urgent: tuple[str, ...], at: dict[int, str]) -> list[int]:
    """After how many seconds a derivation runs while rows come to these tables after so many seconds."""
    scene = Scene(tmp_path)
    scene.add_app("a", SOURCE)
    scene.add_app("a", "breaker_events")
    began, times = scene.clock.now_ms, []

    def derive(run: DerivedRun) -> None:
        times.append((scene.clock.now_ms - began) // 1000)
        scene.derive(run)

    spark = SimpleNamespace(setLocalProperty=lambda *_: None, setJobGroup=lambda *_, **__: None)
    session = cast("SparkSession", SimpleNamespace(sparkContext=spark))
    config = load(None, {}, {"tables.path": str(tmp_path)})
    context = DerivedContext(config=config, session=session, writers=scene.writers)
    urgently = replace(scene.derivation, sources=(SOURCE, "breaker_events"), urgent=urgent, derive=derive)
    tables = DerivedTables((urgently,), context, scene.clock, scene.log)
    happens = {second: partial(scene.add_app, f"at {second}", table) for second, table in at.items()}
    tables.run("c", cast("Event", PassingTime(scene.clock, 250, step_s=1, at=happens)))
    return times


def test_an_urgent_source_makes_a_derivation_run_within_ten_seconds_and_again_for_what_comes_later(
    tmp_path: Path,
) -> None:
    at = {125: "breaker_events", 140: SOURCE}
    first, trip, follow_up = run_times(tmp_path, ("breaker_events",), at)
    assert first == 60
    assert 125 <= trip <= 135
    assert trip + 20 <= follow_up <= trip + 21


def test_without_an_urgent_source_a_derivation_waits_for_its_minute(tmp_path: Path) -> None:
    assert run_times(tmp_path, (), {125: "breaker_events", 140: SOURCE}) == [60, 180]


def test_another_source_is_not_urgent(tmp_path: Path) -> None:
    assert run_times(tmp_path, ("breaker_events",), {140: SOURCE}) == [60, 180]


def test_steady_news_of_an_urgent_source_does_not_make_a_derivation_run_all_the_time(tmp_path: Path) -> None:
    times = run_times(tmp_path, ("breaker_events",), dict.fromkeys(range(100, 200), "breaker_events"))
    assert all(later - before >= 20 for before, later in pairwise(times))
    assert len(times) <= 10


_QUIET = 7 * 24 * HOUR
_NOW = 1000 * HOUR
_SEEN = _NOW - 2 * HOUR


@pytest.mark.parametrize(
    ("last_seen", "first", "last", "expected"),
    [
        pytest.param(_SEEN, None, None, False, id="only an hour has left its day"),
        pytest.param(_SEEN, _SEEN - 5, _NOW, False, id="it continues"),
        pytest.param(_SEEN, _NOW - 24 * HOUR, _NOW, True, id="a use before the day whose sums are known"),
        pytest.param(_NOW - HOUR, _NOW - 11 * HOUR, _NOW, True, id="a use before it was valid"),
        pytest.param(_NOW - _QUIET, None, None, False, id="it is silent, but not for long"),
        pytest.param(_NOW - _QUIET - 1, None, None, True, id="it is silent for long"),
        pytest.param(_NOW - _QUIET - 1, _NOW, _NOW, True, id="a use after a long pause"),
    ],
)
def test_the_history_of_an_edge_is_read_again_unless_it_just_continues(
    last_seen: int, first: int | None, last: int | None, *, expected: bool
) -> None:
    row = {"valid_from": min(last_seen, _NOW - 10 * HOUR), "last_seen": last_seen, "first": first, "last": last}
    current = pa.Table.from_pylist([row], pa.schema([(name, pa.int64()) for name in row]))
    assert irregular_edges(current, now_ms=_NOW, quiet_ms=_QUIET).to_pylist() == [expected]


def test_a_daily_derivation_runs_when_another_day_has_begun_and_not_when_a_source_has_changed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, daily=True)
    scene.add_app("a")
    scene.run()
    scene.add_app("b")
    scene.clock.now_ms += HOUR
    scene.run()
    scene.start()
    scene.run()
    assert len(scene.runs) == 1
    scene.clock.now_ms += 18 * HOUR
    scene.run()
    assert len(scene.runs) == 2
    assert scene.topics() == {name: ["a", "b"] for name in RESULTS}


def test_what_cannot_be_sent_to_a_catalogue_is_a_problem_until_it_was_sent(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    exporter = scene.exporter = FailingExporter()
    scene.start()
    scene.add_app("a")
    exporter.problem = "the catalogue is away"
    assert not scene.run()
    assert scene.topics() == {name: ["a"] for name in RESULTS}, "tables do not wait for it"
    assert scene.log.health.problems() == {"openlineage": "openlineage: the catalogue is away"}
    exporter.failure = RuntimeError
    assert not scene.run()
    assert scene.log.health.problems() == {"openlineage": "openlineage: RuntimeError: the catalogue is away"}
    exporter.problem = None
    assert scene.run()
    assert exporter.clusters == ["c"]
    assert scene.log.health.problems() == {}
