"""Facts to tables, batch by batch: the tables are those of the oracle, whatever stopped the query on the way."""

import random

import pytest

from headgate.embedded import SecurityProtocol
from headgate.facts import (
    EventHappened,
    TopologyDeleted,
    TopologyDeletionRemoved,
    TopologyEpochsRemoved,
    TopologyVersionRemoved,
)
from headgate.pipeline.batches import Moment, OnMoment
from tests.pipeline import oracle
from tests.pipeline.estate import Estate
from tests.pipeline.histories import POOL, described, events_of_groups, history
from tests.pipeline.oracle import TABLES
from tests.support.cluster import USERS, Cluster

REBUILT = ("topology_nodes", "changes")


def assert_tables_are_right(estate: Estate, own_cluster: str) -> None:
    wanted = oracle.tables(estate.records(), prefix=estate.prefix, own_cluster=own_cluster, ids=estate.topic_ids())
    for name in TABLES:
        assert estate.rows(name) == wanted[name], name


def cluster_of(estate: Estate) -> str:
    return str(next(iter(estate.rows("pipeline_runs").values()))["cluster_id"])


def test_tables_of_a_random_history_are_those_of_the_oracle(estate: Estate) -> None:
    """Three runs, a fourth that changes nothing, and tables that are rebuilt and stay the same."""
    chance = random.Random(6)
    estate.write(*events_of_groups())
    for length in (25, 1, 12):
        estate.write(*history(chance, length))
        estate.write_raw("topologies", b'["g","deleted"]', b'{"v":2}')
        assert estate.run()
        assert_tables_are_right(estate, cluster_of(estate))
    versions = estate.versions(TABLES)
    assert estate.run()
    assert estate.versions(TABLES) == versions, "nothing new is no commit"
    before = estate.tables(REBUILT)
    for name in REBUILT:
        estate.rebuild(name)
    assert estate.tables(REBUILT) == before, "rebuild equals incremental"


def test_a_pasted_version_never_ends_a_pushed_one(estate: Estate) -> None:
    """It is current only while nothing is known of members: before they join, and after the group was deleted."""
    first = described("app", POOL[0], at=1, provenance="pasted")
    partial = described("app", POOL[4], at=1, provenance="assignment")
    while_partial = described("app", POOL[5], at=1, provenance="pasted")
    pushed = described("app", POOL[1], at=2)
    while_pushed = described("app", POOL[2], at=3, provenance="pasted")
    deleted = TopologyDeleted(at=4, group="app", incarnation="1")
    afterwards = described("app", POOL[3], at=5, provenance="pasted")
    for facts in ([first, partial, while_partial, pushed], [while_pushed], [deleted, afterwards]):
        estate.write(*facts)
        assert estate.run()
        assert_tables_are_right(estate, cluster_of(estate))
    rows = sorted(estate.rows("applications").values(), key=lambda row: row["valid_from"])
    assert [(row["hash"], row["at"], row["ended_at"]) for row in rows] == [
        (first.hash, 1, 1),
        (partial.hash, 1, 2),
        (pushed.hash, 2, 4),
        (afterwards.hash, 5, None),
    ]
    [kept] = [row for row in estate.rows("topology_versions").values() if row["hash"] == while_pushed.hash]
    assert kept["valid_to"] == kept["valid_from"], "it is kept, and was never the current one"


def test_tombstones_of_topologies_are_no_deletions_in_the_tables(estate: Estate) -> None:
    """The topics do not keep records for ever; the tables do, and a rebuild leaves them so."""
    current = described("live", POOL[1], at=2)
    gone = described("gone", POOL[2], at=3)
    estate.write(described("live", POOL[0], at=1), current, gone)
    estate.write(TopologyDeleted(at=4, group="gone", incarnation=gone.incarnation))
    assert estate.run()
    before = estate.tables(TABLES)
    for fact in (described("live", POOL[0], at=1), gone):
        version = {name: getattr(fact, name) for name in ("group", "incarnation", "epoch", "hash", "provenance")}
        estate.write(TopologyVersionRemoved(**version))
    estate.write(TopologyDeletionRemoved(group="gone"), TopologyEpochsRemoved(group="gone"))
    assert estate.run()
    assert estate.tables(TABLES) == before
    assert estate.rows("rejected_facts") == {}
    estate.rebuild("applications")
    assert estate.tables(TABLES) == before


