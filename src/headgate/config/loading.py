"""From a TOML file, the environment and the command line to one `Config`, or to all of its problems.

All problems are reported at once: an invalid key has its default, so that the rules can still check the others. The
command line wins over the environment, which wins over the file.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from headgate.config import files, rules
from headgate.config.environment import Setting, settings
from headgate.config.model import Config
from headgate.config.problems import ConfigError, Problem, path_text
from headgate.config.sections import Loc, build_config
from headgate.config.storage import with_storage

MAX_FILE_BYTES = 1024 * 1024
Tree = dict[str, object]

_NOTHING: Mapping[str, object] = MappingProxyType({})
_TOML_PLACE = re.compile(r"(.*) \(at (line \d+, column \d+|end of document)\)", re.DOTALL)


def load(path: Path | None, env: Mapping[str, str], overrides: Mapping[str, object] = _NOTHING) -> Config:
    """The valid configuration; `ConfigError` has every problem.

    `path` None is an empty file. `overrides` are the command line's, by path: `{"gateway.listen": "127.0.0.1:9092"}`.
    """
    config, problems = _load(path, env, overrides)
    if config is None or problems:
        raise ConfigError(problems)
    return config


def check(path: Path | None, env: Mapping[str, str]) -> tuple[Problem, ...]:
    """Every problem that `load` would raise."""
    return tuple(_load(path, env, _NOTHING)[1])


def _load(
    path: Path | None, env: Mapping[str, str], overrides: Mapping[str, object]
) -> tuple[Config | None, list[Problem]]:
    tree: Tree = {}
    if path is not None:
        try:
            tree = read_toml(path)
        except ConfigError as error:
            return None, list(error.problems)
    connect = tree.get("connect")
    found, problems = settings(env, connect if isinstance(connect, dict) else ())
    found += [Setting(tuple(key.split(".")), value, "the command line") for key, value in overrides.items()]
    sources: dict[Loc, str] = {}
    for setting in found:
        if _put(tree, setting):
            sources[setting.path] = setting.source
    broken: set[str] = {problem.path for problem in problems}
    config, faults = build_config(tree)
    for fault in faults:
        place = fault.loc[: 3 if fault.loc[0] == "connect" else 2]
        broken.add(path_text(place))
        source = f" (from {sources[place]})" if place in sources else ""
        problems.append(Problem(path_text(fault.loc), fault.sentence(in_file=not source) + source))
    config = with_storage(config, env)
    for violation in (*rules.violations(config), *files.violations(config)):
        if not any(_is_under(path, place) for path in violation.paths for place in broken):
            problems.append(Problem(violation.paths[0], violation.text))
    return config, problems


def read_toml(path: Path) -> Tree:
    """The file's tables; `ConfigError` with one problem whose path is the file, and line and column in its text."""
    name = str(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError([Problem(name, "no such file: create it, or correct the path")]) from None
    except IsADirectoryError:
        raise ConfigError([Problem(name, "is a folder: name the configuration file in it")]) from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError([Problem(name, f"cannot be read: {why}")]) from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError([Problem(name, f"has more than {MAX_FILE_BYTES} bytes: this is not a configuration")])
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        place = _place(content[: error.start].decode(errors="replace"))
        raise ConfigError([Problem(name, f"{place}: not UTF-8: save the file as UTF-8")]) from None
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise ConfigError([Problem(name, _toml_text(error, text))]) from None


def _toml_text(error: Exception, text: str) -> str:
    match = _TOML_PLACE.fullmatch(str(error))
    if match is None:
        return "line 1, column 1: not TOML: numbers of thousands of digits or brackets nested without end"
    what, place = match[1], match[2]
    return f"{_place(text) if place == 'end of document' else place}: not TOML: {what[:1].lower()}{what[1:]}"


def _place(before: str) -> str:
    lines = before.split("\n")
    return f"line {len(lines)}, column {len(lines[-1]) + 1}"


def _is_under(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}.")


def _put(tree: Tree, setting: Setting) -> bool:
    """Whether the value could be set: where the file has a value in place of a table, that is the problem to report."""
    table = tree
    for name in setting.path[:-1]:
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            return False
        table = inner
    table[setting.path[-1]] = setting.value
    return True
