"""A message as the tree that Kafka's JSON converters give, so that two decoders can be compared."""

from base64 import b64encode, urlsafe_b64encode
from typing import Any

from headgate.wire.schema import ArrayOf, Scalar, Struct


def kafka_name(name: str) -> str:
    """Kafka's name of a field in its JSON trees: `throttle_time_ms` is `throttleTimeMs`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def tree_of(message: Struct, version: int) -> dict[str, Any]:
    """Fields of the version; tagged ones only when they differ from their defaults. Unknown tags have no place."""
    return {
        kafka_name(spec.name): _value(getattr(message, spec.name), spec.type, version)
        for spec in message.layout.fields
        if version in spec.versions and (spec.tag is None or getattr(message, spec.name) != spec.default)
    }


def _value(value: Any, kind: Scalar[Any] | ArrayOf | type[Struct], version: int) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayOf):
        return [_value(each, kind.element, version) for each in value]
    if isinstance(kind, type):
        return tree_of(value, version)
    if kind.name == "uuid":
        return urlsafe_b64encode(value).decode().rstrip("=")
    if kind.name in {"bytes", "records"}:
        return b64encode(value).decode()
    return value
