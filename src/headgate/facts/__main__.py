"""`python -m headgate.facts` prints the tables of fields in `docs/facts.md`; a test compares them."""

from headgate.facts.codec import COMMON_FIELDS, FORMS, FactForm, flat_members
from headgate.facts.json_form import (
    INT32_MAX,
    INT64_MAX,
    Counts,
    FieldType,
    FreeObject,
    Many,
    Member,
    Nullable,
    ObjectType,
    OneOf,
    Time,
    Variant,
    Whole,
)


def fields_table(form: FactForm) -> str:
    """The fields of a fact as a Markdown table, without the common fields of the value."""
    key = {part.name for part in form.key if isinstance(part, Member)}
    value = set() if form.value is None else {member.name for member in form.value.members}
    lines = ["| field | in | type | meaning |", "|---|---|---|---|"]
    for path, member in flat_members(form):
        if path in key or path not in {"at", *COMMON_FIELDS}:
            place = ", ".join(name for name, fields in (("key", key), ("value", value)) if path.split(".")[0] in fields)
            lines.append(f"| `{path}` | {place} | {_words(member.type)} | {member.meaning} |")
    return "\n".join(lines)


def _words(kind: FieldType) -> str:
    match kind:
        case Nullable():
            return f"{_words(kind.item)}, or null"
        case Time():
            return f"epoch {kind.unit}"
        case Whole():
            size = "32-bit number" if kind.high == INT32_MAX else "whole number"
            bound = "" if kind.high in {INT32_MAX, INT64_MAX} else f" to {kind.high}"
            return f"{size} from {kind.low}{bound}"
        case OneOf():
            return ", ".join(f"`{name}`" for name in kind.names)
        case Counts():
            return "object from numbers to counts"
        case FreeObject():
            return "any object"
        case ObjectType():
            return "object"
        case Many(item=ObjectType() | Variant()):
            return "list of objects"
        case Many():
            return f"list: {_words(kind.item)}"
        case _:
            return "text"


if __name__ == "__main__":
    for form in FORMS:
        print(f"{form.cls.__name__}\n\n{fields_table(form)}\n")
