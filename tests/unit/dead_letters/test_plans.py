"""The rules of replay plans: where records may go, and what fences two replays."""

from dataclasses import replace

import pytest

from headgate.dead_letters.model.plans import (
    PLANNABLE,
    WHERE_COLUMNS,
    ReplayRules,
    new_plan_id,
    other_readers,
    transactional_id,
)
from headgate.dead_letters.model.where import is_selected
from headgate.tables.definitions import TABLES
from headgate.tables.reader import kind_of
from headgate.tables.table import time_unit

RULES = ReplayRules(
    topics=("orders", "billing.*"), dlq_prefix="dlq.", facts_prefix="headgate.", dlq_topics={"orders-errors"}
)


@pytest.mark.parametrize("topic", ["orders", "billing.eu"])
def test_a_topic_of_the_list_is_allowed(topic: str) -> None:
    assert RULES.target_refusal(topic) is None


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("orders2", "not in [replay] topics"),
        ("dlq.orders", "is a dead-letter topic"),
        ("orders-errors", "is a dead-letter topic"),
        ("headgate.state", "belongs to Kafka or Headgate"),
        ("headgate-replay.progress", "belongs to Kafka or Headgate"),
        ("__consumer_offsets", "belongs to Kafka or Headgate"),
    ],
)
def test_other_topics_are_refused_even_if_every_name_is_allowed(topic: str, words: str) -> None:
    assert words in (RULES.target_refusal(topic) or "")
    if topic != "orders2":
        assert words in (replace(RULES, topics=("*",)).target_refusal(topic) or "")
        assert words in (replace(RULES, parking_topic=topic).parking_refusal() or "")


def test_without_a_list_nothing_is_allowed() -> None:
    assert replace(RULES, topics=()).target_refusal("orders") is not None


def test_a_bracket_in_the_list_is_no_pattern() -> None:
    assert replace(RULES, topics=("[o]rders",)).target_refusal("orders") is not None


def test_parking_needs_no_entry_in_the_list() -> None:
    assert replace(RULES, parking_topic="parked").parking_refusal() is None
    assert RULES.parking_refusal() is None


def test_the_transactional_id_is_one_for_each_group_and_target() -> None:
    ids = {transactional_id("p-", group, target) for group in ("a", "ab", "\udcff" * 300) for target in ("bc", "c")}
    assert len(ids) == 6
    assert all(len(one) == 34 and one.startswith("p-") for one in ids)
    assert transactional_id("p-", "a", "bc") == transactional_id("p-", "a", "bc")


def test_readers_are_all_but_the_group_itself() -> None:
    edges = [
        {"actor_kind": kind, "app_id": name, "direction": direction}
        for kind, name, direction in (
            ("share_group", "sg", "read"),
            ("consumer_group", "sg", "read"),
            ("streams", "totals", "read"),
            ("streams", "totals", "read"),
            ("connector", "src", "write"),
        )
    ]
    assert other_readers(edges, "sg") == ("consumer_group sg", "streams totals")
    assert other_readers([], "sg") == ()


def test_without_a_map_the_readers_are_not_known() -> None:
    assert "unknown" in other_readers(None, "sg")[0]


def test_plans_sort_by_time() -> None:
    assert min(new_plan_id(1794731902000, b"\x00"), new_plan_id(1794731901000, b"\xff")).endswith("-ff")


def test_the_columns_of_where_are_those_of_the_table_with_their_kinds() -> None:
    table = TABLES["dead_letters"]
    for name, kind in WHERE_COLUMNS.items():
        column = table.columns.field(name)
        python = {"text": str, "number": int, "time": int, "flag": bool}[kind]
        assert kind_of(column) is python, name
        assert (time_unit(column) == "milliseconds") is (kind == "time"), name


@pytest.mark.parametrize(
    ("letter", "is_planned"),
    [
        ({}, True),
        ({"topic_id": ""}, False),
        ({"topic_id": "", "copied": True}, True),
        ({"topic_id": "name:orders"}, False),
        ({"topic_id": "name:orders", "copied": True}, True),
        ({"topic": None, "copied": True}, False),
        ({"withdrawn": True}, False),
    ],
)
def test_a_dead_letter_is_planned_that_identifies_its_record_or_has_a_copy(
    letter: dict[str, object], is_planned: bool
) -> None:
    known = {"withdrawn": False, "topic": "orders", "topic_id": "id", "copied": False}
    assert is_selected(PLANNABLE, known | letter) is is_planned
