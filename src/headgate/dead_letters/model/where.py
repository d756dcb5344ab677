"""The language of `--where`: comparisons of named columns, joined by and, or, not.

    reason like '%timed out%' and dead_lettered_at >= '2026-11-15T12:00:00Z' and not copied

Parsing is the only way to an expression, and every column and value in it is checked there: evaluation never fails. As
in SQL, a comparison with null is neither true nor false, and only rows for which the whole is true are selected. The
size and the depth of a text are bounded before they cost anything, because the text may come from the page.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, NoReturn, assert_never

from headgate.base.errors import UsageError

MAX_CHARACTERS: Final = 2000
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 100
MAX_PATTERN: Final = 200
_INT64: Final = 2**63

ColumnKind = Literal["text", "number", "time", "flag"]
Comparison = Literal["=", "!=", "<", "<=", ">", ">="]
WhereValue = str | int | bool


class WhereError(UsageError):
    """A text that is not an expression; `position` is the character that is wrong, counted from 0."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        shown = "".join(char if char.isprintable() else "?" for char in text)
        start = max(0, position - 60)
        line = shown[start : start + 76]
        super().__init__(f"--where: {problem}\n    {line}\n    {' ' * (position - start)}^")
        self.position = position


@dataclass(frozen=True, slots=True)
class Compare:
    column: str
    operator: Comparison
    value: WhereValue


@dataclass(frozen=True, slots=True)
class IsIn:
    column: str
    values: tuple[WhereValue, ...]


@dataclass(frozen=True, slots=True)
class IsLike:
    """The whole text matches: `%` stands for any characters, `_` for one."""

    column: str
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    column: str


@dataclass(frozen=True, slots=True)
class Not:
    inner: "Where"


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: "tuple[Where, ...]"


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: "tuple[Where, ...]"


Where = Compare | IsIn | IsLike | IsNull | Not | AllOf | AnyOf


# --- evaluation -------------------------------------------------------------------------------------------------------


def is_selected(where: Where, row: Mapping[str, object]) -> bool:
    """Whether the expression is true for a row, which has all columns that it names."""
    return _truth(where, row) is True


def _truth(where: Where, row: Mapping[str, object]) -> bool | None:
    match where:
        case IsNull(column):
            return row[column] is None
        case Not(inner):
            found = _truth(inner, row)
            return None if found is None else not found
        case AllOf(parts):
            truths = {_truth(part, row) for part in parts}
            return False if False in truths else None if None in truths else True
        case AnyOf(parts):
            truths = {_truth(part, row) for part in parts}
            return True if True in truths else None if None in truths else False
        case Compare() | IsIn() | IsLike():
            value = row[where.column]
            return None if value is None else _holds(where, value)
        case _:
            assert_never(where)


def _holds(where: Compare | IsIn | IsLike, value: object) -> bool:
    match where:
        case IsIn(_, values):
            return value in values
        case IsLike(_, pattern):
            return is_like(str(value), pattern)
        case Compare(_, operator, other):
            return _COMPARE[operator](value, other)
        case _:
            assert_never(where)


def _order(less: bool, equal: bool) -> Callable[[object, object], bool]:
    """One of <, <=, >, >=; a text is ordered by its UTF-8 bytes, as Spark and DuckDB order it."""

    def compare(left: object, right: object) -> bool:
        one, two = _orderable(left), _orderable(right)
        return equal if one == two else (one < two) is less

    return compare


def _orderable(value: object) -> tuple[bytes, int]:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass"), 0
    assert isinstance(value, int)
    return b"", value


_COMPARE: Final[Mapping[Comparison, Callable[[object, object], bool]]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": _order(less=True, equal=False),
    "<=": _order(less=True, equal=True),
    ">": _order(less=False, equal=False),
    ">=": _order(less=False, equal=True),
}


def is_like(text: str, pattern: str) -> bool:
    """Whether the whole text matches the pattern, in time bounded by the product of their lengths.

    On a mismatch only the last `%` takes one more character, so that no pattern leads to exponential backtracking.
    """
    at = of = 0
    star = -1
    mark = 0
    while at < len(text):
        if of < len(pattern) and pattern[of] == "%":
            star, mark = of, at
            of += 1
        elif of < len(pattern) and pattern[of] in {"_", text[at]}:
            at += 1
            of += 1
        elif star >= 0:
            mark += 1
            at, of = mark, star + 1
        else:
            return False
    return not pattern[of:].strip("%")


