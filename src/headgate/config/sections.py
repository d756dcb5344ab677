"""Builds a `Config` from tables of values: each key by its own parser, with all faults at once.

A key that cannot be used has its default in the result, so that the rules over several keys can still check the others.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from headgate.config.keys import OneWord, Parser, WrongEntriesError, WrongTypeError, parse_switch
from headgate.config.model import Config, ConfigSection, ConnectConfig
from headgate.config.problems import nearest, path_text
from headgate.config.values import FrozenMap

Loc = tuple[str | int, ...]
S = TypeVar("S", bound=ConfigSection)


@dataclass(frozen=True, slots=True)
class Fault:
    """A value that cannot be used. `in_file` is a hint for a value from a file; `given` shows the value, if it may."""

    loc: Loc
    text: str
    in_file: str = ""
    given: str = ""

    def sentence(self, *, in_file: bool) -> str:
        return self.text + (self.in_file if in_file else "") + self.given


def annotations(section: type[ConfigSection]) -> Mapping[str, Any]:
    """The annotation of each key, in the order of their declaration."""
    hints = get_type_hints(section, include_extras=True)
    return {field.name: hints[field.name] for field in fields(section)}  # type: ignore[arg-type]


@cache
def sections() -> Mapping[str, type[ConfigSection]]:
    """The sections that are plain tables, by name; `connect` is a table of tables and not among them."""
    return {
        name: kind
        for name, kind in annotations(Config).items()
        if isinstance(kind, type) and issubclass(kind, ConfigSection)
    }


def build_config(tree: Mapping[str, object]) -> tuple[Config, list[Fault]]:
    """The configuration, and what of the tables cannot be used."""
    faults: list[Fault] = []
    built: dict[str, object] = {}
    for name in annotations(Config):
        if name not in tree:
            continue
        if name == "connect":
            built[name] = _connect_clusters(tree[name], faults)
        else:
            built[name] = _section(sections()[name], tree[name], (name,), faults)
    faults += _unknown(tree, (), annotations(Config))
    return Config(**built), faults  # type: ignore[arg-type]


def _connect_clusters(value: object, faults: list[Fault]) -> Mapping[str, ConnectConfig]:
    if not isinstance(value, Mapping):
        faults.append(Fault(("connect",), "must be a table", given=_given(value)))
        return FrozenMap({})
    return FrozenMap({name: _section(ConnectConfig, table, ("connect", name), faults) for name, table in value.items()})


def _section(kind: type[S], value: object, loc: Loc, faults: list[Fault]) -> S:
    if not isinstance(value, Mapping):
        faults.append(Fault(loc, "must be a table of keys", given=_given(value)))
        return kind()
    built: dict[str, object] = {}
    for key, annotation in annotations(kind).items():
        if key in value:
            try:
                built[key] = _parser(annotation)(value[key])
            except ValueError as error:
                faults += _faults((*loc, key), value[key], error)
    faults += _unknown(value, loc, annotations(kind))
    return kind(**built)


def _parser(annotation: object) -> Parser:
    if get_origin(annotation) is Annotated:
        parser: Parser = get_args(annotation)[1]
        return parser
    if get_origin(annotation) is Literal:
        return OneWord(get_args(annotation))
    assert annotation is bool, annotation
    return parse_switch


def _faults(loc: Loc, value: object, error: ValueError) -> Iterator[Fault]:
    if isinstance(error, WrongEntriesError):
        for position, (entry, wrong) in error.entries.items():
            yield from _faults((*loc, position), entry, wrong)
    else:
        in_file = error.in_file if isinstance(error, WrongTypeError) else ""
        yield Fault(loc, str(error), in_file, _given(value))


def _unknown(table: Mapping[str, object], loc: Loc, known: Collection[str]) -> Iterator[Fault]:
    what = f"is not a key of [{path_text(loc)}]" if loc else "is not a section"
    for name in table:
        if name not in known:
            meant = nearest(name, known)
            hint = f"did you mean {meant}?" if meant else f"known are {', '.join(sorted(known))}"
            yield Fault((*loc, name), f"{what}; {hint}")


def _given(value: object) -> str:
    # A boolean is an int to Python; a number of a thousand digits is not worth its line.
    if isinstance(value, int) and abs(value) < 10**12:
        return f"; it is {str(value).lower()}"
    return ""
