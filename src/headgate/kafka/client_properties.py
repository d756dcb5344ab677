r"""The files of `--command-config`: Java properties, and the login lines (JAAS) in them.

One rule: read as Java reads (`java.util.Properties.load`, ISO-8859-1), so that one file serves Kafka's tools and ours.
No error here shows a value: any of them may hold a password.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headgate.base.errors import UsageError

_LARGEST_FILE = 1024 * 1024
_SPACE = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ENTRY = re.compile(
    r"""
    (?P<key> (?: \\. | [^\\=:\ \t\f] )* )
    [ \t\f]* [=:]? [ \t\f]*
    (?P<value> .* )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|u|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

_JAAS_TOKEN = re.compile(
    r"""
    \s+ | //[^\n]* | /\*.*?\*/
    | " (?P<double> (?: \\. | [^"\\\n] )* ) "
    | ' (?P<single> (?: \\. | [^'\\\n] )* ) '
    | (?P<word> [\w$.-]+ )
    | (?P<sign> [=;] )
    """,
    re.VERBOSE | re.DOTALL,
)
_JAAS_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_JAAS_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One entry of a JAAS configuration; its options hold secrets and are not shown."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r})"


def read_properties(file: Path) -> dict[str, str]:
    """The properties of a file; `UsageError` when it cannot be read."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST_FILE + 1)
    except OSError as failure:
        raise UsageError(f"{file} cannot be read: {failure.strerror}") from None
    if len(content) > _LARGEST_FILE:
        raise UsageError(f"{file} has more than {_LARGEST_FILE} bytes: that is no properties file")
    try:
        return parse_properties(content.decode("latin-1"))
    except UsageError as problem:
        raise UsageError(f"{file}, {problem}") from None


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values; of a key that stands twice the last value counts."""
    found = {}
    for number, line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        assert entry is not None  # every text is a key and a value, each perhaps empty
        found[_unescaped(entry["key"], number)] = _unescaped(entry["value"], number)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with what continues them, by the number of the first; comments and empty lines are left out."""
    lines = iter(enumerate(_LINE_END.split(text), 1))
    for number, natural in lines:
        line = natural.lstrip(_SPACE)
        if line.startswith(("#", "!")):
            continue
        while _is_continued(line):
            _, more = next(lines, (0, ""))
            line = line[:-1] + more.lstrip(_SPACE)
        if line:
            yield number, line


def _is_continued(line: str) -> bool:
    """An odd number of backslashes at the end: the last one escapes the line's end."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str, line: int) -> str:
    def meant(escape: re.Match[str]) -> str:
        what = escape[1]
        if what == "u":
            raise UsageError(f"line {line}: \\u must be followed by four hexadecimal digits")
        if len(what) > 1:
            return chr(int(what[1:], 16))
        return _CONTROLS.get(what, what)

    plain = _ESCAPE.sub(meant, text)
    try:
        # Java writes a character beyond U+FFFF as two escapes.
        return plain.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError:
        raise UsageError(f"line {line}: a \\u escape is half of a character; write both halves") from None


def parse_jaas(text: str) -> LoginModule:
    """The one login module of `sasl.jaas.config`: `MODULE required key="value" ... ;`."""
    tokens = list(_jaas_tokens(text))
    if len(tokens) < 3 or tokens[-1] != (True, ";"):
        raise _not_jaas("must be MODULE required key=\"value\" ...; and end with ';'")
    (_, name), (_, flag), *rest = tokens[:-1]
    if flag.lower() not in _FLAGS:
        raise _not_jaas("its second word must be required")
    if len(rest) % 3:
        raise _not_jaas("after the second word it must have options key=\"value\" and one ';' at its end")
    options = {}
    for place in range(0, len(rest), 3):
        (key_is_sign, key), equals, (value_is_sign, value) = rest[place : place + 3]
        if key_is_sign or equals != (True, "=") or value_is_sign:
            raise _not_jaas("after the second word it must have options key=\"value\" and one ';' at its end")
        options[key] = value
    return LoginModule(name, options)


def _jaas_tokens(text: str) -> Iterator[tuple[bool, str]]:
    """Words and signs; True with a sign, so that a quoted ";" is not taken for one."""
    place = 0
    while place < len(text):
        token = _JAAS_TOKEN.match(text, place)
        if token is None:
            raise _not_jaas('has a character that must stand in quotes, or quotes that do not end: write key="value"')
        place = token.end()
        quoted = token["double"] if token["double"] is not None else token["single"]
        if quoted is not None:
            yield False, _JAAS_ESCAPE.sub(_jaas_meant, quoted)
        elif token["word"] is not None:
            yield False, token["word"]
        elif token["sign"] is not None:
            yield True, token["sign"]


def _jaas_meant(escape: re.Match[str]) -> str:
    what = escape[1]
    return chr(int(what, 8)) if what[0] in "01234567" else _JAAS_CONTROLS.get(what, what)


def _not_jaas(why: str) -> UsageError:
    return UsageError(f"sasl.jaas.config {why}")
