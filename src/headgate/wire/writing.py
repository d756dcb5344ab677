"""Writers: for one message in one version, a function from the frozen message to its pieces of bytes.

Invariant: nothing is lost silently. A value other than the default in a field that the version lacks is an error
unless Kafka calls the field ignorable, and so are unknown tags in a version that has no tag section. Tags are written
in ascending order, known and unknown ones merged; a known one only if it differs from its default, as Kafka does.
"""

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from headgate.base.errors import WireError
from headgate.wire.primitives import write_uvarint
from headgate.wire.reading import MAX_STRING, run_name
from headgate.wire.schema import STRING, UUID, ArrayOf, FieldSpec, Message, Scalar, Struct
from headgate.wire.source import Generated, Source

ONE_BYTE = tuple(bytes((value,)) for value in range(128))


def compile_writer(cls: type[Message], version: int) -> Generated:
    """`write(message, add)`, where `add` takes the pieces in order."""
    writer = _Writer(f"<{cls.__name__} v{version} writer>", version, flexible=version in cls.flexible)
    writer.struct(cls, "message", "add")
    return writer.out.build()


class _Writer:
    """Writes the source of one writer; `add` is the name of the local that appends a piece."""

    def __init__(self, title: str, version: int, *, flexible: bool) -> None:
        self.out = Source(title, "message, add")
        self.version = version
        self.flexible = flexible

    def struct(self, cls: type[Struct], value: str, add: str) -> None:
        run: list[FieldSpec] = []
        for spec in cls.layout.fields:
            if self.version not in spec.versions:
                if not spec.ignorable:
                    self._must_be_default(spec, value)
            elif spec.tag is not None:
                continue
            elif isinstance(spec.type, Scalar) and spec.type.size:
                run.append(spec)
            else:
                self._run(run, value, add)
                run = []
                self._one(spec, value, add)
        self._run(run, value, add)
        self._tags(cls, value, add)

    def _differs(self, spec: FieldSpec, value: str) -> str:
        comparison = "is not" if spec.default is None else "!="
        return f"{value}.{spec.name} {comparison} {self.out.constant(spec.default)}"

    def _must_be_default(self, spec: FieldSpec, value: str) -> None:
        with self.out.at(spec.name):
            self.out.line(f"if {self._differs(spec, value)}: {self.out.bind(_absent, 'absent')}({value}.{spec.name})")

    def _run(self, run: list[FieldSpec], value: str, add: str) -> None:
        if not run:
            return
        codes = "".join(spec.type.code for spec in run if isinstance(spec.type, Scalar))
        with self.out.at(run_name(run)):
            for spec in run:
                if spec.type is UUID:  # `16s` would pad or cut without a word
                    self.out.line(f"if len({value}.{spec.name}) != 16: {self.out.bind(_bad_uuid, 'bad')}()")
            values = ", ".join(f"{value}.{spec.name}" for spec in run)
            self.out.line(f"{add}({self._pack(codes)}({values}))")

    def _field(self, spec: FieldSpec, source: str, add: str) -> None:
        out = self.out
        nullable = self.version in spec.nullable
        value = out.fresh("v")
        out.line(f"{value} = {source}")
        with out.block(f"if {value} is None:"):
            out.line(f"{add}({self._null(spec)!r})" if nullable else f"{out.bind(_null, 'null')}()")
        with out.block("else:"):
            if isinstance(spec.type, type):
                if nullable:
                    out.line(f"{add}({bytes((1,))!r})")
                self.struct(spec.type, value, add)
            elif isinstance(spec.type, ArrayOf):
                self._array(spec.type.element, value, add)
            else:
                self._sized(spec.type, value, add)

    def _null(self, spec: FieldSpec) -> bytes:
        if isinstance(spec.type, type):
            return b"\xff"
        if self.flexible:
            return b"\0"
        return b"\xff\xff" if spec.type is STRING else b"\xff\xff\xff\xff"

    def _sized(self, kind: Scalar[Any], value: str, add: str) -> None:
        out = self.out
        if kind is STRING:
            out.line(f"b = {value}.encode()")
            out.line("n = len(b)")
            out.line(f"if n > {MAX_STRING}: {out.bind(_too_long, 'too_long')}(n)")
        else:
            out.line(f"b = {value}")
            out.line("n = len(b)")
        self._number("n", add, code="h" if kind is STRING else "i")
        out.line(f"{add}(b)")

    def _number(self, name: str, add: str, *, code: str) -> None:
        """A length or a count; compact ones are one higher, since zero means null there."""
        if self.flexible:
            few, many = self.out.bind(ONE_BYTE, "one_byte"), self.out.bind(write_uvarint, "uvarint")
            self.out.line(f"{add}({few}[{name} + 1] if {name} < 127 else {many}({name} + 1))")
        else:
            self.out.line(f"{add}({self._pack(code)}({name}))")

    def _array(self, element: Scalar[Any] | type[Struct], value: str, add: str) -> None:
        out = self.out
        out.line(f"n = len({value})")
        self._number("n", add, code="i")
        if isinstance(element, Scalar) and element.size and element is not UUID:
            out.line(f"if n: {add}({out.bind(struct.pack, 'pack_all')}(f'>{{n}}{element.code}', *{value}))")
            return
        item = out.fresh("i")
        with out.block(f"for {item} in {value}:"):
            if isinstance(element, Scalar):
                self._sized(element, item, add)
            else:
                self.struct(element, item, add)

    def _tags(self, cls: type[Struct], value: str, add: str) -> None:
        out = self.out
        if not self.flexible:
            with out.at("unknown_tags"):
                out.line(f"if {value}.unknown_tags: {out.bind(_no_tags, 'no_tags')}()")
            return
        known = [s for s in cls.layout.fields if s.tag is not None and self.version in s.versions]
        tags = out.fresh("tags")
        with out.at("unknown_tags"):
            out.line(f"{tags} = {value}.unknown_tags")
        for spec in known:
            pieces, add_piece = out.fresh("pieces"), out.fresh("add")
            with out.block(f"if {self._differs(spec, value)}:"):
                out.line(f"{pieces} = []")
                out.line(f"{add_piece} = {pieces}.append")
                self._one(spec, value, add_piece)
                out.line(f"{tags} = (*{tags}, ({spec.tag}, b''.join({pieces})))")
        with out.at("unknown_tags"):
            none = out.bind(ONE_BYTE[0], "no_tags")
            out.line(f"{add}({out.bind(_tag_section, 'section')}({tags}) if {tags} else {none})")

    def _one(self, spec: FieldSpec, value: str, add: str) -> None:
        if isinstance(spec.type, Scalar) and spec.type.size:
            self._run([spec], value, add)
        else:
            with self.out.at(spec.name):
                self._field(spec, f"{value}.{spec.name}", add)

    def _pack(self, codes: str) -> str:
        return self.out.bind(_packer(">" + codes), "pack")


_PACKERS: dict[str, Callable[..., bytes]] = {}


def _packer(layout: str) -> Callable[..., bytes]:
    if layout not in _PACKERS:
        _PACKERS[layout] = struct.Struct(layout).pack
    return _PACKERS[layout]


def _tag_section(tags: tuple[tuple[int, bytes], ...]) -> bytes:
    pieces = [write_uvarint(len(tags))]
    last = -1
    for tag, data in sorted(tags):
        if tag <= last:
            raise WireError(f"tag {tag} twice")
        pieces += (write_uvarint(tag), write_uvarint(len(data)), data)
        last = tag
    return b"".join(pieces)


def _absent(value: object) -> NoReturn:
    raise WireError(f"this version has no such field, and {value!r} is not its default")


def _null() -> NoReturn:
    raise WireError("null, where this version has no null")


def _bad_uuid() -> NoReturn:
    raise WireError("an id has 16 bytes")


def _too_long(length: int) -> NoReturn:
    raise WireError(f"string of {length} bytes, {MAX_STRING} is the limit")


def _no_tags() -> NoReturn:
    raise WireError("this version has no tag section, but the message carries unknown tags")
