"""Any fact, for Hypothesis: drawn from the declarations, so that a new fact needs no line here."""

import dataclasses
from typing import Any

from hypothesis import strategies as st

from headgate.facts.codec import FORMS, FactForm
from headgate.facts.json_form import (
    Counts,
    FieldType,
    FreeObject,
    JsonText,
    Many,
    Member,
    Nullable,
    ObjectType,
    OneOf,
    Variant,
    Whole,
)

ODD = ["", "\0", "\x1b[31m", '"', "\\", "\u2028", "é", "😀"]
ODD += ['"],["', "\\u0000", "\ud800x", "\udc80", "a\udcffb", "deleted", "../..", "x" * 40_000]

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
    # Surrogates of names that were not UTF-8 are low ones: they never pair up to another character.
    low_surrogates = st.integers(0xDC80, 0xDCFF).map(chr)
    return st.text(st.characters(codec="utf-8") | low_surrogates, max_size=12) | st.sampled_from(ODD)


def values(kind: FieldType) -> st.SearchStrategy[Any]:
    match kind:
        case Whole():
            return st.integers(kind.low, kind.high)
        case OneOf():
            return st.sampled_from(kind.names)
        case Nullable():
            return st.none() | values(kind.item)
        case Many():
            return st.lists(values(kind.item), max_size=3).map(tuple)
        case Counts():
            counts = st.dictionaries(st.integers(0, 99999), st.integers(0, 2**40), max_size=3)
            return counts.map(lambda found: tuple(sorted(found.items())))
        case FreeObject():
            return st.dictionaries(st.text(max_size=5), JSON, max_size=3).map(JsonText.of)
        case ObjectType():
            return objects(kind.cls, kind.members)
        case Variant():
            return st.one_of(*map(values, kind.objects.values()))
        case _:
            return texts()


def objects(cls: type[Any], members: tuple[Member, ...]) -> st.SearchStrategy[Any]:
    known = {"v", "type", *(member.name for member in members)}
    later = st.dictionaries(texts().filter(lambda name: name not in known), JSON, max_size=2)
    extra = later.map(lambda found: tuple(sorted((name, JsonText.of(value)) for name, value in found.items())))
    fields = {member.attribute: values(member.type) for member in members}
    has_extra = any(field.name == "extra" for field in dataclasses.fields(cls))
    return st.builds(cls, **fields, **({"extra": extra} if has_extra else {}))


def of_form(form: FactForm) -> st.SearchStrategy[Any]:
    return objects(form.cls, form.members).map(_whole_origin)


def _whole_origin(fact: Any) -> Any:
    """Writer, boot and seq come together."""
    parts = {name: getattr(fact, name, None) for name in ("writer", "boot", "seq")}
    if set(parts.values()) == {None} or None not in parts.values():
        return fact
    filled = {"writer": "gw/0", "boot": "b", "seq": 0}
    return dataclasses.replace(
        fact, **{name: filled[name] if value is None else value for name, value in parts.items()}
    )


FACTS = st.one_of(*map(of_form, FORMS))
