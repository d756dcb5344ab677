"""Our tables against the definitions inside kafka-clients 4.4.0, field by field and version by version.

The definitions are unrolled for one version at a time into what stands on the wire there. That is the comparison
that counts: a struct that several messages share may name other versions than Kafka does for each of them.
"""

from typing import Any

import pytest

from headgate.wire.apis import APIS, RETIRED_KEYS
from headgate.wire.schema import ArrayOf, FieldSpec, Message, Scalar, Struct, versions_of
from tests.support.messages import MESSAGES
from tests.support.trees import kafka_name

type_names = {"bool", "int8", "int16", "uint16", "int32", "int64", "uuid", "string", "bytes", "records"}
Definition = dict[str, Any]


def theirs(definition: Definition, version: int) -> list[dict[str, Any]]:
    """The fields of a definition, in wire order, as one version has them; absent ones too, for their defaults."""
    shared = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}
    return _their_fields(definition["fields"], shared, version, definition["flexibleVersions"])


def _their_fields(
    fields: list[Definition], shared: dict[str, list[Definition]], version: int, flexible: str
) -> list[dict[str, Any]]:
    return [_their_field(field, shared, version, flexible) for field in fields]


def _their_field(field: Definition, shared: dict[str, list[Definition]], version: int, flexible: str) -> dict[str, Any]:
    kind: str = field["type"]
    element = kind.removeprefix("[]")
    inside = None
    if element not in type_names:
        inside = field.get("fields") or shared[element]
    present = version in versions_of(field["versions"])
    tagged = version in versions_of(field.get("taggedVersions", "none"))
    assert tagged == ("tag" in field and present), "a field that is tagged in some of its versions only"
    return {
        "name": field["name"][0].lower() + field["name"][1:],
        "type": "[]" * kind.startswith("[]") + ("struct" if inside is not None else element),
        "present": present,
        "nullable": present and version in versions_of(field.get("nullableVersions", "none")),
        "tag": field["tag"] if tagged else None,
        "ignorable": field.get("ignorable", False),
        "flexible": version in versions_of(field.get("flexibleVersions", flexible)),
        "default": _their_default(field),
        "fields": _their_fields(inside, shared, version, flexible) if inside is not None and present else None,
    }


def _their_default(field: Definition) -> Any:
    """What a Java object holds before anything is read into it."""
    kind = field["type"]
    text = str(field.get("default", ""))
    if text == "null" or kind == "records":
        return None
    if kind.startswith("[]"):
        return ()
    if kind == "bool":
        return text.lower() == "true"
    if kind.startswith(("int", "uint")):
        return int(text, 0) if text else 0
    return {"string": text, "bytes": b"", "uuid": bytes(16)}.get(kind, "a struct of defaults")


def ours(cls: type[Message], version: int) -> list[dict[str, Any]]:
    return _our_fields(cls, version, flexible=version in cls.flexible)


def _our_fields(cls: type[Struct], version: int, *, flexible: bool) -> list[dict[str, Any]]:
    return [_our_field(spec, version, flexible=flexible) for spec in cls.layout.fields]


def _our_field(spec: FieldSpec, version: int, *, flexible: bool) -> dict[str, Any]:
    element = spec.type.element if isinstance(spec.type, ArrayOf) else spec.type
    present = version in spec.versions
    default = spec.default
    if isinstance(default, Struct):
        assert default == type(default)()
        default = "a struct of defaults"
    inside = element if isinstance(element, type) and present else None
    return {
        "name": kafka_name(spec.name),
        "type": "[]" * isinstance(spec.type, ArrayOf) + (element.name if isinstance(element, Scalar) else "struct"),
        "present": present,
        "nullable": present and version in spec.nullable,
        "tag": spec.tag if present else None,
        "ignorable": spec.ignorable,
        "flexible": flexible,
        "default": default,
        "fields": _our_fields(inside, version, flexible=flexible) if inside is not None else None,
    }


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_the_table_is_kafkas(cls: type[Message], definitions: dict[str, Definition]) -> None:
    definition = definitions[cls.__name__]
    assert cls.valid == versions_of(definition["validVersions"])
    for version in cls.valid:
        assert (version in cls.flexible) == (version in versions_of(definition["flexibleVersions"]))
        assert ours(cls, version) == theirs(definition, version)


def test_every_call_is_in_the_table(definitions: dict[str, Definition]) -> None:
    requests = {each["apiKey"]: each for each in definitions.values() if each["type"] == "request"}
    responses = {each["apiKey"]: each for each in definitions.values() if each["type"] == "response"}
    assert set(requests) == set(responses) == set(APIS) | RETIRED_KEYS
    assert {key for key, each in requests.items() if each["validVersions"] == "none"} == RETIRED_KEYS
    for key, api in APIS.items():
        for definition, suffix in ((requests[key], "Request"), (responses[key], "Response")):
            assert definition["name"] == api.name + suffix
            assert versions_of(definition["validVersions"]) == range(api.min_version, api.max_version + 1)
            flexible = versions_of(definition["flexibleVersions"])
            assert (flexible[0] if flexible else None) == api.first_flexible