# --- parsing ----------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""
    (?P<space> \s+ )
    | (?P<word> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<number> -?[0-9]{1,19} (?![0-9A-Za-z_.]) )
    | (?P<text> ' (?: [^'] | '' )* ' )
    | (?P<sign> != | <> | <= | >= | [=<>(),] )
    """,
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset({"and", "or", "not", "in", "like", "is", "null", "true", "false"})
_SIGNS: Final[Mapping[str, Comparison]] = {
    "=": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_KIND_WORDS: Final[Mapping[ColumnKind, str]] = {
    "text": "a text: write a value in single quotes",
    "number": "a whole number",
    "time": "a time: write one such as '2026-11-15T12:00:00Z', or epoch milliseconds",
    "flag": "true or false",
}
_ORDERED: Final = frozenset({"<", "<=", ">", ">="})


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # word, number, text, sign, or end
    text: str
    position: int

    @property
    def keyword(self) -> str | None:
        lowered = self.text.lower()
        return lowered if self.kind == "word" and lowered in _KEYWORDS else None


def parse_where(text: str, columns: Mapping[str, ColumnKind]) -> Where:
    """The expression of a text over these columns; a `WhereError` shows the place where it is wrong."""
    if len(text) > MAX_CHARACTERS:
        raise WhereError(text[:MAX_CHARACTERS], MAX_CHARACTERS - 1, f"is longer than {MAX_CHARACTERS} characters")
    parser = _Parser(text, columns)
    found = parser.disjunction(0)
    parser.expect_end()
    return found


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    place = 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            quote = text[place] == "'"
            problem = "a text has no closing quote" if quote else _odd_character(text, place)
            raise WhereError(text, place, problem)
        kind = token.lastgroup
        assert kind is not None
        if kind != "space":
            found.append(_Token(kind, token[0], place))
        place = token.end()
    return [*found, _Token("end", "", len(text))]


def _odd_character(text: str, place: int) -> str:
    if text[place] == '"':
        return "write texts in single quotes"
    if text[place].isdigit() or text[place] == "-":
        return "numbers are whole, with at most 19 digits"
    return "this character is not part of an expression"


class _Parser:
    def __init__(self, text: str, columns: Mapping[str, ColumnKind]) -> None:
        self._text = text
        self._columns = columns
        self._tokens = _tokens(text)
        self._next = 0

    def disjunction(self, depth: int) -> Where:
        parts = [self._conjunction(depth)]
        while self._take_keyword("or"):
            parts.append(self._conjunction(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def expect_end(self) -> None:
        token = self._peek()
        if token.kind != "end":
            self._fail(token, "expected and, or, or the end of the expression")

    def _conjunction(self, depth: int) -> Where:
        parts = [self._negation(depth)]
        while self._take_keyword("and"):
            parts.append(self._negation(depth))
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _negation(self, depth: int) -> Where:
        token = self._peek()
        if depth >= MAX_DEPTH:
            self._fail(token, f"is nested deeper than {MAX_DEPTH} levels")
        if self._take_keyword("not"):
            return Not(self._negation(depth + 1))
        if self._take_sign("("):
            inner = self.disjunction(depth + 1)
            if not self._take_sign(")"):
                self._fail(self._peek(), "expected and, or, or a closing parenthesis")
            return inner
        return self._predicate()

    def _predicate(self) -> Where:
        named = self._take()
        if named.kind != "word" or named.keyword is not None:
            self._fail(named, "expected a column, such as reason")
        column, kind = self._column(named)
        if self._take_keyword("is"):
            is_not = self._take_keyword("not")
            if not self._take_keyword("null"):
                self._fail(self._peek(), "expected null after is")
            return Not(IsNull(column)) if is_not else IsNull(column)
        is_not = self._take_keyword("not")
        if self._take_keyword("in"):
            found: Where = IsIn(column, self._values(column, kind))
            return Not(found) if is_not else found
        if self._take_keyword("like"):
            found = self._like(column, kind)
            return Not(found) if is_not else found
        operator = _SIGNS.get(self._peek().text) if self._peek().kind == "sign" else None
        if is_not or operator is None:
            if kind == "flag" and not is_not:
                return Compare(column, "=", value=True)
            self._fail(self._peek(), f"expected a comparison, in, like or is after {column}")
        token = self._take()
        if kind == "flag" and operator in _ORDERED:
            self._fail(token, f"{column} is true or false, and has no order")
        return Compare(column, operator, self._value(column, kind))

    def _column(self, named: _Token) -> tuple[str, ColumnKind]:
        name = named.text
        kind = self._columns.get(name)
        if kind is None:
            near = difflib.get_close_matches(name.lower(), self._columns, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the columns are {', '.join(sorted(self._columns))}"
            self._fail(named, f"there is no column {name}; {hint}")
        return name, kind

    def _values(self, column: str, kind: ColumnKind) -> tuple[WhereValue, ...]:
        if not self._take_sign("("):
            self._fail(self._peek(), "expected values in parentheses after in")
        values = [self._value(column, kind)]
        while self._take_sign(","):
            if len(values) == MAX_VALUES:
                self._fail(self._peek(), f"in has more than {MAX_VALUES} values")
            values.append(self._value(column, kind))
        if not self._take_sign(")"):
            self._fail(self._peek(), "expected a comma or a closing parenthesis")
        return tuple(values)

    def _like(self, column: str, kind: ColumnKind) -> IsLike:
        token = self._take()
        if kind != "text":
            self._fail(token, f"{column} is not a text, and like compares texts")
        if token.kind != "text":
            self._fail(token, "expected a pattern in single quotes after like")
        pattern = _unquoted(token.text)
        if len(pattern) > MAX_PATTERN:
            self._fail(token, f"a pattern has at most {MAX_PATTERN} characters")
        if "\\" in pattern:
            self._fail(token, "a pattern cannot contain a backslash")  # Spark reads one as an escape
        return IsLike(column, pattern)

    def _value(self, column: str, kind: ColumnKind) -> WhereValue:
        token = self._take()
        found: WhereValue | None = None
        if kind in {"number", "time"} and token.kind == "number":
            found = self._number(token)
        elif kind == "text" and token.kind == "text":
            found = _unquoted(token.text)
        elif kind == "time" and token.kind == "text":
            found = _time(_unquoted(token.text))
        elif kind == "flag" and token.keyword in {"true", "false"}:
            found = token.keyword == "true"
        if found is None:
            self._fail(token, f"{column} is {_KIND_WORDS[kind]}")
        return found

    def _number(self, token: _Token) -> int:
        number = int(token.text)
        if not -_INT64 <= number < _INT64:
            self._fail(token, "a number has at most 64 bits")
        return number

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        if token.kind != "end":
            self._next += 1
        return token

    def _take_keyword(self, keyword: str) -> bool:
        taken = self._peek().keyword == keyword
        self._next += taken
        return taken

    def _take_sign(self, sign: str) -> bool:
        token = self._peek()
        taken = token.kind == "sign" and token.text == sign
        self._next += taken
        return taken

    def _fail(self, token: _Token, problem: str) -> NoReturn:
        raise WhereError(self._text, token.position, problem)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _time(text: str) -> int | None:
    """Epoch milliseconds, in UTC where the text names no zone."""
    try:
        time = datetime.fromisoformat(text)
        return round(time.replace(tzinfo=time.tzinfo or UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


# --- as text ----------------------------------------------------------------------------------------------------------


def where_text(where: Where) -> str:
    """An expression that is parsed to an equal one: what a plan keeps of the text that selected its records."""
    match where:
        case Compare(column, operator, value):
            return f"{column} {operator} {_literal(value)}"
        case IsIn(column, values):
            return f"{column} in ({', '.join(map(_literal, values))})"
        case IsLike(column, pattern):
            return f"{column} like {_literal(pattern)}"
        case IsNull(column):
            return f"{column} is null"
        case Not(inner):
            return f"not ({where_text(inner)})"
        case AllOf(parts):
            return " and ".join(f"({where_text(part)})" for part in parts)
        case AnyOf(parts):
            return " or ".join(f"({where_text(part)})" for part in parts)
        case _:
            assert_never(where)


def _literal(value: WhereValue) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower()
