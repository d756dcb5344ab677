"""Bytes to frozen messages and back.

`decode` and `encode` look their function up by (class, version); it is generated and compiled on first use.
Invariant: whatever a peer sends, only `WireError` is raised, and its text names message, version and field.
"""

import struct
from typing import TypeVar

from headgate.base.errors import WireError
from headgate.wire.primitives import Buffer
from headgate.wire.reading import compile_reader
from headgate.wire.schema import Message
from headgate.wire.source import Generated
from headgate.wire.writing import compile_writer

M = TypeVar("M", bound=Message)

_readers: dict[tuple[type[Message], int], Generated] = {}
_writers: dict[tuple[type[Message], int], Generated] = {}


def decode(cls: type[M], version: int, buf: Buffer, pos: int = 0) -> M:
    """The message that fills `buf` from `pos` to its end; bytes behind it are an error."""
    message, stop = decode_prefix(cls, version, buf, pos)
    if stop != len(buf):
        raise WireError(f"{cls.__name__} v{version}: {len(buf) - stop} bytes behind the message")
    return message


def decode_prefix(cls: type[M], version: int, buf: Buffer, pos: int = 0) -> tuple[M, int]:
    """The message at `pos` and the position behind it."""
    reader = _readers.get((cls, version)) or _reader(cls, version)
    data = buf if type(buf) is bytes else bytes(buf)
    try:
        return reader.function(data, pos, len(data))  # type: ignore[no-any-return]
    except (IndexError, struct.error) as error:
        raise _located(cls, version, reader, "the message ends inside this field", error) from None
    except UnicodeDecodeError as error:
        raise _located(cls, version, reader, f"text that is not UTF-8 ({error.reason})", error) from None
    except WireError as error:
        raise _located(cls, version, reader, str(error), error) from None


def encode(message: Message, version: int) -> bytes:
    """The bytes of a message in a version; a `WireError` when the version cannot carry what it holds."""
    cls = type(message)
    writer = _writers.get((cls, version)) or _writer(cls, version)
    pieces: list[bytes] = []
    try:
        writer.function(message, pieces.append)
    except (AttributeError, OverflowError, TypeError, ValueError, struct.error, WireError) as error:
        raise _located(cls, version, writer, str(error), error) from error
    return b"".join(pieces)


def _reader(cls: type[Message], version: int) -> Generated:
    _check(cls, version)
    return _readers.setdefault((cls, version), compile_reader(cls, version))


def _writer(cls: type[Message], version: int) -> Generated:
    _check(cls, version)
    return _writers.setdefault((cls, version), compile_writer(cls, version))


def _check(cls: type[Message], version: int) -> None:
    if version not in cls.valid:
        raise WireError(f"{cls.__name__} has versions {cls.valid[0]} to {cls.valid[-1]}, not {version}")


def _located(cls: type[Message], version: int, made: Generated, reason: str, error: Exception) -> WireError:
    path = made.path_at(error.__traceback__)
    return WireError(f"{cls.__name__} v{version}, {path or 'first byte'}: {reason}")
