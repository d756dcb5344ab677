"""What goes wrong is a row in pipeline_runs, and the rest goes on."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from headgate.base.clock import SystemClock
from headgate.base.errors import UsageError
from headgate.pipeline import runner
from headgate.pipeline.builds import BUILDS, BuildPart
from headgate.pipeline.derived import derived_runner
from headgate.pipeline.derived.derivation import Derivation, DerivedRun
from headgate.pipeline.fact_rows import SCHEMA, ReadSettings, decoded_facts
from headgate.pipeline.pipeline_lock import only_pipeline
from headgate.pipeline.queries import FACTS
from headgate.pipeline.topology_builds import add_validity, without_validity
from headgate.tables.definitions import table_named
from headgate.tables.files import remove_file, remove_folder
from tests.pipeline.estate import Estate
from tests.pipeline.histories import POOL, described
from tests.pipeline.test_facts_query import assert_tables_are_right, cluster_of


def test_a_lost_checkpoint_is_reported_and_everything_is_read_again(estate: Estate) -> None:
    estate.write(described("g", POOL[0], at=1), described("g", POOL[1], at=2))
    assert estate.run()
    remove_folder(estate.config.pipeline.checkpoint)
    estate.write(described("g", POOL[2], at=3))
    assert estate.run()
    ((table, problem),) = estate.problems()
    assert table is None
    assert "is missing: all records that the topics retain are read again" in problem
    assert_tables_are_right(estate, cluster_of(estate))


def test_an_absent_topic_is_reported_and_read_when_it_is_created(estate: Estate) -> None:
    estate.prefix += "late."
    estate.make_topics("state", "tasks", "topologies")
    estate.write(described("g", POOL[1], at=1))
    assert estate.run()
    ((_, problem),) = estate.problems()
    assert f"{estate.prefix}events does not exist yet" in problem
    assert_tables_are_right(estate, cluster_of(estate))
    estate.make_topics("events")
    estate.write_raw("events", b"[]", b"{}")
    assert estate.run()
    assert len(estate.problems()) == 1
    assert_tables_are_right(estate, cluster_of(estate))


def test_a_table_of_another_version_is_disabled_until_it_is_rebuilt(estate: Estate) -> None:
    estate.store_version("topology_nodes", 99)
    estate.write(described("g", POOL[0], at=0), described("g", POOL[1], at=1))
    assert not estate.run()
    ((table, problem),) = (one for one in estate.problems() if one[0] is not None)
    assert table == "topology_nodes"
    assert "its schema version is 99" in problem
    assert "headgate pipeline rebuild topology_nodes" in problem
    assert len(estate.rows("applications")) == 2, "the rest goes on"
    estate.write(described("g", POOL[2], at=2))
    assert not estate.run(), "it still misses rows"
    estate.rebuild("topology_nodes")
    estate.write(described("g", POOL[3], at=3))
    assert estate.run()
    assert_tables_are_right(estate, cluster_of(estate))


def test_tables_that_an_older_release_did_not_know_are_named_until_they_are_rebuilt(estate: Estate) -> None:
    estate.write(described("g", POOL[0], at=1))
    assert estate.run()
    assert estate.problems() == []
    # An older release reads on: it writes no such file, and no table that is new.
    remove_file(estate.config.pipeline.checkpoint / "facts.tables.json")
    assert estate.run(), "what comes from now on is in all tables"
    assert [table for table, _ in estate.problems()] == ["app_io", "breaker_events"]
    for table, problem in estate.problems():
        assert f"headgate pipeline rebuild {table}" in problem
        assert estate.health.problems()[f"table {table}"] == problem
    estate.rebuild("app_io")
    assert estate.run()
    left = estate.health.problems()
    assert "table breaker_events" in left
    assert "table app_io" not in left


def test_a_build_that_fails_takes_only_its_own_table_away(estate: Estate, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise ValueError("a mistake in the build")

    changes = BUILDS["changes"]

    def build(facts: DataFrame) -> DataFrame:
        rows = changes.rows(facts)
        return rows.mapInArrow(fails, rows.schema)

    monkeypatch.setitem(BUILDS, "changes", replace(changes, parts=(BuildPart(build, changes.kinds),)))
    estate.write(described("g", POOL[1], at=1))
    assert not estate.run()
    ((table, problem),) = estate.problems()
    assert table == "changes"
    assert problem.startswith("ValueError: a mistake in the build. The table changes is disabled")
    assert len(estate.rows("applications")) == 1


def test_one_pipeline_at_a_time(estate: Estate) -> None:
    config = estate.config
    taken = pytest.raises(UsageError, match="another pipeline uses")
    with only_pipeline(config), taken, only_pipeline(config):
        pass
    with only_pipeline(config):
        pass


def test_a_stop_does_not_wait_for_a_derivation(
    estate: Estate, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A derivation may read millions of rows; what it leaves undone is derived after the next start."""
    monkeypatch.setattr(derived_runner, "EVERY_S", 0.0)
    monkeypatch.setattr(runner, "_LOOK_FOR_TOPICS_S", 0.1)
    stop, deriving = Event(), Event()

    def derive(run: DerivedRun) -> None:
        deriving.set()
        run.session.range(10**15).where("id * 7 % 11 = 12").count()

    endless = Derivation(name="endless", sources=("pipeline_runs",), results=("impact_summary",), derive=derive)
    pipeline = runner.PipelineRunner(
        estate.config, estate.spark, SystemClock(), stop, queries=(FACTS,), derivations=(endless,)
    )
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(pipeline.run, once=False)
        assert deriving.wait(120)
        stop.set()
        assert running.result(120)
    pipeline.close()
    assert "endless" not in capsys.readouterr().err


def test_rows_of_every_build_fit_their_table(estate: Estate) -> None:
    """A table without facts yet has a definition, and its build its columns."""
    nothing = estate.spark.createDataFrame([], SCHEMA)
    settings = ReadSettings(cluster="c", prefix="headgate.", max_bytes={})
    for name, build in BUILDS.items():
        facts = decoded_facts(nothing, build.fact, settings) if build.table.appended else add_validity(nothing)
        rows = to_arrow_schema(build.rows(facts).schema).empty_table()
        assert rows.cast(pa.schema(table_named(name).columns)).num_rows == 0


def test_facts_of_no_topology_have_the_columns_of_the_others(estate: Estate) -> None:
    nothing = estate.spark.createDataFrame([], SCHEMA)
    assert sorted(without_validity(nothing).dtypes) == sorted(add_validity(nothing).dtypes)
