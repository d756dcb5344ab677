"""A batch, and a derivation, that is killed at every point leaves the tables that one without a kill would leave.

The points are the moments before and after the write of each table, and that before the checkpoint is written. The
attempt after a kill comes one moment further, until one ends. The pipeline tier takes some of the points only.
"""

import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.pipeline.batches import Moment
from headgate.pipeline.queries import APPEND, FACTS, Query
from headgate.pipeline.session import end_session, start_session
from tests.pipeline.estate import Estate
from tests.pipeline.histories import events_of_groups, history
from tests.pipeline.lineage_scene import DAY, NOW, LineageScene
from tests.pipeline.test_append_query import (
    BY_SPARK,
    activity,
    assert_appended_are_right,
    dispositions,
    lags,
    stored_rows,
)
from tests.pipeline.test_facts_query import KilledError, assert_tables_are_right, cluster_of
from tests.pipeline.test_lineage import DERIVATIONS, History, check
from tests.support.cluster import Cluster
from tests.support.spark import SETTINGS


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = start_session(SETTINGS)
    yield session
    end_session(session)


@pytest.fixture
def estate(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> Estate:
    made = Estate(dict(cluster.client_config()), spark, tmp_path, f"headgate-{uuid.uuid4().hex[:8]}.")
    made.make_topics()
    return made


def run_with_kills(estate: Estate, query: Query) -> int:
    """Run the query, killed one moment later each time, until it ends; returns the number of kills."""
    kills = 0
    while True:
        moments = 0

        def kill(_moment: Moment, _table: str) -> None:
            nonlocal moments
            moments += 1
            if moments > kills:  # noqa: B023 - it is called in this round only
                raise KilledError

        try:
            assert estate.run(query, on_moment=kill)
        except Exception as failure:
            if "the query ended" not in str(failure):
                raise
            kills += 1
            continue
        return kills


@pytest.mark.timeout(1800)
def test_a_batch_of_small_topics_is_killed_at_every_point(estate: Estate) -> None:
    chance = random.Random(18)
    estate.write(*events_of_groups(), *history(chance, 10))
    assert estate.run()
    estate.write(*history(chance, 15))
    estate.write_raw("topologies", b"no key", b"{}")
    kills = run_with_kills(estate, FACTS)
    assert kills >= 15, "before and after each of seven tables and more, and at the end"
    assert_tables_are_right(estate, cluster_of(estate))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("query", [APPEND, BY_SPARK], ids=["collected", "by Spark"])
def test_a_batch_of_large_topics_is_killed_at_every_point(estate: Estate, query: Query) -> None:
    for make in (activity, dispositions, lags):
        estate.write(*(make(number) for number in range(6)))
    estate.write_raw("activity", b"no key", b"{}")
    kills = run_with_kills(estate, query)
    assert kills >= 9, "before and after each of four tables, and at the end"
    assert_appended_are_right(estate)
    assert stored_rows(estate, "activity_intervals") == 6, "no row is there twice"


@pytest.mark.timeout(1800)
def test_lineage_is_killed_at_every_point(spark: SparkSession, tmp_path: Path) -> None:
    scene = LineageScene(spark, tmp_path, DERIVATIONS)
    history = History(scene, 19)
    history.describe("app", "streams", NOW - 20 * DAY, None, "1")
    history.describe("free", "streams", NOW - 30 * DAY, NOW - 2 * DAY, "1")
    history.use(0, 24 * 20, 60)
    for derivation in DERIVATIONS:
        scene.derivations = (derivation,)
        scene.start()
        kills = 0
        while not scene.derive(kill_after=kills):
            kills += 1
        assert kills >= 2 * len(derivation.results), "before and after each table"
    check(scene, history)
