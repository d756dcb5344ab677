"""The notation of message tables: a frozen dataclass whose defaults describe each field on the wire.

    @request(ApiKey.HEARTBEAT)
    class HeartbeatRequest(Request["HeartbeatResponse"]):
        group_id: str = string("0+")
        generation_id: int = int32("0+")
        group_instance_id: str | None = string("3+", nullable="3+", default=None)

    @response(HeartbeatRequest)
    class HeartbeatResponse(Message):
        error_code: int = int16("0+")

The class is the table: its api key and so its versions, its fields in wire order, the versions that carry each of
them, and for a request the class of its response. A field that a version lacks reads as its default; writing another
value there is an error unless the field is `ignorable`. Attribute names are Kafka's names in snake case, and defaults
are Kafka's. How bytes are read and written is the business of `reading` and `writing`.
"""

import dataclasses
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any, ClassVar, Generic, NoReturn, Protocol, TypeVar, cast, dataclass_transform, overload

from headgate.base.ids import ApiKey
from headgate.wire.apis import APIS

T = TypeVar("T")
NEWEST = 32767  # versions are int16, so "3+" ends here


def versions_of(text: str) -> range:
    """The versions of `none`, `4`, `0-12` or `3+`."""
    if text == "none":
        return range(0)
    if match := re.fullmatch(r"(\d+)(\+|-(\d+))?", text):
        low, tail, high = match.groups()
        return range(int(low), (NEWEST if tail == "+" else int(high or low)) + 1)
    raise ValueError(f"{text!r} is not a range of versions: write none, 4, 0-12 or 3+")


@dataclass(frozen=True, slots=True)
class Scalar(Generic[T]):
    """A type without parts; `code` is its `struct` letter when its size is fixed."""

    name: str
    code: str = ""
    size: int = 0


BOOL: Scalar[bool] = Scalar("bool", "?", 1)
INT8: Scalar[int] = Scalar("int8", "b", 1)
INT16: Scalar[int] = Scalar("int16", "h", 2)
UINT16: Scalar[int] = Scalar("uint16", "H", 2)
INT32: Scalar[int] = Scalar("int32", "i", 4)
INT64: Scalar[int] = Scalar("int64", "q", 8)
UUID: Scalar[bytes] = Scalar("uuid", "16s", 16)
STRING: Scalar[str] = Scalar("string")
BYTES: Scalar[bytes] = Scalar("bytes")
RECORDS: Scalar[bytes] = Scalar("records")

