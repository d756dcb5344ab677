"""Any fact at all, for Hypothesis: drawn from the dataclasses themselves, so that a new fact needs no word here."""

import dataclasses
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from headgate.facts.canonical import JsonText
from headgate.facts.codec import FORMS
from headgate.facts.forms import Form
from headgate.facts.shapes import Struct, Whole

ODD = ["", "\0", "\x1b[31m", '"', "\\", "\u2028", "é", "😀", "\udc80", "a\udcffb", "deleted", "../..", "x" * 40_000]

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def texts() -> st.SearchStrategy[str]:
    # Surrogates of names that were no UTF-8 are low ones: they never pair up to another character.
    low_surrogates = st.integers(0xDC80, 0xDCFF).map(chr)
    return st.text(st.characters(codec="utf-8") | low_surrogates, max_size=12) | st.sampled_from(ODD)


def extras(known: set[str]) -> st.SearchStrategy[tuple[tuple[str, JsonText], ...]]:
    names = texts().filter(lambda name: name not in known)
    return st.dictionaries(names, JSON, max_size=2).map(
        lambda fields: tuple(sorted((name, JsonText.of(value)) for name, value in fields.items()))
    )


def of_class(cls: type[Any], known: set[str], bounds: dict[str, Whole]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls)
    fields = {
        field.name: extras(known) if field.name == "extra" else of_type(hints[field.name], bounds.get(field.name))
        for field in dataclasses.fields(cls)
    }
    return st.builds(cls, **fields)


def of_type(hint: Any, bounds: Whole | None) -> st.SearchStrategy[Any]:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return st.sampled_from(args)
    if origin in {Union, types.UnionType}:
        return st.one_of(*(of_type(arg, bounds) for arg in args))
    if hint == tuple[tuple[int, int], ...]:
        return st.dictionaries(st.integers(0, 99999), st.integers(0, 2**40), max_size=3).map(
            lambda counts: tuple(sorted(counts.items()))
        )
    if origin is tuple:
        return st.lists(of_type(args[0], None), max_size=3).map(tuple)
    if hint is type(None):
        return st.none()
    if hint is str:
        return texts()
    if hint is int:
        whole = bounds or Whole()
        return st.integers(whole.low, whole.high)
    if hint is JsonText:
        return st.dictionaries(st.text(max_size=5), JSON, max_size=3).map(JsonText.of)
    return of_class(hint, KNOWN[hint], {})


def _structs(kind: Any) -> list[Struct]:
    if isinstance(kind, Struct):
        return [kind, *(found for member in kind.members for found in _structs(member.kind))]
    if hasattr(kind, "structs"):
        return [found for struct in kind.structs.values() for found in _structs(struct)]
    return _structs(kind.kind) if hasattr(kind, "kind") else []


KNOWN: dict[type[Any], set[str]] = {
    struct.cls: {"type", *(member.name for member in struct.members)}
    for form in FORMS
    for member in form.value or ()
    for struct in _structs(member.kind)
}


def _bare(kind: Any) -> Any:
    return kind.kind if hasattr(kind, "kind") else kind


def of_form(form: Form) -> st.SearchStrategy[Any]:
    members = [part for part in (*form.key, *(form.value or ())) if not isinstance(part, str)]
    bounds = {member.target: _bare(member.kind) for member in members if isinstance(_bare(member.kind), Whole)}
    known = {"v", *(member.name for member in members)}
    return of_class(form.cls, known, bounds).map(_whole_origin)


def _whole_origin(fact: Any) -> Any:
    """Writer, boot and seq come together, and activity has them always."""
    if not hasattr(fact, "writer"):
        return fact
    parts = (fact.writer, fact.boot, fact.seq)
    if type(fact).__name__ == "ActivityObserved" or (None in parts and any(part is not None for part in parts)):
        return dataclasses.replace(
            fact, writer=fact.writer or "gw/0", boot=fact.boot or "b", seq=0 if fact.seq is None else fact.seq
        )
    return fact


FACTS = st.one_of(*(of_form(form) for form in FORMS))
