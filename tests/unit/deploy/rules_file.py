"""Reads the part of YAML that rule files are written in; whatever goes beyond it is an error.

No YAML library is among our dependencies, and one file of ours is no reason for one. What this reads, every YAML 1.2
reader reads alike: block mappings and sequences, plain scalars without special characters, double-quoted scalars in
JSON's form, comments on lines of their own.
"""

import json
import re
from typing import Any

_KEY = re.compile(r"([A-Za-z_][\w-]*):(?: (.+))?")
# Plain text must not look like anything else: no indicator first, no ": " or " #" inside, no number or boolean.
_PLAIN = re.compile(r"(?![-?:,\[\]{}#&*!|>'\"%@`\s])(?:(?!: | #).)+")
_OTHER_TYPES = re.compile(r"[-+.\d]*|true|false|yes|no|on|off|null|~", re.IGNORECASE)

Line = tuple[int, str, int]  # indentation, text, number


def read(text: str) -> Any:
    lines: list[Line] = []
    for number, raw in enumerate(text.splitlines(), 1):
        if raw.strip() and not raw.lstrip().startswith("#"):
            assert "\t" not in raw, f"line {number}: a tab"
            assert raw == raw.rstrip(), f"line {number}: spaces at the end"
            lines.append((len(raw) - len(raw.lstrip()), raw.strip(), number))
    value, rest = _block(lines)
    assert not rest, f"line {rest[0][2]}: not indented as what is before it"
    return value


def _block(lines: list[Line]) -> tuple[Any, list[Line]]:
    return _sequence(lines) if lines[0][1].startswith("- ") else _mapping(lines)


def _sequence(lines: list[Line]) -> tuple[list[Any], list[Line]]:
    indent, found = lines[0][0], []
    while lines and lines[0][0] == indent:
        _, text, number = lines[0]
        assert text.startswith("- "), f"line {number}: not an item"
        # The item's first key stands where the others of its mapping do: behind the dash.
        value, lines = _mapping([(indent + 2, text[2:], number), *lines[1:]])
        found.append(value)
    return found, lines


def _mapping(lines: list[Line]) -> tuple[dict[str, Any], list[Line]]:
    indent, found = lines[0][0], {}
    while lines and lines[0][0] == indent and not lines[0][1].startswith("- "):
        _, text, number = lines[0]
        match = _KEY.fullmatch(text)
        assert match, f"line {number}: not a key with its value"
        key, scalar = match.groups()
        assert key not in found, f"line {number}: {key} for the second time"
        lines = lines[1:]
        if scalar is not None:
            found[key] = _scalar(scalar, number)
        else:
            assert lines, f"line {number}: nothing behind {key}"
            assert lines[0][0] > indent, f"line {number}: nothing behind {key}"
            found[key], lines = _block(lines)
    return found, lines


def _scalar(text: str, number: int) -> str:
    if text.startswith('"'):
        value = json.loads(text)
        assert isinstance(value, str)
        return value
    assert _PLAIN.fullmatch(text), f"line {number}: put this text into double quotes"
    assert not _OTHER_TYPES.fullmatch(text), f"line {number}: not text to YAML"
    return text
