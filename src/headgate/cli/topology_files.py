"""Files with topologies, as the commands of `headgate topology` read them."""

import sys
from pathlib import Path

from headgate.base.errors import HeadgateError, UsageError
from headgate.facts.topology import Description
from headgate.topologies.model.topology_parser import Unreadable, parse

_LARGEST_TEXT = 64 * 1024 * 1024


def read_topology(name: str) -> Description:
    """The topology in a file, `-` for standard input; the error has the line and the column."""
    read = parse(_text(name))
    if isinstance(read, Unreadable):
        raise HeadgateError(f"{name}, line {read.line}, column {read.column}: {read.text}")
    return read


def _text(name: str) -> str:
    try:
        with sys.stdin.buffer if name == "-" else Path(name).open("rb") as file:
            content = file.read(_LARGEST_TEXT + 1)
        if len(content) > _LARGEST_TEXT:
            raise UsageError(f"{name} has more than {_LARGEST_TEXT} bytes, too many for a topology")
        return content.decode()
    except OSError as failure:
        raise UsageError(f"{name} cannot be read: {failure.strerror}") from None
    except UnicodeDecodeError as failure:
        line = content.count(b"\n", 0, failure.start) + 1
        column = failure.start - content.rfind(b"\n", 0, failure.start)
        raise UsageError(f"{name} is not UTF-8 text: line {line}, byte {column}") from None
