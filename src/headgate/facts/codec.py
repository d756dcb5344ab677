"""Facts as records: the declaration of a fact, and `encode` and `decode`, which every writer and reader uses.

A fact is one dataclass under `@fact`. Its JSON form, its Spark schema (`spark_schema`), its columns in a table and its
table in `docs/facts.md` all come from the annotations of its fields.

Invariants: `decode` never raises, whatever the topic holds; `encode` gives the same bytes for equal facts.
`docs/facts.md`, "Versions", has the rules for changing a fact.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, dataclass_transform

from headgate.facts.json_form import (
    INT32_MAX,
    OMIT_NULL,
    Counts,
    Extra,
    FieldType,
    FreeObject,
    Many,
    Member,
    MisfitError,
    Nullable,
    ObjectType,
    Time,
    Variant,
    Whole,
    dumps,
    loads,
    members_of,
)

VERSION = 1  # of all schemas: the one that this release writes, and the highest that it reads
# Of a record's key and value together, far above any fact of the small topics. Readers of `topologies` pass the topic's
# own limit (topics.message_limit).
MAX_FACT_BYTES = 1024 * 1024

C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A fact that has a value.

    `writer`, `boot` and `seq` come together; with them a duplicate is recognised wherever it occurs. Headgate's writers
    fill them and `cluster`; a reader accepts facts without them.
    """

    at: Annotated[int, "when it became so, by the writer's clock", Time()]
    cluster: Annotated[str | None, "the id of the cluster that the fact is about", OMIT_NULL] = None
    writer: Annotated[str | None, "the gateway and its worker that wrote it", OMIT_NULL] = None
    boot: Annotated[str | None, "one run of that process", OMIT_NULL] = None
    seq: Annotated[int | None, "counted from 0 within that run", OMIT_NULL] = None
    extra: Extra = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A fact whose value is null: the state under this key has ended, and compaction removes the key in time."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that is not a fact known to this release, and why. A bad record stops no reader."""

    reason: str


ORIGIN_FIELDS = ("writer", "boot", "seq")
COMMON_FIELDS = ("cluster", *ORIGIN_FIELDS)


@dataclass(frozen=True, slots=True)
class FactForm:
    """The record of a fact: its topic's suffix, its key (constants and members), its value (None for a tombstone)."""

    cls: type[Any]
    topic: str
    key: tuple[str | Member, ...]
    value: ObjectType | None
    members: tuple[Member, ...]  # each field once: those that only the key has, then those of the value

    def fits(self, key: list[Any], *, tombstone: bool) -> bool:
        """Whether a key is of this form, by its length and its constants."""
        return (
            len(key) == len(self.key)
            and tombstone == (self.value is None)
            and all(isinstance(part, Member) or part == raw for part, raw in zip(self.key, key, strict=True))
        )

    def read(self, key: list[Any], value: Any) -> Any:
        found: dict[str, Any] = {
            part.attribute: part.type.read(raw, f"key[{index}]")
            for index, (part, raw) in enumerate(zip(self.key, key, strict=True))
            if isinstance(part, Member)
        }
        if self.value is None:
            return self.cls(**found)
        if type(value) is not dict:
            raise MisfitError("the value must be an object")
        _check_version(value)
        fields = self.value.attributes(value, "", ("v",))
        for name, of_key in found.items():
            if fields.setdefault(name, of_key) != of_key:
                raise MisfitError(f"key and value disagree about {name}")
        if len({fields[name] is None for name in ORIGIN_FIELDS}) > 1:
            raise MisfitError("writer, boot and seq come together")
        return self.cls(**fields)

    def write(self, fact: Any) -> tuple[list[Any], dict[str, Any] | None]:
        key = [
            part.type.write(getattr(fact, part.attribute)) if isinstance(part, Member) else part for part in self.key
        ]
        return key, None if self.value is None else {"v": VERSION} | self.value.write(fact)


def _check_version(value: dict[str, Any]) -> None:
    version = value.get("v")
    if type(version) is not int or version < 1:
        raise MisfitError("v must be a schema version, a whole number from 1")
    if version > VERSION:
        raise MisfitError(f"v is a schema version above {VERSION}, the newest known: upgrade this reader")


FORMS: list[FactForm] = []
_BY_CLASS: dict[type[object], FactForm] = {}
_BY_TOPIC: dict[str, list[FactForm]] = {}


