"""Configuration from the environment: `HEADGATE_<SECTION>_<KEY>` and `HEADGATE_CONNECT_<NAME>_<KEY>`.

A variable sets what the TOML file could set at the same path, and nothing else: numbers and booleans as they are
written, lists and tables as JSON, the rest as text. A misspelt variable is a problem; an empty one is
unset.
"""

import json
import re
import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Union, get_args, get_origin

from headgate.config.model import ConnectConfig
from headgate.config.problems import Problem, nearest, shown
from headgate.config.sections import annotations, sections
from headgate.config.values import GroupPatterns

PREFIX = "HEADGATE_"
CONNECT_PREFIX = "HEADGATE_CONNECT_"

# Variables with the prefix that are not configuration. Kubernetes sets the last two forms in every container that can
# see a service called "headgate" or "headgate-...": they must not stop the gateway from starting.
RESERVED = (
    "HEADGATE_CONFIG",
    "HEADGATE_DATA_DIR",
    "HEADGATE_JARS",
    "HEADGATE_LOG_FORMAT",
    "HEADGATE_LOG_LEVEL",
    "HEADGATE_SEED",
    "HEADGATE_TOKEN",
    "HEADGATE_VERSION",
)
RESERVED_PATTERNS = (
    re.compile(r"HEADGATE_(TEST|BENCH)_.*", re.DOTALL),
    re.compile(r"HEADGATE_(\w+_)?SERVICE_(HOST|PORT(_\w+)?)"),
    re.compile(r"HEADGATE_(\w+_)?PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?"),
)
_CONNECT_NAME = re.compile(r"[A-Z0-9][A-Z0-9_]{0,63}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Setting:
    """One value for one path, and where it came from."""

    path: tuple[str, ...]
    value: object
    source: str


def variables() -> dict[str, tuple[str, str]]:
    """Every variable that sets a key of a section, with its section and key."""
    return {
        f"{PREFIX}{name}_{key}".upper(): (name, key)
        for name, section in sections().items()
        for key in annotations(section)
    }


def settings(env: Mapping[str, str], connect_names: Collection[str]) -> tuple[list[Setting], list[Problem]]:
    """The settings in the environment, and their problems; `connect_names` are the clusters of the file."""
    known = variables()
    found: list[Setting] = []
    problems: list[Problem] = []
    for variable, text in sorted(env.items()):
        if not variable.startswith(PREFIX) or not text:
            continue
        if variable in known:
            name, key = known[variable]
            path: tuple[str, ...] = (name, key)
            annotation = annotations(sections()[name])[key]
        elif (of_connect := _connect_path(variable, connect_names)) is not None:
            path = of_connect
            annotation = annotations(ConnectConfig)[path[-1]]
        elif is_reserved(variable):
            continue
        else:
            problems.append(Problem(shown(variable), f"is not a Headgate variable; {_hint(variable, known)}"))
            continue
        try:
            value = _value(text, annotation)
        except ValueError as error:
            problems.append(Problem(".".join(path), f"{error} (from {variable})"))
        else:
            found.append(Setting(path, value, variable))
    return found, problems


def is_reserved(variable: str) -> bool:
    return variable in RESERVED or any(pattern.fullmatch(variable) for pattern in RESERVED_PATTERNS)


def variable_name(connect_name: str) -> str:
    """A Connect cluster's name as variables write it: `prod-eu` is PROD_EU."""
    return re.sub(r"[^A-Za-z0-9]", "_", connect_name).upper()


def _connect_path(variable: str, connect_names: Collection[str]) -> tuple[str, str, str] | None:
    rest = variable.removeprefix(CONNECT_PREFIX)
    if rest == variable:
        return None
    for key in annotations(ConnectConfig):
        name = rest.removesuffix(f"_{key.upper()}")
        if name != rest and _CONNECT_NAME.fullmatch(name):
            same = [known for known in connect_names if variable_name(known) == name]
            return "connect", (same[0] if same else name.lower()), key
    return None


def _hint(variable: str, known: Collection[str]) -> str:
    if variable.startswith(CONNECT_PREFIX):
        return f"write HEADGATE_CONNECT_<NAME>_<KEY>, where a key is one of {', '.join(annotations(ConnectConfig))}"
    meant = nearest(variable.removeprefix(PREFIX), [name.removeprefix(PREFIX) for name in known])
    return f"did you mean {PREFIX}{meant}?" if meant else "write HEADGATE_<SECTION>_<KEY>, or unset it"


def _kinds(annotation: object) -> set[object]:
    """The plain types that an annotation is made of: `Annotated[int, ...] | None` is int and NoneType."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kinds(get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        return {kind for member in get_args(annotation) for kind in _kinds(member)}
    return {origin or annotation}


def _value(text: str, annotation: object) -> object:
    kinds = _kinds(annotation)
    if bool in kinds:
        return _BOOLEANS.get(text.lower(), text)
    if int in kinds:
        return int(text) if _NUMBER.fullmatch(text) else text
    if kinds & {tuple, frozenset, Mapping, GroupPatterns} and text.lstrip().startswith(("[", "{")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError("is not JSON; lists and tables are written as JSON in variables") from None
    return text
