"""Parsers of values in the configuration: stores, group patterns, topic names, paths.

A parser takes text and returns a value or raises a `ValueError`. A value that may hold a secret never shows it, neither
in its `repr` nor in the text of its error.
"""

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar, cast, get_args

from headgate.config.problems import shown

StoreScheme = Literal["kafka", "memory", "sqlite", "plugin", "none"]
V = TypeVar("V")

# Kafka's rule for topic names (Topic.validate): these characters, 249 of them at most.
MAX_TOPIC_NAME = 249
_NAMESPACE = re.compile(r"kafka://[A-Za-z0-9._\[\]:-]+:[0-9]{1,5}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_PLUGIN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_STORES = "kafka:, memory:, sqlite:PATH, plugin:package.module:Class or none"


class FrozenMap(Mapping[str, V]):
    """An immutable mapping that, unlike `MappingProxyType`, can be hashed and pickled."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, V]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return f"FrozenMap({self._items!r})"

    def __reduce__(self) -> tuple[type["FrozenMap[V]"], tuple[dict[str, V]]]:
        return type(self), (self._items,)


@dataclass(frozen=True, slots=True)
class Store:
    """Where topology descriptions are kept.

    `target` is what follows the scheme: a path for sqlite, `package.module:Class` for plugin, empty for the others. It
    is not shown, because a mistyped one may hold a password.
    """

    scheme: StoreScheme
    target: str = field(default="", repr=False)


def parse_store(value: object) -> Store:
    if isinstance(value, Store):
        return value
    text = value if isinstance(value, str) else ""
    if text == "none":
        return Store("none")
    scheme, colon, target = text.partition(":")
    if not colon or scheme not in get_args(StoreScheme):
        raise ValueError(f"is not a known store; write {_STORES}")
    match scheme:
        case "kafka" | "memory":
            if target:
                raise ValueError(f"the store {scheme}: takes no text after the colon")
            return Store("kafka" if scheme == "kafka" else "memory")
        case "sqlite":
            if not target or "\0" in target:
                raise ValueError("the store sqlite: needs the path of its file, such as sqlite:/var/lib/headgate/t.db")
            return Store("sqlite", target)
        case "plugin":
            if not _PLUGIN.fullmatch(target):
                raise ValueError("must name a class, such as plugin:package.module:Class")
            return Store("plugin", target)
        case _:
            raise ValueError('the store none takes no colon; write "none"')


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPatterns:
    """Selects the groups of a feature: one of `allow` matches and none of `deny` does.

    `*` matches any characters and `?` one; everything else is literal, and case matters.
    """

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()

    def matches(self, group: str) -> bool:
        if self.allow == ("*",) and not self.deny:
            return True
        return _any_matches(self.allow, group) and not _any_matches(self.deny, group)


def _any_matches(patterns: tuple[str, ...], name: str) -> bool:
    # fnmatch compiles without catastrophic backtracking and caches; its "[" is a literal character here.
    return any(fnmatch.fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in patterns)


PluginSetting = str | int | float | bool
_MOST_SETTINGS = 100


def parse_plugin_settings(value: object) -> Mapping[str, PluginSetting]:
    """`[topologies.plugin]`: the settings of a store plugin, which the plugin itself checks."""
    if not isinstance(value, Mapping) or len(value) > _MOST_SETTINGS:
        raise ValueError(f"must be a table of at most {_MOST_SETTINGS} settings")
    wrong = [str(name) for name, setting in value.items() if not isinstance(setting, str | int | float | bool)]
    if wrong:
        raise ValueError(f"{', '.join(sorted(wrong))}: must be a text, a number, true or false")
    return FrozenMap(dict(value))


def parse_group_patterns(value: object) -> GroupPatterns:
    if isinstance(value, GroupPatterns):
        return value
    how = 'must be a table such as { allow = ["orders-*"], deny = ["orders-test"] }'
    if not isinstance(value, Mapping) or not set(value) <= {"allow", "deny"}:
        raise ValueError(how)
    for patterns in value.values():
        if not isinstance(patterns, list | tuple) or not all(isinstance(one, str) and one for one in patterns):
            raise ValueError(how)
    allow = tuple(cast("list[str]", value.get("allow", ("*",))))
    if not allow:
        raise ValueError("allows no group; leave allow out for every group, or set enable = false")
    return GroupPatterns(allow=allow, deny=tuple(cast("list[str]", value.get("deny", ()))))


def parse_path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("must be the path of a file, as text")
    return Path(value)


def topic_name(value: str) -> str:
    if value in {"", ".", ".."} or len(value) > MAX_TOPIC_NAME or not _TOPIC.fullmatch(value):
        raise ValueError(f"must be a topic name: 1 to {MAX_TOPIC_NAME} letters, digits, '.', '_' and '-'")
    return value


def dataset_namespace(value: str) -> str:
    """The namespace of a Kafka cluster in OpenLineage."""
    if len(value) > MAX_TOPIC_NAME or not _NAMESPACE.fullmatch(value):
        raise ValueError(f"must be kafka://HOST:PORT, of at most {MAX_TOPIC_NAME} characters")
    return value


def topic_pattern(value: str) -> str:
    """A topic name in which `*` stands for any characters."""
    if not value or len(value) > MAX_TOPIC_NAME or not _TOPIC.fullmatch(value.replace("*", "x")):
        raise ValueError(
            f"must be a topic name, in which '*' may stand for any characters, of at most {MAX_TOPIC_NAME}"
        )
    return value


def topic_prefix(longest_rest: int) -> Callable[[str], str]:
    """A rule for prefixes that leave room for `longest_rest` more characters of a topic's name."""

    def check(value: str) -> str:
        if not value or len(value) > MAX_TOPIC_NAME - longest_rest or not _TOPIC.fullmatch(value):
            raise ValueError(
                f"must be the beginning of a topic name: 1 to {MAX_TOPIC_NAME - longest_rest} letters, digits, "
                "'.', '_' and '-'"
            )
        if value.startswith("__"):
            raise ValueError("must not begin with '__': such topics belong to Kafka itself")
        return value

    return check


# The options of an object store that both the tables' libraries and Spark are given, by the names of AWS's variables.
STORAGE_OPTIONS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_ALLOW_HTTP",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
)


