"""Definitions: what every table has, and that they are found."""

from dataclasses import replace

import pyarrow as pa
import pytest

from headgate.base.errors import UsageError
from headgate.tables.definitions import TABLES, table_named
from headgate.tables.table import Table, meaning, stored_version, text
from tests.unit.tables.things import SORTED_THINGS, THINGS

each_table = pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
KEYS = {
    "activity_hours": "hour actor_kind app_id topic direction",
    "activity_intervals": "writer boot seq",
    "app_io": "app_id incarnation epoch hash provenance component in_topic out_topic",
    "applications": "app_id valid_from",
    "breaker_causes": "event_id number",
    "breaker_events": "event_id",
    "changes": "event_id",
    "client_identities": "principal client_id host actor_kind actor first_seen",
    "dead_letter_clusters": "group cluster",
    "dead_letters": "group topic_id partition offset",
    "dispositions": "writer boot seq",
    "dlq_rates": "group topic partition minute",
    "dlq_rates_hourly": "group topic hour",
    "impact_summary": "topic",
    "lineage_edges": "actor_kind app_id topic direction valid_from",
    "lineage_gaps": "kind actor_kind app_id topic direction opened_at",
    "group_lags": "group topic partition at",
    "members_tasks": "group member task valid_from",
    "pipeline_runs": "run_id",
    "replay_audit": "plan position",
    "replay_plan_records": "plan position",
    "replay_plans": "plan",
    "rejected_facts": "topic partition offset",
    "topic_coverage": "topic hour",
    "topology_edges": "app_id incarnation epoch hash provenance from_kind from_node to_kind to_node",
    "topology_nodes": "app_id incarnation epoch hash provenance kind node",
    "topology_versions": "app_id incarnation epoch hash provenance",
}


def test_keys_are_those_that_others_rely_on() -> None:
    assert {name: TABLES[name].key for name in KEYS} == {
        name: ("cluster_id", *key.split()) for name, key in KEYS.items()
    }


@each_table
def test_every_column_says_what_it_means(table: Table) -> None:
    assert all(meaning(field) for field in table.columns)
    assert table.description.endswith(".")
    assert table.question.endswith("?")


@each_table
def test_a_topic_has_its_id_beside_it(table: Table) -> None:
    names = table.columns.names
    for name in {"topic", "in_topic", "out_topic"} & set(names):
        assert table.columns.field(f"{name}_id").nullable or f"{name}_id" in table.key


def _valid(table: Table) -> bool:
    return table.has_validity and not table.validity_is_time


def test_the_validity_of_a_derived_table_is_by_time() -> None:
    by_time = [name for name, table in TABLES.items() if table.validity_is_time]
    assert by_time == ["lineage_edges"]
    assert not TABLES["topic_coverage"].has_validity


@pytest.mark.parametrize("table", [one for one in TABLES.values() if _valid(one)], ids=lambda table: table.name)
def test_validity_has_offsets_times_and_the_mark_of_history(table: Table) -> None:
    nullable = {field.name: field.nullable for field in table.columns}
    wanted = {"valid_from": False, "valid_to": True, "at": False, "ended_at": True, "is_historic": False}
    assert {name: nullable[name] for name in wanted} == wanted


def test_a_table_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(
        UsageError, match=r"there is no table 'apps'; the tables are: activity_hours, activity_intervals,"
    ):
        table_named("apps")


def test_a_key_begins_with_the_cluster() -> None:
    with pytest.raises(ValueError, match="the key begins with cluster_id"):
        replace(THINGS, key=("name",))


def test_a_key_is_never_null() -> None:
    with pytest.raises(ValueError, match="never null"):
        replace(THINGS, key=("cluster_id", "size"))


def test_buckets_are_part_of_the_key() -> None:
    with pytest.raises(ValueError, match="buckets are the hash of columns of the key"):
        replace(THINGS, buckets=4, bucket_by=("by",))
    with pytest.raises(ValueError, match="buckets are the hash of columns of the key"):
        replace(THINGS, columns=THINGS.columns.append(text("bucket", "b")), buckets=4, bucket_by=("name",))


def test_an_appended_table_has_no_buckets() -> None:
    with pytest.raises(ValueError, match="an appended table has no buckets"):
        replace(SORTED_THINGS, appended=True)


def test_a_bucket_is_the_same_for_ever() -> None:
    """Rows are looked for in the bucket that an earlier release put them in."""
    values = [("c", "a"), ("c", "b"), ("ca", ""), ("", "ca"), ("c", "\N{SNOWMAN}\0")]
    assert [replace(SORTED_THINGS, buckets=16).bucket(one) for one in values] == [1, 11, 9, 15, 0]


def test_the_version_is_kept_with_the_schema() -> None:
    assert stored_version(replace(THINGS, version=7).stored_schema) == "7"
    assert stored_version(pa.schema([("a", pa.string())])) is None
    assert stored_version(pa.schema([])) is None


def test_an_earlier_release_goes_on_with_dead_letters() -> None:
    """Another version is made anew, without what only the table knows: episodes, and dead letters that are gone."""
    table = TABLES["dead_letters"]
    first = (
        "cluster_id group topic topic_id partition offset dlq_topic dlq_topic_id dlq_partition dlq_offset "
        "dead_lettered_at format reason exception member delivery_count copied source_state source_at key_hash "
        "schema_id producer_id type_header size_bytes size_band copies withdrawn letter_expires_at source_expires_at "
        "cluster problem"
    )
    assert (table.version, table.columns.names) == (1, first.split())
