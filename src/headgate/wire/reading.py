"""Readers: for one message in one version, a function from bytes to the frozen message.

Invariant: no byte is trusted. A length is compared with the bytes that remain before anything is made from it, an
array's count times the least size of its elements must fit them too, and a tag section consumes at least two bytes
a turn, so its count cannot loop for nothing. What runs off the end raises `IndexError` or `struct.error`, which
`codec` turns into a `WireError` with the field's path.

A reader is one flat function: nested structs are written out in place, runs of fixed-size fields are one `unpack`.
"""

import struct
from typing import Any, NoReturn

from headgate.base.errors import WireError
from headgate.wire.primitives import read_uvarint
from headgate.wire.schema import STRING, UUID, ArrayOf, FieldSpec, Message, Scalar, Struct
from headgate.wire.source import Generated, Source

FEW = 9  # shorter arrays of numbers have an unpacker made beforehand
MAX_STRING = 32767  # Kafka's own classes refuse longer ones in the compact form as well


def compile_reader(cls: type[Message], version: int) -> Generated:
    """`read(buf, pos, end) -> (message, position behind it)` for `bytes`."""
    reader = _Reader(f"<{cls.__name__} v{version} reader>", version, flexible=version in cls.flexible)
    name = reader.struct(cls)
    reader.out.line(f"return {name}, pos")
    return reader.out.build()


def least_size(kind: Scalar[Any] | ArrayOf | type[Struct], version: int, *, flexible: bool) -> int:
    """The fewest bytes that a value of this type can have on the wire."""
    if isinstance(kind, ArrayOf):
        return 1 if flexible else 4
    if isinstance(kind, Scalar):
        if kind.size:
            return kind.size
        return 1 if flexible else 2 if kind is STRING else 4
    inside = (each for each in kind.layout.fields if version in each.versions and each.tag is None)
    return sum(field_least_size(each, version, flexible=flexible) for each in inside) + flexible


def field_least_size(spec: FieldSpec, version: int, *, flexible: bool) -> int:
    if isinstance(spec.type, type) and version in spec.nullable:
        return 1
    return least_size(spec.type, version, flexible=flexible)


def run_name(run: list[FieldSpec]) -> str:
    """What an error calls fields that are read or written together."""
    return run[0].name if len(run) == 1 else f"{run[0].name}..{run[-1].name}"


