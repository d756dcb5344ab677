"""Reads OpenLineage events strictly, by the classes that the client package generates from the specification.

The package has no JSON schemas, but its classes have every field with its type. One rule: what a class does not say is
an error, be it a field that is unknown, missing or of another type. A facet is of the class whose schema it names.
"""

import importlib
import json
import pkgutil
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attr
from openlineage.client import generated
from openlineage.client.event_v2 import JobEvent, RunEvent
from openlineage.client.generated.base import BaseFacet


class SchemaError(Exception):
    """The event is not one of the specification; the text begins with the path of what is wrong."""


def read_event(text: str | bytes) -> JobEvent | RunEvent:
    """The event of one line of JSON."""
    fields = json.loads(text)
    name = str(fields.get("schemaURL")).rpartition("/")[2]
    kinds: dict[str, type[JobEvent | RunEvent]] = {"JobEvent": JobEvent, "RunEvent": RunEvent}
    if name not in kinds:
        raise SchemaError(f"schemaURL: no kind of event: {name}")
    event = _read_object(fields, kinds[name], name)
    if datetime.fromisoformat(event.eventTime).tzinfo is None:
        raise SchemaError(f"{name}.eventTime: no time zone")
    assert isinstance(event, JobEvent | RunEvent)
    return event


def _read_object(value: object, kind: type[Any], path: str) -> Any:
    if not isinstance(value, dict):
        raise SchemaError(f"{path}: {kind.__name__} is an object, not {value!r}")
    types, known = get_type_hints(kind), {field.name: field for field in attr.fields(kind)}
    if unknown := value.keys() - known.keys():
        raise SchemaError(f"{path}: {kind.__name__} has no {', '.join(sorted(unknown))}")
    found = {}
    for name, field in known.items():
        if name in value:
            found[name] = _read(value[name], types[name], f"{path}.{name}")
        elif field.default is attr.NOTHING or name in {"producer", "schemaURL", "_producer", "_schemaURL"}:
            raise SchemaError(f"{path}.{name}: missing")
    try:
        made = kind(**{known[name].alias: one for name, one in found.items() if known[name].init})
    except (TypeError, ValueError) as failure:  # its own validators: ids, times, addresses
        raise SchemaError(f"{path}: {failure}") from failure
    for name in ("schemaURL", "_schemaURL"):
        if name in found and found[name] != kind._get_schema():
            raise SchemaError(f"{path}.{name}: not that of {kind.__name__}")
    return made


def _read(value: object, kind: Any, path: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        return _read_one_of(value, arguments, path)
    if origin is list and isinstance(value, list):
        return [_read(one, arguments[0], f"{path}[{number}]") for number, one in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {name: _read(one, arguments[1], f"{path}.{name}") for name, one in value.items()}
    if origin is Literal and value in arguments:
        return value
    if isinstance(kind, type) and origin is None:
        if issubclass(kind, BaseFacet):
            return _read_facet(value, kind, path)
        if issubclass(kind, Enum) and value in [one.value for one in kind]:
            return kind(value)
        if attr.has(kind):
            return _read_object(value, kind, path)
        if type(value) is kind:  # True is no number here
            return value
    raise SchemaError(f"{path}: {value!r} is not {kind}")


def _read_one_of(value: object, kinds: tuple[Any, ...], path: str) -> Any:
    if value is None and NoneType in kinds:
        raise SchemaError(f"{path}: null, which the client leaves out")
    failures = []
    for kind in kinds:
        if kind is not NoneType:
            try:
                return _read(value, kind, path)
            except SchemaError as failure:
                failures.append(str(failure))
    raise SchemaError("; or ".join(failures))


def _read_facet(value: object, kind: type[BaseFacet], path: str) -> BaseFacet:
    schema = value.get("_schemaURL") if isinstance(value, dict) else None
    found = _facet_classes().get(str(schema))
    if found is None or not issubclass(found, kind) or found is kind:
        raise SchemaError(f"{path}: {schema} is the schema of no {kind.__name__}")
    facet = _read_object(value, found, path)
    assert isinstance(facet, BaseFacet)
    return facet


@cache
def _facet_classes() -> Mapping[str, type[BaseFacet]]:
    modules = (
        importlib.import_module(one.name)
        for one in pkgutil.iter_modules(generated.__path__, "openlineage.client.generated.")
    )
    classes = (one for module in modules for one in vars(module).values() if isinstance(one, type))
    return {one._get_schema(): one for one in classes if issubclass(one, BaseFacet)}
