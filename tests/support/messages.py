"""Instances of every message in every version: Hypothesis strategies, and a quicker generator from a seed.

One rule: both are made from the tables, so a new field or message is tested without a word here.
"""

import random
from typing import Any

from hypothesis import strategies as st

from headgate.wire.messages import admin, cluster, configs, data, groups, share, streams, transactions
from headgate.wire.schema import ArrayOf, FieldSpec, Message, Request, Scalar, Struct

REQUESTS: dict[int, type[Request[Any]]] = {
    cls.api_key: cls
    for module in (admin, cluster, configs, data, groups, share, streams, transactions)
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Request) and cls is not Request
}
MESSAGES: tuple[type[Message], ...] = tuple(
    cls for request in REQUESTS.values() for cls in (request, request.response_class())
)
VERSIONED: tuple[tuple[type[Message], int], ...] = tuple((cls, version) for cls in MESSAGES for version in cls.valid)

FIRST_UNKNOWN_TAG = 10_000  # Kafka's own tags end at 3
_INTEGERS = {
    "int8": (-(2**7), 2**7),
    "int16": (-(2**15), 2**15),
    "int32": (-(2**31), 2**31),
    "int64": (-(2**63), 2**63),
}
_INTEGERS["uint16"] = (0, 2**16)


def name_of(case: tuple[type[Message], int]) -> str:
    """A readable pytest id."""
    return f"{case[0].__name__}-v{case[1]}"


def instances(cls: type[Message], version: int) -> st.SearchStrategy[Message]:
    """Messages that the version can carry whole."""
    return _structs(cls, version, flexible=version in cls.flexible)


_made: dict[tuple[type, int, bool], st.SearchStrategy[Any]] = {}


def _structs(cls: type[Any], version: int, *, flexible: bool) -> st.SearchStrategy[Any]:
    """Strategies are made once: most of their cost is in making them."""
    if (cls, version, flexible) not in _made:
        _made[cls, version, flexible] = _new_structs(cls, version, flexible=flexible)
    return _made[cls, version, flexible]


def _new_structs(cls: type[Any], version: int, *, flexible: bool) -> st.SearchStrategy[Any]:
    fields = {
        spec.name: _values(spec, version, flexible=flexible) for spec in cls.layout.fields if version in spec.versions
    }
    if flexible:
        fields["unknown_tags"] = _unknown_tags()
    return st.builds(cls, **fields)


def _unknown_tags() -> st.SearchStrategy[tuple[tuple[int, bytes], ...]]:
    tags = st.dictionaries(st.integers(FIRST_UNKNOWN_TAG, 2**31 - 1), st.binary(max_size=3), max_size=2)
    return st.one_of(st.just(()), tags.map(lambda found: tuple(sorted(found.items()))))


def _values(spec: FieldSpec, version: int, *, flexible: bool) -> st.SearchStrategy[Any]:
    if isinstance(spec.type, ArrayOf):
        values: st.SearchStrategy[Any] = st.lists(
            _elements(spec.type.element, version, flexible=flexible), max_size=2
        ).map(tuple)
    else:
        values = _elements(spec.type, version, flexible=flexible)
    return st.one_of(st.none(), values) if version in spec.nullable else values


def _elements(kind: Scalar[Any] | type[Struct], version: int, *, flexible: bool) -> st.SearchStrategy[Any]:
    if isinstance(kind, type):
        return _structs(kind, version, flexible=flexible)
    if kind.name in _INTEGERS:
        low, stop = _INTEGERS[kind.name]
        return st.integers(low, stop - 1)
    if kind.name == "bool":
        return st.booleans()
    if kind.name == "uuid":
        return st.binary(min_size=16, max_size=16)
    if kind.name == "string":
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    return st.binary(max_size=6)


def random_message(rng: random.Random, cls: type[Message], version: int, *, unknown_tags: bool = True) -> Message:
    """The same from a seed, an order of magnitude quicker; lengths on both sides of one-byte varints occur."""
    message: Message = _random_struct(rng, cls, version, tags=unknown_tags and version in cls.flexible)
    return message


def _random_struct(rng: random.Random, cls: type[Any], version: int, *, tags: bool) -> Any:
    fields: dict[str, Any] = {}
    for spec in cls.layout.fields:
        if version not in spec.versions:
            continue
        default_fits = spec.default is not None or version in spec.nullable
        if rng.random() < 0.9 or not default_fits:
            fields[spec.name] = _random_value(rng, spec, version, tags=tags)
    if tags and rng.random() < 0.2:
        unknown = {rng.randrange(FIRST_UNKNOWN_TAG, 2**31): rng.randbytes(rng.randrange(4)) for _ in range(2)}
        fields["unknown_tags"] = tuple(sorted(unknown.items()))
    return cls(**fields)


def _random_value(rng: random.Random, spec: FieldSpec, version: int, *, tags: bool) -> Any:
    if version in spec.nullable and rng.random() < 0.3:
        return None
    if isinstance(spec.type, ArrayOf):
        element = spec.type.element
        count = rng.choice((0, 1, 2, 3) if isinstance(element, type) else (0, 1, 2, 8, 9, 126, 127, 128))
        return tuple(_random_element(rng, element, version, tags=tags) for _ in range(count))
    return _random_element(rng, spec.type, version, tags=tags)


def _random_element(rng: random.Random, kind: Scalar[Any] | type[Struct], version: int, *, tags: bool) -> Any:
    if isinstance(kind, type):
        return _random_struct(rng, kind, version, tags=tags)
    if kind.name in _INTEGERS:
        low, stop = _INTEGERS[kind.name]
        return rng.choice((low, stop - 1, rng.randrange(low, stop), rng.randrange(100)))
    if kind.name == "bool":
        return rng.random() < 0.5
    if kind.name == "uuid":
        return rng.randbytes(16)
    if kind.name == "string":
        return "".join(rng.choices("aZ0._-é€😀\0", k=rng.choice((0, 1, 5, 20, 126, 127, 200))))
    return rng.randbytes(rng.choice((0, 1, 20, 126, 127, 300)))
