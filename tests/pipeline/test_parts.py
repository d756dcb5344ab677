"""A batch whose rows would take too much is written in parts, and leaves the tables of a whole batch."""

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from headgate.facts import TopologyDeleted
from headgate.facts.topology import Description, SourceNode, Subtopology
from headgate.pipeline import facts_query
from headgate.pipeline.batches import Moment, upsert
from headgate.pipeline.facts_query import FactsBatches
from headgate.pipeline.queries import FACTS, Query
from headgate.tables.writer import TableWriter
from tests.pipeline.estate import Estate
from tests.pipeline.histories import described, history
from tests.pipeline.test_facts_query import KilledError, assert_tables_are_right, cluster_of

MIB = 1024 * 1024


def large(name: str) -> Description:
    """About a megabyte, most of it in names."""
    nodes = tuple(SourceNode(name=f"{name} {number} " + "x" * 10_000, topics=("t",)) for number in range(100))
    return Description(subtopologies=(Subtopology(id="0", nodes=nodes),))


def in_parts(max_bytes: int) -> Query:
    return replace(FACTS, batches=partial(FactsBatches, max_part_bytes=max_bytes))


def test_parts_leave_the_tables_of_a_whole_batch_also_after_a_kill(estate: Estate) -> None:
    chance = random.Random(7)
    estate.write(*history(chance, 20))
    assert estate.run()
    estate.write(*history(chance, 30))
    written = 0

    def kill(moment: Moment, table: str) -> None:
        nonlocal written
        written += (moment, table) == ("after", "applications")
        if written == 2:
            raise KilledError

    with pytest.raises(Exception, match="the query ended"):
        estate.run(in_parts(500_000), on_moment=kill)
    assert written == 2, "the batch has parts"
    assert estate.run(in_parts(500_000))
    assert_tables_are_right(estate, cluster_of(estate))


def test_collected_rows_are_bounded_however_large_the_records(estate: Estate, monkeypatch: pytest.MonkeyPatch) -> None:
    """New descriptions, and then facts without any that end them: what is ended counts too."""
    query = in_parts(5 * MIB // 2)
    collected: list[int] = []

    def spy(writer: TableWriter, rows: pa.Table, **more: Any) -> None:
        collected.append(rows.nbytes)
        upsert(writer, rows, **more)

    monkeypatch.setattr(facts_query, "upsert", spy)
    estate.write(*(described(f"g{number}", large(f"g{number}"), at=number) for number in range(4)))
    assert estate.run(query)
    assert sum(collected) > 8 * MIB
    estate.write(*(TopologyDeleted(at=99, group=f"g{number}", incarnation="1") for number in range(4)))
    assert estate.run(query)
    assert max(collected) < 3 * MIB
    assert all(row["ended_at"] == 99 for row in estate.rows("topology_versions").values())
    assert len(estate.rows("topology_versions")) == 4
