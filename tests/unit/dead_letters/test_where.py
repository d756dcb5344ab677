"""The language of `--where`: what is selected, what is refused and where, and that texts and expressions agree."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.dead_letters.model.where import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_VALUES,
    AllOf,
    AnyOf,
    Compare,
    IsIn,
    IsLike,
    IsNull,
    Not,
    Where,
    WhereError,
    is_like,
    is_selected,
    parse_where,
    where_text,
)

COLUMNS: Any = {"reason": "text", "partition": "number", "at": "time", "copied": "flag", "key_hash": "text"}
ROW = {"reason": "it's timed out", "partition": 3, "at": 1794731901727, "copied": True, "key_hash": None}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("reason = 'it''s timed out'", True),
        ("reason != 'x' and partition >= 3", True),
        ("reason like '%timed%'", True),
        ("reason not like '%timed%'", False),
        ("reason like 'it_s timed out'", True),
        ("partition in (1, 2, 3)", True),
        ("partition not in (3)", False),
        ("partition <> 3 or copied", True),
        ("not copied", False),
        ("copied = false", False),
        ("at < '2026-11-15T08:38:22Z'", True),
        ("at < '2026-11-15T09:38:21+01:00'", False),
        ("at = 1794731901727", True),
        ("at = 1 or partition = 3", True),
        ("partition = 1 or partition = 3 and copied", True),
        ("(partition = 1 or partition = 3) and not copied", False),
        ("NOT (partition = 1) AND copied", True),
        ("key_hash is null", True),
        ("key_hash is not null", False),
        ("partition > -9223372036854775808", True),
    ],
)
def test_an_expression_selects_by_the_values_of_columns(text: str, selected: bool) -> None:
    assert is_selected(parse_where(text, COLUMNS), ROW) is selected


@pytest.mark.parametrize("text", ["key_hash = 'a'", "key_hash != 'a'", "not (key_hash = 'a')", "key_hash like '%'"])
def test_a_comparison_with_null_selects_no_row(text: str) -> None:
    assert not is_selected(parse_where(text, COLUMNS), ROW)


def test_null_decides_nothing_that_another_part_decides() -> None:
    assert is_selected(parse_where("key_hash = 'a' or copied", COLUMNS), ROW)
    assert is_selected(parse_where("not (key_hash = 'a' and not copied)", COLUMNS), ROW)


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("resaon = 'x'", 0, "there is no column resaon; did you mean reason?"),
        ("copied and zzz = 1", 11, "there is no column zzz; the columns are at, copied,"),
        ("partition = 'x'", 12, "partition is a whole number"),
        ("partition = 1.5", 12, "numbers are whole"),
        ("reason = 5", 9, "reason is a text"),
        ('reason = "x"', 9, "single quotes"),
        ("reason = 'x", 9, "no closing quote"),
        ("at > 'yesterday'", 5, "at is a time"),
        ("copied > true", 7, "has no order"),
        ("copied = 1", 9, "copied is true or false"),
        ("partition like '%'", 15, "is not a text"),
        ("reason like 'a\\_'", 12, "backslash"),
        ("reason like '" + "%" * 201 + "'", 12, "at most 200 characters"),
        ("partition", 9, "expected a comparison"),
        ("partition not 5", 14, "expected a comparison"),
        ("copied copied", 7, "expected and, or"),
        ("(copied", 7, "closing parenthesis"),
        ("reason is 5", 10, "expected null"),
        ("partition in ()", 14, "partition is a whole number"),
        ("partition in 5", 13, "in parentheses"),
        ("partition = 99999999999999999999", 12, "at most 19 digits"),
        ("partition = 9999999999999999999", 12, "at most 64 bits"),
        ("and", 0, "expected a column"),
        ("", 0, "expected a column"),
        ("copied; drop", 6, "not part of an expression"),
    ],
)
def test_an_error_points_at_the_place(text: str, position: int, words: str) -> None:
    with pytest.raises(WhereError) as raised:
        parse_where(text, COLUMNS)
    assert words in str(raised.value)
    assert raised.value.position == position
    caret = str(raised.value).splitlines()[-1]
    shown = str(raised.value).splitlines()[-2]
    assert text[position : position + 1] == shown[len(caret) - 1 : len(caret)]


@pytest.mark.parametrize(
    "text",
    [
        "copied and " * (MAX_CHARACTERS // 11 + 1) + "copied",
        "(" * (MAX_DEPTH + 1) + "copied" + ")" * (MAX_DEPTH + 1),
        "not " * (MAX_DEPTH + 1) + "copied",
        f"partition in ({', '.join(['1'] * (MAX_VALUES + 1))})",
    ],
)
def test_size_and_depth_are_bounded(text: str) -> None:
    with pytest.raises(WhereError, match=r"longer than|deeper than|more than"):
        parse_where(text, COLUMNS)


def test_a_pattern_takes_time_that_is_bounded_by_the_lengths() -> None:
    assert not is_like("a" * 500, "%a" * 99 + "b")  # exponential for a backtracking regular expression


@settings(max_examples=60)
@given(st.text("ab%_", max_size=8), st.text("ab%_", max_size=6))
def test_patterns_match_as_regular_expressions_do(text: str, pattern: str) -> None:
    meant = "".join({"%": ".*", "_": "."}.get(char, re.escape(char)) for char in pattern)
    assert is_like(text, pattern) is (re.fullmatch(meant, text, re.DOTALL) is not None)


_words = st.text(max_size=5)
_numbers = st.integers(-(2**63), 2**63 - 1)
_leaves: st.SearchStrategy[Where] = st.one_of(
    st.builds(Compare, st.just("reason"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), _words),
    st.builds(Compare, st.sampled_from(["partition", "at"]), st.sampled_from(["=", "<", ">="]), _numbers),
    st.builds(Compare, st.just("copied"), st.sampled_from(["=", "!="]), st.booleans()),
    st.builds(IsIn, st.just("key_hash"), st.lists(_words, min_size=1, max_size=3).map(tuple)),
    st.builds(IsLike, st.just("reason"), st.text("ab%_'", max_size=5)),
    st.builds(IsNull, st.sampled_from(sorted(COLUMNS))),
)
_expressions = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: AllOf(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: AnyOf(tuple(parts))),
    ),
    max_leaves=6,
)


@settings(max_examples=60)
@given(_expressions)
def test_the_text_of_an_expression_is_parsed_to_the_same_expression(where: Where) -> None:
    assert parse_where(where_text(where), COLUMNS) == where


@settings(max_examples=60)
@given(_expressions, st.one_of(st.none(), _words), st.one_of(st.none(), _numbers), st.one_of(st.none(), st.booleans()))
def test_a_row_and_its_complement_are_not_both_selected(
    where: Where, word: str | None, number: int | None, truth: bool | None
) -> None:
    row = {"reason": word, "partition": number, "at": number, "copied": truth, "key_hash": word}
    assert not (is_selected(where, row) and is_selected(Not(where), row))


@settings(max_examples=60)
@given(st.text("abcopied ()'=<>!,0-%\n\"", max_size=40))
def test_any_text_is_an_expression_or_a_where_error(text: str) -> None:
    try:
        where = parse_where(text, COLUMNS)
    except WhereError:
        return
    is_selected(where, ROW)