ZERO_UUID = bytes(16)
NOT_ASKED = -(2**31)  # authorized operations that the request did not ask for


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """Values of one type, preceded by their count."""

    element: "Scalar[Any] | type[Struct]"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """How one field is encoded; `tag` moves it into the tag section in all of its versions."""

    name: str = ""
    type: "Scalar[Any] | ArrayOf | type[Struct]"
    versions: range
    nullable: range
    default: Any
    ignorable: bool = False
    tag: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The table of one struct, and its draft: a mutable twin that a reader fills and then turns into the struct."""

    fields: tuple[FieldSpec, ...]
    draft: type


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Struct:
    """The base of everything in a message; tags that the table does not know are kept and written back."""

    layout: ClassVar[Layout]
    unknown_tags: tuple[tuple[int, bytes], ...] = ()

    def __repr__(self) -> str:
        """The call that makes it, with what differs from the defaults: messages are long and mostly defaults."""
        values = {each.name: (getattr(self, each.name), each.default) for each in dataclasses.fields(self)}
        fields_text = ", ".join(f"{name}={value!r}" for name, (value, default) in values.items() if value != default)
        return f"{type(self).__name__}({fields_text})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Message(Struct):
    """A request or a response: a struct that has an api key and the versions of its api."""

    api_key: ClassVar[ApiKey]
    valid: ClassVar[range]
    flexible: ClassVar[range]


S = TypeVar("S", bound=Struct)
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Request(Message, Generic[M]):
    """A request whose response is an `M`."""

    _response: ClassVar[type[Message]]

    @classmethod
    def response_class(cls) -> type[M]:
        return cast("type[M]", cls._response)


def _refuse(struct: object, name: str, *_: object) -> NoReturn:
    raise FrozenInstanceError(f"{type(struct).__name__}.{name} cannot be changed")


def _share_refusal(cls: type[Struct]) -> None:
    """Let a class refuse changes as `Struct` does.

    The methods that dataclass makes for that refer to the class as it was before it got slots, and so keep a second
    class for each of 200 structs: 1 MB of every worker.
    """
    del cls.__setattr__, cls.__delattr__


Struct.__setattr__ = Struct.__delattr__ = _refuse  # type: ignore[method-assign]
_share_refusal(Message)
_share_refusal(Request)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def struct(cls: type[S]) -> type[S]:
    """Turn the annotated class into a frozen, slotted dataclass that carries its layout."""
    made = dataclass(frozen=True, slots=True, kw_only=True, repr=False)(cls)
    _share_refusal(made)
    specs = tuple(
        dataclasses.replace(cast("FieldSpec", each.metadata["wire"]), name=each.name)
        for each in dataclasses.fields(made)
        if "wire" in each.metadata
    )
    # The twin differs only in that its attributes can be set, five times quicker than a frozen class is built:
    # both halves of CPython's attribute slot have to be the plain ones for that. Equal slots over an equal base
    # are what `draft.__class__ = struct` asks for.
    body = {"__slots__": made.__slots__, "__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    made.layout = Layout(fields=specs, draft=type(f"{made.__name__}Draft", made.__bases__, body))
    return made


@dataclass_transform(frozen_default=True, kw_only_default=True)
def request(api_key: ApiKey) -> Callable[[type[S]], type[S]]:
    """A request, in the versions of its api."""
    api = APIS[api_key]

    def decorate(cls: type[S]) -> type[S]:
        made = cast("type[Message]", struct(cls))
        made.api_key = api_key
        made.valid = range(api.min_version, api.max_version + 1)
        made.flexible = range(0) if api.first_flexible is None else range(api.first_flexible, NEWEST + 1)
        return cast("type[S]", made)

    return decorate


@dataclass_transform(frozen_default=True, kw_only_default=True)
def response(to: type[Request[M]]) -> Callable[[type[M]], type[M]]:
    """The response to a request; it has the same api key and versions."""

    def decorate(cls: type[M]) -> type[M]:
        made = struct(cls)
        made.api_key, made.valid, made.flexible = to.api_key, to.valid, to.flexible
        to._response = made  # noqa: SLF001 - the two are declared together
        return made

    return decorate


def _spec(
    kind: "Scalar[Any] | ArrayOf | type[Struct]",
    versions: str,
    default: Any,
    *,
    nullable: str = "none",
    ignorable: bool = False,
    tag: int | None = None,
) -> Any:
    carried, null = versions_of(versions), versions_of(nullable)
    spec = FieldSpec(type=kind, versions=carried, nullable=null, default=default, ignorable=ignorable, tag=tag)
    return field(default=default, metadata={"wire": spec})


def boolean(versions: str, *, default: bool = False, ignorable: bool = False, tag: int | None = None) -> bool:
    return cast("bool", _spec(BOOL, versions, default, ignorable=ignorable, tag=tag))


class _IntegerField(Protocol):
    def __call__(self, versions: str, *, default: int = 0, ignorable: bool = False, tag: int | None = None) -> int: ...


def _integer(kind: Scalar[int]) -> _IntegerField:
    def field_of(versions: str, *, default: int = 0, ignorable: bool = False, tag: int | None = None) -> int:
        return cast("int", _spec(kind, versions, default, ignorable=ignorable, tag=tag))

    return field_of


int8, int16, uint16, int32, int64 = map(_integer, (INT8, INT16, UINT16, INT32, INT64))


def uuid(versions: str, *, ignorable: bool = False, tag: int | None = None) -> bytes:
    """Sixteen bytes; Kafka's text form of them is URL-safe base64 without padding."""
    return cast("bytes", _spec(UUID, versions, ZERO_UUID, ignorable=ignorable, tag=tag))


@overload
def string(versions: str, *, ignorable: bool = False) -> str: ...
@overload
def string(
    versions: str, *, nullable: str, default: str | None = "", ignorable: bool = False, tag: int | None = None
) -> str | None: ...
def string(
    versions: str, *, nullable: str = "none", default: str | None = "", ignorable: bool = False, tag: int | None = None
) -> str | None:
    return cast("str | None", _spec(STRING, versions, default, nullable=nullable, ignorable=ignorable, tag=tag))


def binary(versions: str) -> bytes:
    return cast("bytes", _spec(BYTES, versions, b""))


def records(versions: str, *, nullable: str) -> bytes | None:
    """A record set, opaque here (`headgate.wire.records` opens it); None by default, as in Kafka."""
    return cast("bytes | None", _spec(RECORDS, versions, None, nullable=nullable))


@overload
def array(
    element: Scalar[T] | type[T], versions: str, *, ignorable: bool = False, tag: int | None = None
) -> tuple[T, ...]: ...
@overload
def array(
    element: Scalar[T] | type[T],
    versions: str,
    *,
    nullable: str,
    default: tuple[()] | None = (),
    ignorable: bool = False,
    tag: int | None = None,
) -> tuple[T, ...] | None: ...
def array(
    element: Scalar[T] | type[T],
    versions: str,
    *,
    nullable: str = "none",
    default: tuple[()] | None = (),
    ignorable: bool = False,
    tag: int | None = None,
) -> tuple[T, ...] | None:
    kind = ArrayOf(cast("Scalar[Any] | type[Struct]", element))
    made = _spec(kind, versions, default, nullable=nullable, ignorable=ignorable, tag=tag)
    return cast("tuple[T, ...] | None", made)


def nested(cls: type[S], versions: str, *, tag: int | None = None) -> S:
    """A struct that is always there; its default has the defaults of its fields."""
    return cast("S", _spec(cls, versions, cls(), tag=tag))


def nested_or_null(cls: type[S], versions: str, *, nullable: str) -> S | None:
    return cast("S | None", _spec(cls, versions, None, nullable=nullable))
