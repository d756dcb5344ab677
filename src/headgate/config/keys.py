"""Parsers of the plain kinds of values: whole numbers, switches, text, lists and words.

A parser takes a value as TOML, JSON or the command line gives it, and returns the value of the configuration or raises
a `ValueError`. TOML has types, so nothing is converted: the text "2" is not a number.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

Parser = Callable[[Any], Any]


class WrongTypeError(ValueError):
    """A value of another type; `in_file` says in addition how TOML writes the right one."""

    def __init__(self, text: str, *, in_file: str = "") -> None:
        super().__init__(text)
        self.in_file = in_file


class WrongEntriesError(ValueError):
    """Entries of a list that cannot be used, by their positions."""

    def __init__(self, entries: Mapping[int, tuple[object, ValueError]]) -> None:
        super().__init__("has entries that cannot be used")
        self.entries = entries


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A whole number in a range."""

    ge: int
    le: int

    def __call__(self, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise WrongTypeError("must be a whole number", in_file=_unquoted(value))
        if value < self.ge:
            raise ValueError(f"must be at least {self.ge}")
        if value > self.le:
            raise ValueError(f"must be at most {self.le}")
        return value


def parse_switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise WrongTypeError("must be true or false", in_file=_unquoted(value))
    return value


@dataclass(frozen=True, slots=True)
class ConfigText:
    """Text that is not empty, or, with a rule, text that the rule accepts."""

    rule: Callable[[str], str] | None = None

    def __call__(self, value: object) -> str:
        if not isinstance(value, str):
            raise WrongTypeError("must be text", in_file=", in quotes")
        try:
            value.encode()
        except UnicodeEncodeError:  # of a variable that is not UTF-8
            raise ValueError("must be text in UTF-8") from None
        if self.rule is not None:
            return self.rule(value)
        if not value:
            raise ValueError("must not be empty")
        return value


@dataclass(frozen=True, slots=True)
class OneWord:
    """One of several words."""

    words: tuple[str, ...]

    def __call__(self, value: object) -> str:
        if not isinstance(value, str) or value not in self.words:
            *most, last = map(repr, self.words)
            raise ValueError(f"must be one of {', '.join(most)} or {last}")
        return value


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list whose entries have one parser, as a tuple or another collection."""

    parse: Parser
    into: Callable[[list[Any]], Collection[Any]] = tuple
    at_least: int = 0
    at_most: int | None = None

    def __call__(self, value: object) -> Collection[Any]:
        if not isinstance(value, list | tuple | frozenset):
            raise WrongTypeError("must be a list, in square brackets")
        if len(value) < self.at_least:
            raise ValueError(f"needs at least {self.at_least} entry")
        if self.at_most is not None and len(value) > self.at_most:
            raise ValueError(f"can have at most {self.at_most} entries")
        parsed: list[Any] = []
        wrong: dict[int, tuple[object, ValueError]] = {}
        for position, entry in enumerate(value):
            try:
                parsed.append(self.parse(entry))
            except ValueError as error:
                wrong[position] = entry, error
        if wrong:
            raise WrongEntriesError(wrong)
        return self.into(parsed)


@dataclass(frozen=True, slots=True)
class WordOr:
    """A word that means None, or a value."""

    word: str
    parse: Parser

    def __call__(self, value: object) -> object:
        return None if value is None or value == self.word else self.parse(value)


def _unquoted(value: object) -> str:
    return ", without quotes" if isinstance(value, str) else ""
