"""The shapes of facts: small kinds that read a JSON value into a field and write it back.

One rule: a kind either gives a value of its field's type or raises `MisfitError` with the path of what does not fit; it
never guesses and never converts. Fields that a shape does not know are kept in `extra` and written back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from headgate.facts.canonical import JsonText, MisfitError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
Extra = tuple[tuple[str, JsonText], ...]


class Kind(Protocol):
    def read(self, raw: Any, where: str) -> Any: ...

    def write(self, value: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Text:
    """Any text, however odd."""

    def read(self, raw: Any, where: str) -> Any:
        if type(raw) is not str:
            raise MisfitError(f"{where} must be text")
        return raw

    def write(self, value: Any) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between two bounds; `1.0` and `true` are none."""

    low: int = 0
    high: int = INT64_MAX

    def read(self, raw: Any, where: str) -> Any:
        if type(raw) is not int or not self.low <= raw <= self.high:
            raise MisfitError(f"{where} must be a whole number from {self.low} to {self.high}")
        return raw

    def write(self, value: Any) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few texts. A new one is a new schema version: no reader treats it as something that it knows."""

    names: tuple[str, ...]

    def read(self, raw: Any, where: str) -> Any:
        if type(raw) is not str or raw not in self.names:
            raise MisfitError(f"{where} must be one of {', '.join(self.names)}")
        return raw

    def write(self, value: Any) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class Nullable:
    """Something or null; a field that is absent reads as null."""

    kind: Kind

    def read(self, raw: Any, where: str) -> Any:
        return None if raw is None else self.kind.read(raw, where)

    def write(self, value: Any) -> Any:
        return None if value is None else self.kind.write(value)


@dataclass(frozen=True, slots=True)
class Many:
    """A list, as a tuple."""

    kind: Kind

    def read(self, raw: Any, where: str) -> Any:
        if type(raw) is not list:
            raise MisfitError(f"{where} must be a list")
        return tuple(self.kind.read(item, f"{where}[{index}]") for index, item in enumerate(raw))

    def write(self, value: Any) -> Any:
        return [self.kind.write(item) for item in value]


@dataclass(frozen=True, slots=True)
class Counts:
    """How often each small number occurred, `{"1": 11, "2": 2}`, as pairs in the numbers' order."""

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
class FreeObject:
    """An object without a schema, as its text."""

    def read(self, raw: Any, where: str) -> Any:
        if type(raw) is not dict:
            raise MisfitError(f"{where} must be an object")
        return JsonText.of(raw)

    def write(self, value: Any) -> Any:
        return value.value()


@dataclass(frozen=True, slots=True)
class Member:
    """One field of an object: its name there, its kind, and its attribute here when the names differ.

    `omit`: left out instead of written as null.
    """

    name: str
    kind: Kind
    attribute: str = ""
    omit: bool = False

    @property
    def target(self) -> str:
        return self.attribute or self.name


@dataclass(frozen=True, slots=True)
class Struct:
    """An object with known fields, as a dataclass that has an `extra`; `tag` is a constant `type` field, second."""

    cls: type[Any]
    members: tuple[Member, ...]
    tag: str = ""

    def read(self, raw: Any, where: str) -> Any:
        return self.cls(**self.attributes(raw, where, ("type",) if self.tag else ()))

    def attributes(self, raw: Any, where: str, consumed: tuple[str, ...] = ()) -> dict[str, Any]:
        """The dataclass's arguments; `consumed` are fields that the caller has read."""
        if type(raw) is not dict:
            raise MisfitError(f"{where or 'the value'} must be an object")
        prefix = f"{where}." if where else ""
        found: dict[str, Any] = {}
        for member in self.members:
            optional = isinstance(member.kind, Nullable)
            if member.name not in raw and not optional:
                raise MisfitError(f"{prefix}{member.name} is missing")
            found[member.target] = member.kind.read(raw.get(member.name), f"{prefix}{member.name}")
        known = {member.name for member in self.members}.union(consumed)
        if len(raw) > len(known) or not raw.keys() <= known:
            found["extra"] = tuple(sorted((name, JsonText.of(raw[name])) for name in raw.keys() - known))
        return found

    def write(self, value: Any) -> Any:
        written: dict[str, Any] = {}
        for member in self.members:
            item = getattr(value, member.target)
            if item is None and member.omit:
                continue
            written[member.name] = member.kind.write(item)
            if self.tag and len(written) == 1:
                written["type"] = self.tag
        for name, text in value.extra:
            written.setdefault(name, text.value())
        return written


@dataclass(frozen=True, slots=True)
class Variant:
    """One of several structs, told apart by their `type` field."""

    structs: Mapping[str, Struct]

    def read(self, raw: Any, where: str) -> Any:
        tag = raw.get("type") if type(raw) is dict else None
        struct = self.structs.get(tag) if type(tag) is str else None
        if struct is None:
            raise MisfitError(f"{where} must be an object whose type is one of {', '.join(self.structs)}")
        return struct.read(raw, where)

    def write(self, value: Any) -> Any:
        for struct in self.structs.values():
            if type(value) is struct.cls:
                return struct.write(value)
        raise TypeError(f"{type(value).__name__} is none of {', '.join(self.structs)}")