class KilledError(Exception):
    """As if the process had ended here."""


POINTS: list[tuple[Moment, str]] = [
    ("after", "applications"),
    ("before", "topology_versions"),
    ("end", ""),
]


def killing_at(point: tuple[Moment, str]) -> OnMoment:
    def kill(moment: Moment, table: str) -> None:
        if (moment, table) == point:
            raise KilledError

    return kill


def test_a_killed_batch_comes_again_and_leaves_the_same_tables(estate: Estate) -> None:
    """Killed between two tables, before the last write, and before the checkpoint; at every point in `tests/soak`."""
    estate.write(
        described("g", POOL[0], at=1), described("g", POOL[1], at=2), described("h", POOL[2], at=3, member="first")
    )
    assert estate.run()
    estate.write(
        described("g", POOL[0], at=4, member="second"), described("h", POOL[3], at=5), described("h", POOL[2], at=6)
    )
    estate.write(TopologyDeleted(at=7, group="g", incarnation="1"))

    for point in POINTS:
        with pytest.raises(Exception, match="the query ended"):
            estate.run(on_moment=killing_at(point))
    assert estate.run()
    assert_tables_are_right(estate, cluster_of(estate))


def test_garbage_is_listed_and_stops_nothing(estate: Estate) -> None:
    estate.write(described("g", POOL[1], at=1))
    estate.write_raw("topologies", b"\xff\xfe", b"{}")
    estate.write_raw("topologies", b'["g","1",0,"h","pushed"]', b"not JSON")
    estate.write_raw("topologies", b'["g","1",0,"h","invented"]', None)
    estate.write_raw("events", None, b"x" * 1000)
    estate.write_raw("state", b'["pause","' + b"s" * 2000 + b'"]', b'{"v":99}')
    estate.write(described("h", POOL[2], at=2))
    assert estate.run()
    assert_tables_are_right(estate, cluster_of(estate))
    assert len(estate.rows("rejected_facts")) == 5
    assert {row["app_id"] for row in estate.rows("applications").values()} == {"g", "h"}
    (run,) = estate.rows("pipeline_runs").values()
    assert (run["state"], run["rows"], run["rejected"], run["lag"]) == ("done", 7, 5, 0)


def test_the_service_account_logs_in_over_tls(cluster: Cluster, estate: Estate) -> None:
    password = estate.folder / "password"
    password.write_text(USERS["admin"], encoding="utf-8")
    password.chmod(0o600)
    estate.upstream = {
        "bootstrap": [cluster.kafka.bootstrap_of(SecurityProtocol.SASL_SSL)],
        "tls": True,
        "tls_ca": str(cluster.certificates.ca),
        "service_user": "admin",
        "service_password_file": str(password),
        "service_mechanism": "SCRAM-SHA-512",
    }
    estate.write(described("g", POOL[1], at=1))
    assert estate.run()
    assert_tables_are_right(estate, cluster_of(estate))


def test_rows_of_records_that_are_not_retained_stay_and_are_marked(estate: Estate) -> None:
    def event(number: int) -> EventHappened:
        return EventHappened(at=number, subject_kind="k", subject="s", id=f"e{number}", event="operation", by=None)

    estate.write(event(1))
    assert estate.run()
    estate.forget("events")
    estate.write(event(2))
    assert estate.run()
    estate.rebuild("changes")
    assert {row["event_id"]: row["is_historic"] for row in estate.rows("changes").values()} == {"e1": True, "e2": False}
