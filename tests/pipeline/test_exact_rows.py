"""A record that Spark's own functions read has the columns that `decode` gives it, field by field."""

from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession

from headgate.facts import Fact
from headgate.facts.codec import form_of
from headgate.pipeline.builds import BUILDS
from headgate.pipeline.fact_rows import (
    GENERATION_OFFSETS,
    IS_EXACT,
    REJECTED,
    ReadSettings,
    decoded_facts,
    exact_facts,
    mark_exact,
    read_facts,
)
from headgate.pipeline.session import set_compiling
from tests.unit.facts.hostile_records import LARGE, hostile_lists, plain_record

PREFIX = "hg."
SCHEMA = "topic string, partition int, offset long, timestamp timestamp, key binary, value binary"
AT = datetime(2026, 11, 16, tzinfo=UTC)


def many(fact: type[Fact]) -> list[tuple[bytes | None, bytes | None]]:
    found: list[tuple[bytes | None, bytes | None]] = []

    @given(hostile_lists(fact, 10))
    @settings(max_examples=80, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def collect(records: list[tuple[bytes, bytes]]) -> None:
        found.extend(records)

    collect()
    key, value = plain_record(fact)
    too_large = value.replace(b'"orders"', b'"' + b"o" * 1_100_000 + b'"')
    return [*found, (None, value), (key, None), (key + value[:5], value[5:]), (key, too_large)]


@pytest.mark.parametrize("fact", LARGE)
def test_both_readings_of_a_record_are_equal(spark: SparkSession, fact: type[Fact]) -> None:
    """One batch of many records, valid and hostile."""
    topic = PREFIX + form_of(fact).topic
    pairs = many(fact)
    rows = [(topic, number % 3, number, AT, key, value) for number, (key, value) in enumerate(pairs)]
    session = spark.newSession()
    set_compiling(session, is_on=True)
    records = session.createDataFrame(rows, SCHEMA)
    reading = ReadSettings(prefix=PREFIX, cluster="own", max_bytes={}, generations={topic: 2})

    (build,) = (build for build in BUILDS.values() if build.table.appended and build.fact is fact)
    marked = mark_exact(records, fact, reading)
    exact = {row["offset"]: row.asDict(recursive=True) for row in exact_facts(marked, fact, reading).collect()}
    facts = read_facts(records, reading).persist()
    decoded = {row["offset"]: row.asDict(recursive=True) for row in decoded_facts(facts, fact, reading).collect()}
    rejected = {row["offset"] for row in facts.where(facts["kind"] == REJECTED).select("offset").collect()}
    exact_rows = build.rows(exact_facts(marked, fact, reading)).toArrow().to_pylist()
    others = marked.where(f"NOT {IS_EXACT}").count()
    made = build.rows(decoded_facts(facts, fact, reading)).toArrow().to_pylist()
    facts.unpersist()

    assert len(exact) > 5, "the property is about records of the exact form"
    assert len(rejected) > 50, "and others"
    assert len(exact) + others == len(pairs), "each record is read once"
    assert not exact.keys() & rejected
    assert min(exact) >= 2 * GENERATION_OFFSETS
    for offset, row in exact.items():
        decoded[offset]["fact"].pop("v")
        assert row == decoded[offset]
    assert all(row in made for row in exact_rows)
