"""Which tables lack rows after an upgrade, after a return to an older release, and after their rebuild."""

from collections.abc import Collection
from pathlib import Path

import pytest

from headgate.base.errors import ClusterError
from headgate.pipeline.known_tables import KnownTables
from headgate.pipeline.queries import APPEND, FACTS, Query
from headgate.pipeline.source_topics import SourceTopics
from tests.unit.pipeline.test_source_topics import make_checkpoint

EVENTS, LAGS = {"h.events": {"0": 3}}, {"h.lags": {"0": 3}}
ALL = {**EVENTS, "h.state": {"0": 1}, "h.tasks": {"0": 1}, "h.topologies": {"0": 1}}
NEW = ["app_io", "breaker_events"]  # of the query `facts`, to releases without the file


class Release:
    """One that knows the tables of its query except these."""

    def __init__(self, folder: Path, *, without: Collection[str] = (), query: Query = FACTS) -> None:
        self.checkpoint = folder / "facts"
        builds = {name: build for name, build in query.builds().items() if name not in without}
        self.tables = KnownTables(self.checkpoint, builds, "h.")

    def starts(self) -> list[str]:
        return self.tables.find_missing(SourceTopics(self.checkpoint))

    def rebuilds(self, name: str) -> None:
        self.tables.on_rebuilt(name, SourceTopics(self.checkpoint))


def test_a_first_start_lacks_nothing_and_neither_does_the_next(tmp_path: Path) -> None:
    assert Release(tmp_path).starts() == []
    make_checkpoint(tmp_path, ALL)
    Release(tmp_path).tables.on_batch(0)
    assert Release(tmp_path).starts() == []


def test_after_an_upgrade_new_tables_lack_rows_until_each_is_rebuilt(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, ALL)
    assert Release(tmp_path).starts() == NEW
    Release(tmp_path).tables.on_batch(1)
    make_checkpoint(tmp_path, ALL, ALL)
    assert Release(tmp_path).starts() == NEW
    Release(tmp_path).rebuilds("app_io")
    assert Release(tmp_path).starts() == ["breaker_events"]
    Release(tmp_path).rebuilds("breaker_events")
    assert Release(tmp_path).starts() == []


def test_a_rebuild_before_the_first_start_of_a_release_counts(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, ALL)
    Release(tmp_path).rebuilds("breaker_events")
    assert Release(tmp_path).starts() == ["app_io"]


def test_a_table_of_a_later_release_lacks_rows_and_one_that_the_return_does_not_know_stays_noted(
    tmp_path: Path,
) -> None:
    assert Release(tmp_path, without=["changes"]).starts() == []
    make_checkpoint(tmp_path, ALL)
    Release(tmp_path, without=["changes"]).tables.on_batch(0)
    assert Release(tmp_path).starts() == ["changes"]
    assert Release(tmp_path, without=["changes"]).starts() == []
    assert Release(tmp_path).starts() == ["changes"]


def test_batches_of_an_older_release_after_a_return_are_noticed(tmp_path: Path) -> None:
    Release(tmp_path).starts()
    make_checkpoint(tmp_path, ALL)
    Release(tmp_path).tables.on_batch(0)
    make_checkpoint(tmp_path, ALL, ALL)  # the file says nothing of batch 1
    assert Release(tmp_path).starts() == NEW


def test_a_batch_that_was_written_and_not_committed_is_no_return(tmp_path: Path) -> None:
    Release(tmp_path).starts()
    make_checkpoint(tmp_path, ALL, uncommitted=ALL)
    Release(tmp_path).tables.on_batch(0)
    Release(tmp_path).tables.on_batch(1)
    assert Release(tmp_path).starts() == []


def test_a_table_whose_topics_were_not_read_lacks_nothing(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, {"h.activity": {"0": 5}})
    assert Release(tmp_path, query=APPEND).starts() == [], "headgate.lags is read from its beginning"
    make_checkpoint(tmp_path, LAGS)
    (tmp_path / "facts.tables.json").unlink()
    assert Release(tmp_path, query=APPEND).starts() == ["group_lags"]


def test_a_lost_checkpoint_brings_all_rows_again(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, ALL)
    assert Release(tmp_path).starts() == NEW
    checkpoint.rename(tmp_path / "away")
    assert Release(tmp_path).starts() == []


def test_a_topic_that_was_created_again_leaves_what_is_known(tmp_path: Path) -> None:
    assert Release(tmp_path).starts() == []
    checkpoint = make_checkpoint(tmp_path, ALL)
    Release(tmp_path).tables.on_batch(0)
    sources = SourceTopics(checkpoint)
    sources.reconcile(dict.fromkeys(ALL, "id"))
    assert sources.reconcile({**dict.fromkeys(ALL, "id"), "h.tasks": "other"}) == ["h.tasks"]
    assert not checkpoint.exists()
    assert Release(tmp_path).starts() == []
    make_checkpoint(tmp_path, uncommitted=ALL, name="two")
    assert Release(tmp_path).starts() == []
    assert Release(tmp_path / "nowhere").starts() == []


def test_a_damaged_file_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "facts.tables.json").write_text("[")
    with pytest.raises(ClusterError, match=r"facts\.tables\.json is damaged: remove it"):
        Release(tmp_path).starts()