class _Reader:
    """Writes the source of one reader; the generated code has `buf`, `pos` and `end` in hand all the time."""

    def __init__(self, title: str, version: int, *, flexible: bool) -> None:
        self.out = Source(title, "buf, pos, end")
        self.version = version
        self.flexible = flexible

    def struct(self, cls: type[Struct]) -> str:
        """Lines that read a struct; the name of the local that holds it then."""
        out = self.out
        made = out.fresh("o")
        out.line(f"{made} = {out.bind(cls.layout.draft, cls.__name__)}()")
        run: list[FieldSpec] = []
        for spec in cls.layout.fields:
            if self.version not in spec.versions or spec.tag is not None:
                out.line(f"{made}.{spec.name} = {out.constant(spec.default)}")
            elif isinstance(spec.type, Scalar) and spec.type.size:
                run.append(spec)
            else:
                self._run(made, run)
                run = []
                self._one(made, spec)
        self._run(made, run)
        self._tags(made, cls)
        out.line(f"{made}.__class__ = {out.bind(cls, cls.__name__)}")
        return made

    def _run(self, made: str, run: list[FieldSpec]) -> None:
        if not run:
            return
        layout = struct.Struct(">" + "".join(spec.type.code for spec in run if isinstance(spec.type, Scalar)))
        names = "".join(f"{made}.{spec.name}, " for spec in run)
        with self.out.at(run_name(run)):
            self.out.line(f"{names}= {self._unpack(layout.format)}(buf, pos)")
            self.out.line(f"pos += {layout.size}")

    def _field(self, made: str, spec: FieldSpec) -> None:
        out = self.out
        nullable = self.version in spec.nullable
        target = f"{made}.{spec.name}"
        if isinstance(spec.type, type):
            if not nullable:
                out.line(f"{target} = {self.struct(spec.type)}")
                return
            out.line("n = buf[pos]")
            out.line("pos += 1")
            with out.block("if n == 255:"):
                out.line(f"{target} = None")
            with out.block("elif n == 1:"):
                out.line(f"{target} = {self.struct(spec.type)}")
            with out.block("else:"):
                out.line(f"{out.bind(_bad_presence, 'bad')}(n)")
        elif isinstance(spec.type, ArrayOf):
            self._count(target, spec.type.element, nullable=nullable)
        else:
            self._length(target, spec.type, nullable=nullable)

    def _length(self, target: str, kind: Scalar[Any], *, nullable: bool) -> None:
        """A length and as many bytes: string, bytes or records."""
        out = self.out
        value = "buf[pos:e].decode()" if kind is STRING else "buf[pos:e]"
        if self.flexible:
            out.line("n = buf[pos]")
            out.line("pos += 1")
            with out.block("if n > 127:"):
                slow = _string_length if kind is STRING else read_uvarint
                out.line(f"n, pos = {out.bind(slow, 'length')}(buf, pos - 1)")
            null, least = "n == 0", "e = pos + n - 1"
        else:
            code, size = ("h", 2) if kind is STRING else ("i", 4)
            out.line(f"n, = {self._unpack('>' + code)}(buf, pos)")
            out.line(f"pos += {size}")
            null, least = "n < 0", "e = pos + n"
        with out.block(f"if {null}:"):
            if nullable and not self.flexible:
                out.line(f"if n < -1: {out.bind(_negative, 'negative')}(n)")
            out.line(f"{target} = None" if nullable else f"{out.bind(_null, 'null')}(n)")
        with out.block("else:"):
            out.line(least)
            out.line(f"if e > end: {out.bind(_too_long, 'too_long')}(e - pos, end - pos)")
            out.line(f"{target} = {value}")
            out.line("pos = e")

    def _count(self, target: str, element: Scalar[Any] | type[Struct], *, nullable: bool) -> None:
        """An array: a count, checked against the bytes that remain, and the elements."""
        out = self.out
        if self.flexible:
            out.line("n = buf[pos] - 1")
            out.line("pos += 1")
            with out.block("if n > 126:"):
                out.line(f"n, pos = {out.bind(_array_count, 'count')}(buf, pos - 1)")
        else:
            out.line(f"n, = {self._unpack('>i')}(buf, pos)")
            out.line("pos += 4")
        least = least_size(element, self.version, flexible=self.flexible)
        with out.block("if n > 0:"):
            product = "n" if least == 1 else f"n * {least}"
            out.line(f"if {product} > end - pos: {out.bind(_too_many, 'too_many')}(n, {least}, end - pos)")
            self._elements(target, element)
        with out.block("elif n == 0:"):
            out.line(f"{target} = ()")
        with out.block("else:"):
            if nullable and not self.flexible:
                out.line(f"if n < -1: {out.bind(_negative, 'negative')}(n)")
            out.line(f"{target} = None" if nullable else f"{out.bind(_null, 'null')}(n)")

    def _elements(self, target: str, element: Scalar[Any] | type[Struct]) -> None:
        out = self.out
        if isinstance(element, Scalar) and element.size and element is not UUID:
            few = out.bind(_few(element.code), f"few_{element.name}")
            many = out.bind(struct.unpack_from, "unpack_from")
            out.line(f"{target} = {few}[n](buf, pos) if n < {FEW} else {many}(f'>{{n}}{element.code}', buf, pos)")
            out.line(f"pos += n * {element.size}" if element.size > 1 else "pos += n")
            return
        items, add = out.fresh("items"), out.fresh("add")
        out.line(f"{items} = []")
        out.line(f"{add} = {items}.append")
        with out.block("for _ in range(n):"):
            if isinstance(element, Scalar):
                value = out.fresh("v")
                self._length(value, element, nullable=False)
            else:
                value = self.struct(element)
            out.line(f"{add}({value})")
        out.line(f"{target} = tuple({items})")

    def _tags(self, made: str, cls: type[Struct]) -> None:
        out = self.out
        if not self.flexible:
            out.line(f"{made}.unknown_tags = ()")
            return
        known = [s for s in cls.layout.fields if s.tag is not None and self.version in s.versions]
        with out.at("unknown_tags"):
            out.line("n = buf[pos]")
        with out.block("if n == 0:"):
            out.line("pos += 1")
            out.line(f"{made}.unknown_tags = ()")
        with out.block("else:"):
            self._tag_section(made, known)

    def _tag_section(self, made: str, known: list[FieldSpec]) -> None:
        out = self.out
        spans, tag, stop, after, unknown = (out.fresh(s) for s in ("spans", "tag", "stop", "after", "unknown"))
        with out.at("unknown_tags"):
            out.line(f"{spans}, {after} = {out.bind(_tag_spans, 'tag_spans')}(buf, pos, end)")
        out.line(f"{unknown} = []")
        with out.block(f"for {tag}, pos, {stop} in {spans}:"):
            for spec in known:
                with out.block(f"if {tag} == {spec.tag}:"):
                    self._one(made, spec)
                    with out.at(spec.name):
                        out.line(f"if pos != {stop}: {out.bind(_misfit, 'misfit')}({stop} - pos)")
                    out.line("continue")
            out.line(f"{unknown}.append(({tag}, buf[pos:{stop}]))")
        out.line(f"pos = {after}")
        out.line(f"{made}.unknown_tags = tuple({unknown})")

    def _one(self, made: str, spec: FieldSpec) -> None:
        if isinstance(spec.type, Scalar) and spec.type.size:
            self._run(made, [spec])
        else:
            with self.out.at(spec.name):
                self._field(made, spec)

    def _unpack(self, layout: str) -> str:
        return self.out.bind(_unpackers(layout), "unpack")