@dataclass_transform(frozen_default=True, kw_only_default=True)
def fact(
    *, topic: str, key: tuple[str, ...], key_in_value: bool = False, first: str = "at"
) -> Callable[[type[C]], type[C]]:
    """Declare a fact: makes the class a frozen dataclass with slots, and registers its form.

    `key` has names of fields, which are never null in it; any other text is a constant of the key. Fields of the key
    are not in the value, unless `key_in_value`. The value begins with the field `first`, then has `at`, the fields of
    the class and the common fields.
    """

    def declare(cls: type[C]) -> type[C]:
        made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        fields = {member.attribute: member for member in members_of(made)}
        parts = tuple(_never_null(fields[name]) if name in fields else name for name in key)
        own = (name for name in fields if name not in COMMON_FIELDS)
        order = dict.fromkeys((first, "at", *own, *COMMON_FIELDS))
        members = tuple(fields[name] for name in order if key_in_value or name not in key) if "at" in fields else ()
        only_in_key = (part for part in parts if isinstance(part, Member) and not key_in_value)
        value = ObjectType(made, members) if members else None
        form = FactForm(made, topic, parts, value, (*only_in_key, *members))
        FORMS.append(form)
        _BY_CLASS[made] = form
        _BY_TOPIC.setdefault(topic, []).append(form)
        return made

    return declare


def _never_null(member: Member) -> Member:
    kind = member.type.item if isinstance(member.type, Nullable) else member.type
    return Member(member.name, member.attribute, kind, member.meaning)


def encode(fact: Fact | Ended) -> tuple[str, bytes, bytes | None]:
    """The topic's suffix, the record's key, and its value, None for a fact that ends another."""
    form = _BY_CLASS[type(fact)]
    key, value = form.write(fact)
    return form.topic, dumps(key), None if value is None else dumps(value)


def decode(
    topic: str, key: bytes | None, value: bytes | None, *, max_bytes: int = MAX_FACT_BYTES
) -> Fact | Ended | Rejected:
    """The fact in a record of the topic with this suffix, or why there is none."""
    forms = _BY_TOPIC.get(topic)
    if forms is None:
        return Rejected("no facts are written to this topic")
    if key is None:
        return Rejected("the record has no key")
    size = len(key) + len(value or b"")
    if size > max_bytes:
        return Rejected(f"the record has {size} bytes, and at most {max_bytes} are read")
    try:
        return _decode(forms, key, value)
    except MisfitError as misfit:
        return Rejected(str(misfit))


def _decode(forms: list[FactForm], key: bytes, value: bytes | None) -> Fact | Ended | Rejected:
    try:
        parts = loads(key)
    except MisfitError as misfit:
        return Rejected(f"key: {misfit}")
    if type(parts) is not list:
        return Rejected("key: must be a JSON list")
    for form in forms:
        if form.fits(parts, tombstone=value is None):
            fact: Fact | Ended = form.read(parts, None if value is None else loads(value))
            return fact
    if any(form.fits(parts, tombstone=value is not None) for form in forms):
        return Rejected("the value is null, which means nothing for this key")
    return Rejected("key: no fact of this topic has such a key")


# --- schemas ----------------------------------------------------------------------------------------------------------


def form_of(cls: type[Fact] | type[Ended]) -> FactForm:
    return _BY_CLASS[cls]


def spark_schema(cls: type[Fact]) -> str:
    """The fields of a fact as Spark's DDL for `from_json`: `v`, those that only its key has, those of its value."""
    fields = (f"`{member.name}` {spark_type(member.type)}" for member in form_of(cls).members)
    return ", ".join(("`v` int", *fields))


def spark_type(kind: FieldType) -> str:
    """The type of a field in Spark's DDL; of an object without a schema, and of all texts, it is string."""
    match kind:
        case Whole():
            return "int" if kind.high <= INT32_MAX else "bigint"
        case Nullable():
            return spark_type(kind.item)
        case Many():
            return f"array<{spark_type(kind.item)}>"
        case Counts():
            return "map<string,bigint>"
        case ObjectType() | Variant():
            objects = (kind,) if isinstance(kind, ObjectType) else tuple(kind.objects.values())
            tag = {"type": "string"} if isinstance(kind, Variant) else {}
            fields = tag | {member.name: spark_type(member.type) for one in objects for member in one.members}
            return f"struct<{','.join(f'`{name}`:{inner}' for name, inner in fields.items())}>"
        case _:
            return "string"


_SURROGATE = re.compile("[\ud800-\udfff]")


def fields_text(fact: Fact | Ended) -> str:
    """All fields of a fact as one JSON object with the schema `spark_schema`, in plain UTF-8.

    A lone surrogate becomes a text in backslash form, and an object without a schema its text, character by character.
    """
    form = form_of(type(fact))
    fields = {
        member.name: getattr(fact, member.attribute).text
        if isinstance(member.type, FreeObject)
        else member.type.write(getattr(fact, member.attribute))
        for member in form.members
    }
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else _SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)


def flat_members(form: FactForm) -> list[tuple[str, Member]]:
    """Every field with its path in the JSON; a nested object of scalars becomes its fields, such as `actor.kind`."""
    found: list[tuple[str, Member]] = []
    for member in form.members:
        kind = member.type.item if isinstance(member.type, Nullable) else member.type
        if isinstance(kind, ObjectType) and all(spark_type(inner.type) == "string" for inner in kind.members):
            found += [(f"{member.name}.{inner.name}", inner) for inner in kind.members]
        else:
            found.append((member.name, member))
    return found
