"""Ids in the place of names: each name is asked for once, and only for the cluster that is asked."""

from collections.abc import Collection

import pyarrow as pa

from headgate.pipeline.topic_ids import TopicIds

SCHEMA = pa.schema([("cluster_id", pa.string()), ("in_topic_id", pa.string()), ("out_topic_id", pa.string())])


def rows(*values: tuple[str, str | None, str | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, one, strict=True)) for one in values], SCHEMA)


def test_names_become_ids() -> None:
    asked: list[list[str]] = []

    def ask(names: Collection[str]) -> dict[str, str]:
        asked.append(sorted(names))
        return {name: f"id of {name}" for name in names if name != "gone"}

    ids = TopicIds("own", ask)
    found = ids.put_in(rows(("own", "a", "gone"), ("own", "a", None), ("other", "b", "a"), ("own", "", "c")))
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("own", "id of a", None),
        ("own", "id of a", None),
        ("other", None, None),
        ("own", None, "id of c"),
    ]
    assert found.schema == SCHEMA
    ids.put_in(rows(("own", "a", "d")))
    assert asked == [["a", "c", "gone"], ["d"]]
    ids.forget()
    ids.put_in(rows(("own", "a", None)))
    assert asked[2:] == [["a"]], "another batch asks anew"


def test_rows_without_topics_ask_nobody() -> None:
    plain = pa.table({"cluster_id": ["own"], "name": ["x"]})
    assert TopicIds("own", lambda _: 1 / 0).put_in(plain) is plain  # type: ignore[arg-type,return-value]