_UNPACKERS: dict[str, Any] = {}
_FEW: dict[str, tuple[Any, ...]] = {}


def _unpackers(layout: str) -> Any:
    if layout not in _UNPACKERS:
        _UNPACKERS[layout] = struct.Struct(layout).unpack_from
    return _UNPACKERS[layout]


def _few(code: str) -> tuple[Any, ...]:
    if code not in _FEW:
        _FEW[code] = tuple(_unpackers(f">{count}{code}") for count in range(FEW))
    return _FEW[code]


def _string_length(buf: bytes, pos: int) -> tuple[int, int]:
    length, pos = read_uvarint(buf, pos)
    if length > MAX_STRING + 1:
        raise WireError(f"string of {length - 1} bytes, {MAX_STRING} is the limit")
    return length, pos


def _array_count(buf: bytes, pos: int) -> tuple[int, int]:
    count, pos = read_uvarint(buf, pos)
    return count - 1, pos


def _tag_spans(buf: bytes, pos: int, end: int) -> tuple[list[tuple[int, int, int]], int]:
    """Tag, start and stop of each field of a tag section, and the position behind it."""
    count, pos = read_uvarint(buf, pos)
    spans: list[tuple[int, int, int]] = []
    last = -1
    for _ in range(count):
        tag, pos = read_uvarint(buf, pos)
        if tag <= last:
            raise WireError(f"tag {tag} behind tag {last}: tags ascend")
        size, pos = read_uvarint(buf, pos)
        if size > end - pos:
            _too_long(size, end - pos)
        spans.append((tag, pos, pos + size))
        pos += size
        last = tag
    return spans, pos


def _null(length: int) -> NoReturn:
    raise WireError("null, where this version has no null" if length >= -1 else f"length {length}")


def _negative(length: int) -> NoReturn:
    raise WireError(f"length {length}")


def _too_long(length: int, left: int) -> NoReturn:
    raise WireError(f"{length} bytes announced, {max(left, 0)} left")


def _too_many(count: int, least: int, left: int) -> NoReturn:
    raise WireError(f"{count} elements of at least {least} bytes announced, {max(left, 0)} bytes left")


def _bad_presence(byte: int) -> NoReturn:
    raise WireError(f"a struct that may be null begins with 1 or -1, not with byte {byte}")


def _misfit(left: int) -> NoReturn:
    raise WireError(f"a tagged field ends {abs(left)} bytes {'before' if left > 0 else 'behind'} its announced size")
