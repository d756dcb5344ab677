r"""Records that are exactly as `encode` writes them, as a regular expression made from the declaration of a fact.

A reader that has no `decode` (Spark's own functions) may take the fields of a record straight from its JSON when the
record matches: then every field is there once, in its order, with its type and within its bounds, nothing else is, and
key and value agree.

Invariant: a match is never wrong. A record in doubt does not match and is left to `decode`: one with an escape in a
text, with fields of a later version, with a number close to its bound, with a delivery count above ten. The converse
does not hold.

The expression means the same to Python and to Java. It repeats nothing but single characters and, without going back,
the numbers of a list, so that a long text or list costs no stack. The caller has to match it from the first to the last
character, and to check that the bytes are UTF-8.
"""

import re
from collections.abc import Iterable, Mapping

from headgate.facts.codec import ORIGIN_FIELDS, VERSION, FactForm
from headgate.facts.json_form import Counts, FieldType, Many, Member, Nullable, ObjectType, OneOf, Text, Whole

# Between key and value. No control character stands in a record that matches, so it is in one place only.
SEPARATOR = "\n"
_TEXT = r'"[^"\\\x00-\x1f]*+"'
# Share groups deliver a record at most ten times; zero stands for an unknown count.
_DELIVERY_COUNTS = range(11)


class _NoExactFormError(Exception):
    """The form has a field that no expression describes."""


def exact_pattern(form: FactForm) -> str | None:
    """The expression for key, `SEPARATOR` and value; None for facts such as a tombstone, or one with nested lists."""
    if form.value is None:
        return None
    try:
        key, captured = _key(form)
        return f"{key}{SEPARATOR}{_value(form.value, captured)}"
    except _NoExactFormError:
        return None


def _key(form: FactForm) -> tuple[str, Mapping[str, int]]:
    """The expression of the key, and the number of the group that captures each field."""
    parts: list[str] = []
    captured: dict[str, int] = {}
    for part in form.key:
        if isinstance(part, Member):
            captured[part.attribute] = len(captured) + 1
            parts.append(f"({_pattern(part.type)})")
        else:
            parts.append(re.escape(f'"{part}"'))
    return rf"\[{','.join(parts)}\]", captured


def _value(kind: ObjectType, captured: Mapping[str, int]) -> str:
    """The expression of the value: a field that the key has too is the same text as there."""
    own = [member for member in kind.members if not member.omit_null]
    optional = [member for member in kind.members if member.omit_null]
    origin = [member for member in optional if member.name in ORIGIN_FIELDS]
    others = [[member] for member in optional if member.name not in ORIGIN_FIELDS]
    # The fields of the origin are all there or none of them is.
    groups = [*others, *([origin] if origin else [])]
    if tuple(own + [member for group in groups for member in group]) != kind.members:
        raise _NoExactFormError
    end = "".join(f"(?:{''.join(f',{text}' for text in _fields(group, captured))})?" for group in groups)
    return rf'\{{"v":{VERSION},{",".join(_fields(own, captured))}{end}\}}'


def _fields(members: Iterable[Member], captured: Mapping[str, int]) -> list[str]:
    return [
        f'"{re.escape(member.name)}":'
        + (rf"\{captured[member.attribute]}" if member.attribute in captured else _pattern(_written(member)))
        for member in members
    ]


def _written(member: Member) -> FieldType:
    """The type of a field that is there: one that is left out when it is null is never written as null."""
    return member.type.item if member.omit_null and isinstance(member.type, Nullable) else member.type


def _pattern(kind: FieldType) -> str:
    match kind:
        case Text():
            return _TEXT
        case Whole():
            return _whole(kind)
        case OneOf():
            return f'"(?:{"|".join(map(re.escape, kind.names))})"'
        case Nullable():
            return f"(?:null|{_pattern(kind.item)})"
        case Counts():
            # In ascending order, so that no number comes twice.
            counts = (f'(?:"{number}":{_whole(Whole())}(?:,(?=")|(?=[}}])))?' for number in _DELIVERY_COUNTS)
            return rf"\{{{''.join(counts)}\}}"
        case Many(item=Whole() | Nullable(item=Whole())):
            item = _pattern(kind.item)
            return rf"\[(?:{item}(?:,{item})*+)?+\]"
        case ObjectType() if kind.tag is None and not any(member.omit_null for member in kind.members):
            return rf"\{{{','.join(_fields(kind.members, {}))}\}}"
        case _:
            raise _NoExactFormError


def _whole(kind: Whole) -> str:
    """Numbers with fewer digits than the upper bound, so that none exceeds it."""
    digits = len(str(kind.high)) - 1
    if digits < 1 or kind.low > 1:
        raise _NoExactFormError
    positive = f"[1-9][0-9]{{0,{digits - 1}}}"
    return positive if kind.low == 1 else f"(?:0|{positive})"