def parse_storage(value: object) -> Mapping[str, str]:
    """`[tables] storage`. No error shows a value, because one may be a secret."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError('must be a table such as { AWS_REGION = "eu-central-1" }')
    unknown = sorted(set(value) - set(STORAGE_OPTIONS))
    if unknown:
        raise ValueError(f"{', '.join(map(shown, unknown))}: unknown; known options are {', '.join(STORAGE_OPTIONS)}")
    options: dict[str, str] = {}
    for name, option in value.items():
        if name == "AWS_ALLOW_HTTP":
            words = str(option).lower()
            if not isinstance(option, str | bool) or words not in {"true", "false"}:
                raise ValueError(f"{name} must be true or false")
            options[name] = words
        elif not isinstance(option, str) or not option or not option.isascii() or not option.isprintable():
            raise ValueError(f"{name} must be a text of printable ASCII characters")
        else:
            options[name] = option
    return FrozenMap(options)


def flat_settings(value: object) -> Mapping[str, str]:
    """Spark settings as text, `{"spark.a.b": "1"}`, whether TOML read the dots as tables or not."""
    flat: dict[str, str] = {}
    stack: list[tuple[str, object]] = [("", value)]
    while stack:
        prefix, item = stack.pop()
        if isinstance(item, Mapping):
            stack.extend((f"{prefix}.{key}" if prefix else str(key), inner) for key, inner in item.items())
        elif isinstance(item, bool):
            flat[prefix] = "true" if item else "false"
        elif isinstance(item, str | int | float):
            flat[prefix] = str(item)
        else:
            how = 'must be a table of texts, such as { "spark.sql.shuffle.partitions" = "4" }'
            raise ValueError(how)  # noqa: TRY004 - a value that cannot be used is a ValueError
    if not all(key.startswith("spark.") and key.isprintable() for key in flat):
        raise ValueError("each setting's name must begin with 'spark.'")
    return FrozenMap(flat)
