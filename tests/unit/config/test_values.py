"""Addresses, node ranges, stores and patterns, one text at a time."""

import contextlib
import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config.addresses import is_loopback, may_collide, parse_address, parse_host, parse_nodes
from headgate.config.values import (
    FrozenMap,
    Store,
    flat_settings,
    parse_group_patterns,
    parse_store,
    topic_name,
    topic_prefix,
)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("localhost:1", "localhost", 1),
        ("kafka_1.internal.:65535", "kafka_1.internal.", 65535),
        ("[::1]:9092", "::1", 9092),
        ("[2001:DB8:0::1]:9092", "2001:db8::1", 9092),
        ("[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        ("0.0.0.0:9092", "0.0.0.0", 9092),
    ],
)
def test_an_address_is_host_and_port(text: str, host: str, port: int) -> None:
    address = parse_address(text)
    assert address == (host, port)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", ":9092", "localhost", "localhost:", "localhost:0", "localhost:65536", "localhost:+1", "localhost:٣"),
        *("::1:9092", "[::1]", "[::1:9092", "::1]:9092", "[127.0.0.1]:1", "[localhost]:1", "1.2.3:1", "1.2.3.256:1"),
        *("-a:1", "a-:1", "a..b:1", "a b:1", "münchen:1", "a\n:1", "a" * 64 + ":1", "a." * 127 + ":1", "user@h:1"),
        *("http://h:1", "h:1,h:2", "h:1 ", "\udcff:1", "\0:1"),
    ],
)
def test_what_is_no_address_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|must be"):
        parse_address(text)


@given(st.text())
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    for parse in (parse_address, parse_nodes, parse_store):
        with contextlib.suppress(ValueError):
            parse(text)


@pytest.mark.parametrize(
    ("value", "nodes"),
    [
        ("0-2", (0, 1, 2)),
        ("7", (7,)),
        ("0-1,7, 3-4", (0, 1, 3, 4, 7)),
        ([2, 0, 1], (0, 1, 2)),
        ("0-999", tuple(range(1000))),
        ("1001-1003", (1001, 1002, 1003)),
    ],
)
def test_nodes_are_ids_in_order(value: object, nodes: tuple[int, ...]) -> None:
    assert parse_nodes(value) == nodes


@pytest.mark.parametrize(
    "value",
    [
        *("", "-1", "2-0", "0-1000", "0-500,600-1200", "0-1,1", "a", "0--1", "1-", "0-2-4", "٣", "1" * 5000),
        *(3, None, True, [], [True], [1.0], ["0"], [0, 0], [-1], [2**31], {"0": 1}),
    ],
    ids=repr,
)
def test_impossible_nodes_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_nodes(value)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "127.0.0.1:2", False),
        ("0.0.0.0:1", "10.0.0.1:1", True),
        ("10.0.0.1:1", "[::]:1", True),
        ("localhost:1", "127.0.0.1:1", True),
        ("[::1]:1", "LOCALHOST:1", True),
        ("[::1]:1", "127.0.0.1:1", False),
        ("10.0.0.1:1", "10.0.0.2:1", False),
        ("a.example:1", "A.example:1", True),
    ],
)
def test_listeners_collide_when_they_could_want_one_socket(one: str, other: str, expected: bool) -> None:
    assert may_collide(parse_address(one), parse_address(other)) is expected
    assert may_collide(parse_address(other), parse_address(one)) is expected


@pytest.mark.parametrize(
    ("text", "store"),
    [
        ("kafka:", Store("kafka")),
        ("memory:", Store("memory")),
        ("none", Store("none")),
        ("sqlite:/var/lib/t.db", Store("sqlite", "/var/lib/t.db")),
        ("plugin:a.b_c:Store", Store("plugin", "a.b_c:Store")),
    ],
)
def test_a_store_is_a_scheme_and_its_target(text: str, store: Store) -> None:
    assert parse_store(text) == store


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "kafka",
            "kafka:x",
            "memory:x",
            "sqlite:",
            "sqlite",
            "sqlite:\0",
            "postgresql://u@h/db",
            "none:",
        ),
        *("mysql://x", "plugin:", "plugin:a.b", "plugin:a:b:c", "plugin:a-b:C", "KAFKA:", 7, None, ["kafka:"]),
    ],
    ids=repr,
)
def test_an_unknown_store_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"write|needs|takes|must"):
        parse_store(text)


def test_a_stores_target_is_never_shown() -> None:
    store = Store("plugin", "hunter2")
    assert "hunter2" not in repr(store)
    assert "hunter2" not in str(store)


@pytest.mark.parametrize(
    ("patterns", "name", "expected"),
    [
        ({}, "anything \n at all", True),
        ({"allow": ["orders-*"]}, "orders-1", True),
        ({"allow": ["orders-*"]}, "Orders-1", False),
        ({"allow": ["orders-?"]}, "orders-12", False),
        ({"allow": ["a", "b"]}, "b", True),
        ({"deny": ["test-*"]}, "test-1", False),
        ({"allow": ["t*"], "deny": ["test-*"]}, "t1", True),
        ({"allow": ["[ab]"]}, "a", False),
        ({"allow": ["[ab]"]}, "[ab]", True),
        ({"allow": ["!x"]}, "!x", True),
        ({"allow": ["a.c"]}, "abc", False),
        ({"allow": ["*a*a*a*a*a*a*a*a*a*a*b"]}, "a" * 5000, False),
    ],
)
def test_a_group_is_looked_at_when_allowed_and_not_denied(patterns: object, name: str, expected: bool) -> None:
    assert parse_group_patterns(patterns).matches(name) is expected


@pytest.mark.parametrize(
    "value", ["*", [], {"allow": "*"}, {"allow": [1]}, {"allow": [""]}, {"permit": ["*"]}, {"allow": []}], ids=repr
)
def test_patterns_are_a_table_of_two_lists(value: object) -> None:
    with pytest.raises(ValueError, match=r"table|allows no group"):
        parse_group_patterns(value)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (topic_name, ["a.B_c-1"], ["", ".", "..", "a b", "a/b", "é", "x" * 250]),
        (topic_prefix(32), ["p" * 217], ["p" * 218, "", "__p", "a b"]),
    ],
)
def test_topic_names_and_prefixes_are_valid_in_kafka(
    check: Callable[[str], str], good: list[str], bad: list[str]
) -> None:
    assert [check(name) for name in good] == good
    for name in bad:
        with pytest.raises(ValueError, match="must"):
            check(name)


def test_spark_settings_are_flat_texts_however_toml_read_the_dots() -> None:
    nested = {"spark": {"sql": {"shuffle": {"partitions": 4}}}, "spark.ui.enabled": False, "spark.x": "y"}
    assert flat_settings(nested) == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false", "spark.x": "y"}


def test_a_frozen_map_is_a_value() -> None:
    one, same = FrozenMap({"b": 1, "a": 2}), FrozenMap({"a": 2, "b": 1})
    assert one == same
    assert hash(one) == hash(same)
    assert list(one) == ["b", "a"]
    assert pickle.loads(pickle.dumps(one)) == one
    assert not hasattr(one, "__setitem__")


def test_loopback_is_an_address_or_the_name_localhost() -> None:
    """The REST interface needs no tokens on a loopback address."""
    assert all(map(is_loopback, ("127.9.9.9", "::1", "LocalHost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.com")))


def test_an_advertised_host_may_have_brackets_and_never_a_port() -> None:
    assert parse_host("[::1]") == parse_host("::1") == "::1"
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_host("kafka:9092")
