"""The JSON form of a dataclass, derived from the annotations of its fields.

Invariants: reading raises nothing but `MisfitError`, whose text has the path of the value that does not fit; a value is
never converted; equal values are written as equal bytes. Fields that the dataclass does not have are kept in its
`extra` and written back.

Names come from clients and may hold anything: every text survives, a lone surrogate (from a name that was not UTF-8) as
its JSON escape. Only two lone surrogates that together spell one character come back as that character.
"""

import dataclasses
import json
import math
import types
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

MAX_DEPTH = 32
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class MisfitError(ValueError):
    """The bytes or values do not fit the declaration of a fact; the text is the reason of a `Rejected`."""


# --- JSON text --------------------------------------------------------------------------------------------------------


def dumps(value: object) -> bytes:
    """Compact UTF-8; the fields of an object keep their order."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # UTF-8 has no lone surrogates; Python's backslash form of them, \udc80, is JSON's escape too.
    return text.encode("utf-8", "backslashreplace")


def loads(data: bytes) -> object:
    """The value of a JSON text in UTF-8; texts that JSON parsers read differently raise `MisfitError`."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MisfitError(f"not UTF-8 at byte {error.start}") from None
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise MisfitError(f"not JSON: {error.msg} at character {error.pos}") from None
    except MisfitError:
        raise
    except ValueError:
        raise MisfitError("a number has thousands of digits") from None
    except RecursionError:
        raise MisfitError("nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise MisfitError("a field stands twice in one object")
    return fields


def _no_constant(_: str) -> NoReturn:
    raise MisfitError("NaN and Infinity are not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise MisfitError("a number is too large")
    return number


@dataclass(frozen=True, slots=True)
class JsonText:
    """Any JSON value as its compact text with sorted fields: frozen, hashable, equal when the values are equal.

    It carries values without a schema: the detail of an event, and the fields of a later version.
    """

    text: str

    @classmethod
    def of(cls, value: object) -> "JsonText":
        """Encodes lists, dictionaries, texts, numbers, booleans and None; raises `MisfitError` for anything else."""
        if _depth(value) > MAX_DEPTH:
            raise MisfitError(f"nested deeper than {MAX_DEPTH} levels")
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)
        except (TypeError, ValueError) as error:
            raise MisfitError(f"not a JSON value: {error}") from None
        return cls(text)

    def value(self) -> Any:
        return json.loads(self.text)


def _depth(value: object) -> int:
    """The depth of nested lists and objects; counting stops one above the limit."""
    depth = 0
    level: list[Any] = [value]
    while depth <= MAX_DEPTH:
        level = [item for item in level if isinstance(item, dict | list | tuple)]
        if not level:
            break
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


Extra = tuple[tuple[str, JsonText], ...]

# --- types of fields --------------------------------------------------------------------------------------------------


class FieldType(ABC):
    """Reads a JSON value and writes it back."""

    __slots__ = ()

    @abstractmethod
    def read(self, raw: Any, where: str) -> Any:
        """The value of a field; `MisfitError` with the path `where` when it does not fit."""

    def write(self, value: Any) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class Text(FieldType):
    """Any text."""

    def read(self, raw: Any, where: str) -> Any:
        if type(raw) is not str:
            raise MisfitError(f"{where} must be text")
        return raw


@dataclass(frozen=True, slots=True)
class Whole(FieldType):
    """A whole number between two bounds, both included; `1.0` and `true` do not fit."""

    low: int = 0
    high: int = INT64_MAX

    def read(self, raw: Any, where: str) -> Any:
        if type(raw) is not int or not self.low <= raw <= self.high:
            raise MisfitError(f"{where} must be a whole number from {self.low} to {self.high}")
        return raw


@dataclass(frozen=True, slots=True)
class Time(Whole):
    """A time as epoch milliseconds, or as epoch seconds."""

    unit: Literal["milliseconds", "seconds"] = "milliseconds"


@dataclass(frozen=True, slots=True)
class OneOf(FieldType):
    """One text of a closed set. Adding one raises the schema version, so that no reader misinterprets it."""

    names: tuple[str, ...]

    def read(self, raw: Any, where: str) -> Any:
        if type(raw) is not str or raw not in self.names:
            raise MisfitError(f"{where} must be one of {', '.join(self.names)}")
        return raw


@dataclass(frozen=True, slots=True)
class Nullable(FieldType):
    """A value or null; an absent field reads as null."""

    item: FieldType

    def read(self, raw: Any, where: str) -> Any:
        return None if raw is None else self.item.read(raw, where)

    def write(self, value: Any) -> Any:
        return None if value is None else self.item.write(value)


@dataclass(frozen=True, slots=True)
class Many(FieldType):
    """A list, as a tuple."""

    item: FieldType

    def read(self, raw: Any, where: str) -> Any:
        if type(raw) is not list:
            raise MisfitError(f"{where} must be a list")
        return tuple(self.item.read(item, f"{where}[{index}]") for index, item in enumerate(raw))

    def write(self, value: Any) -> Any:
        return [self.item.write(item) for item in value]


@dataclass(frozen=True, slots=True)
class Counts(FieldType):
    """An object from small numbers to counts, `{"1": 11, "2": 2}`, as pairs sorted by the number."""

    def read(self, raw: Any, where: str) -> Any:
        if type(raw) is not dict:
            raise MisfitError(f"{where} must be an object of counts")
        pairs = []
        for name, count in raw.items():
            if not (name.isascii() and name.isdigit() and len(name) <= 5 and str(int(name)) == name):
                raise MisfitError(f"{where} must have small whole numbers as names")
            pairs.append((int(name), Whole().read(count, f"{where}.{name}")))
        return tuple(sorted(pairs))

    def write(self, value: Any) -> Any:
        return {str(number): count for number, count in sorted(value)}


@dataclass(frozen=True, slots=True)
class FreeObject(FieldType):
    """An object without a schema, as `JsonText`."""

    def read(self, raw: Any, where: str) -> Any:
        if type(raw) is not dict:
            raise MisfitError(f"{where} must be an object")
        return JsonText.of(raw)

    def write(self, value: Any) -> Any:
        return value.value()


@dataclass(frozen=True, slots=True)
class JsonName:
    """Marks a field whose name in JSON is not its attribute's name."""

    name: str


class _OmitNull:
    """Marks a field that is left out instead of written as null."""


OMIT_NULL = _OmitNull()


@dataclass(frozen=True, slots=True)
class Member:
    """One field of a dataclass: its name in JSON, its attribute, its type and its meaning."""

    name: str
    attribute: str
    type: FieldType
    meaning: str = ""
    omit_null: bool = False


@dataclass(frozen=True, slots=True)
class ObjectType(FieldType):
    """A JSON object as a dataclass that has an `extra`; `tag` is the constant field `type`, written second."""

    cls: type[Any]
    members: tuple[Member, ...]
    tag: str | None = None

    def read(self, raw: Any, where: str) -> Any:
        return self.cls(**self.attributes(raw, where, () if self.tag is None else ("type",)))

    def attributes(self, raw: Any, where: str, consumed: tuple[str, ...] = ()) -> dict[str, Any]:
        """The arguments of the dataclass; the caller has read the `consumed` fields."""
        if type(raw) is not dict:
            raise MisfitError(f"{where or 'the value'} must be an object")
        prefix = f"{where}." if where else ""
        found: dict[str, Any] = {}
        for member in self.members:
            if member.name not in raw and not isinstance(member.type, Nullable):
                raise MisfitError(f"{prefix}{member.name} is missing")
            found[member.attribute] = member.type.read(raw.get(member.name), f"{prefix}{member.name}")
        known = {member.name for member in self.members}.union(consumed)
        if len(raw) > len(known) or not raw.keys() <= known:
            found["extra"] = tuple(sorted((name, JsonText.of(raw[name])) for name in raw.keys() - known))
        return found

    def write(self, value: Any) -> Any:
        written: dict[str, Any] = {}
        for member in self.members:
            item = getattr(value, member.attribute)
            if item is None and member.omit_null:
                continue
            written[member.name] = member.type.write(item)
            if self.tag and len(written) == 1:
                written["type"] = self.tag
        for name, text in value.extra:
            written.setdefault(name, text.value())
        return written


@dataclass(frozen=True, slots=True)
class Variant(FieldType):
    """One of several objects, told apart by their field `type`."""

    objects: Mapping[str, ObjectType]

    def read(self, raw: Any, where: str) -> Any:
        tag = raw.get("type") if type(raw) is dict else None
        found = self.objects.get(tag) if type(tag) is str else None
        if found is None:
            raise MisfitError(f"{where} must be an object whose type is one of {', '.join(self.objects)}")
        return found.read(raw, where)

    def write(self, value: Any) -> Any:
        for one in self.objects.values():
            if type(value) is one.cls:
                return one.write(value)
        raise TypeError(f"{type(value).__name__} is none of {', '.join(self.objects)}")


# --- from annotations -------------------------------------------------------------------------------------------------

_SCALARS: Mapping[Any, FieldType] = {str: Text(), int: Whole(), JsonText: FreeObject()}


@cache
def object_type(cls: type[Any]) -> ObjectType:
    """The JSON object of a dataclass; `json_type`, a class attribute, is its tag."""
    return ObjectType(cls, members_of(cls), getattr(cls, "json_type", None))


def members_of(cls: type[Any]) -> tuple[Member, ...]:
    """The fields of a dataclass but `extra`, in their order.

    A field is `Annotated` with the text of its meaning and, where the type does not say all, with a `FieldType`.
    """
    hints = get_type_hints(cls, include_extras=True)
    return tuple(_member(field.name, hints[field.name]) for field in dataclasses.fields(cls) if field.name != "extra")


def _member(attribute: str, hint: Any) -> Member:
    hint, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    declared: dict[type, Any] = {type(mark): mark for mark in marks}
    name = declared[JsonName].name if JsonName in declared else attribute
    meaning = declared.get(str, "")
    return Member(name, attribute, _field_type(hint, marks), meaning, omit_null=_OmitNull in declared)


def _field_type(hint: Any, marks: list[Any]) -> FieldType:
    origin, arguments = get_origin(hint), get_args(hint)
    if type(None) in arguments:
        return Nullable(_field_type(reduce(or_, (one for one in arguments if one is not type(None))), marks))
    explicit: FieldType | None = next((mark for mark in marks if isinstance(mark, FieldType)), None)
    if explicit is not None:
        return explicit
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin is Literal:
        return OneOf(arguments)
    if origin is tuple:
        return Many(_member("", arguments[0]).type)
    objects = [object_type(cls) for cls in (arguments if origin in {Union, types.UnionType} else (hint,))]
    tagged = {one.tag: one for one in objects if one.tag is not None}
    return Variant(tagged) if tagged else objects[0]
