"""The OpenAPI document, and requests that are made from it: every answer has a documented status and form."""

import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.models import ApiModel
from tests.support.clock import FakeClock
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.stage import Answer, Stage

HOSTILE = ["orders", "shop-app", "billing", "", "a/b", "..", "\x00", "\u202e", "<b>", '"', "=1", "%2e", "ü", "x" * 3000]
ERROR = {"application/json": {"schema": {"$ref": "ApiError"}}}
STREAM = "/api/v1/events"  # it does not end: `test_events.py`
VALUES = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=20),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["true", "1"]),
)


CREDENTIALS = st.fixed_dictionaries({"user": VALUES, "password": VALUES, "mechanism": st.sampled_from(["PLAIN", "x"])})
BODIES = st.one_of(
    st.fixed_dictionaries({"reason": VALUES}, optional={"credential": CREDENTIALS, "other": VALUES}),
    st.recursive(st.none() | st.integers() | VALUES, st.lists, max_leaves=5),
)


@pytest.fixture(scope="session")
def document(shop: ApiStage) -> Any:
    import asyncio  # noqa: PLC0415 - a fixture of the session has no event loop

    return asyncio.run(shop.json("openapi.json"))


def models_of(base: type[ApiModel]) -> dict[str, type[ApiModel]]:
    """The models by their names in the document."""
    found = {one.__name__: one for one in base.__subclasses__()}
    return found | {name: model for one in found.values() for name, model in models_of(one).items()}


def operations(document: Any) -> list[tuple[str, str, Any]]:
    return [
        (path, method.upper(), operation)
        for path, methods in sorted(document["paths"].items())
        for method, operation in sorted(methods.items())
        if path.startswith("/api/v1/") and path != STREAM
    ]


def test_every_operation_documents_its_answer_and_its_errors(document: Any) -> None:
    found = operations(document)
    assert {path for path, _, _ in found} >= {"/api/v1/graph", "/api/v1/topics/{name}/impact", "/api/v1/health"}
    for path, method, operation in found:
        answer = operation["responses"].get("200") or operation["responses"]["202"]
        content = answer["content"]
        assert "$ref" in content["application/json"]["schema"], path
        assert {"400", "401", "403", "503"} <= set(operation["responses"]), path
        assert "422" not in operation["responses"], path
        assert operation["description"], path
        assert method in {"GET", "POST"}


def test_the_stream_documents_its_type_and_its_errors(document: Any) -> None:
    responses = document["paths"][STREAM]["get"]["responses"]
    assert set(responses["200"]["content"]) == {"text/event-stream"}
    assert {"400", "401", "403", "503"} <= set(responses)


def test_every_parameter_is_bounded(document: Any) -> None:
    for path, _, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            schemas = parameter["schema"].get("anyOf", [parameter["schema"]])
            bounded = [
                schema
                for schema in schemas
                if schema.keys() & {"maxLength", "maximum", "enum", "const", "pattern", "$ref"}
                or schema["type"] != "string"
            ]
            assert len(bounded) == len(schemas), (path, parameter)


async def test_generated_requests_have_documented_answers(shop: ApiStage, document: Any) -> None:
    """Each operation with values of its parameters that fit, and with any others."""

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def requests(data: st.DataObject) -> None:
        path, method, operation = data.draw(st.sampled_from(operations(document)))
        sent = re.sub(r"\{[^}]*\}", lambda _: quote(data.draw(VALUES), safe=""), path)
        query = {
            parameter["name"]: data.draw(fitting(parameter) | VALUES)
            for parameter in operation.get("parameters", ())
            if parameter["in"] == "query" and data.draw(st.booleans())
        }
        encoded = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items())
        has_body = "application/json" in operation.get("requestBody", {}).get("content", ())
        body = json.dumps(data.draw(BODIES)).encode() if has_body else b""
        made.append((method, sent, encoded, body, operation["responses"]))

    made: list[tuple[str, str, str, bytes, Any]] = []
    requests()
    for method, sent, encoded, body, documented in made:
        headers = {"content-type": "application/json"} if body else None
        answer = await shop.request(method, sent, encoded, headers=headers, body=body)
        # A name may make another path, which no operation has.
        assert str(answer.status) in documented or answer.status == 404, (sent, encoded, answer.body)
        assert answer.status < 500 or answer.status in {501, 503}, (sent, encoded, answer.body)
        assert_form(document, answer, documented.get(str(answer.status), {}))


async def test_each_operation_answers_known_and_unknown_names_as_documented(shop: ApiStage, document: Any) -> None:
    """None is left to chance, and here a 404 must be documented too."""
    seen = set()
    for path, method, operation in operations(document):
        if method != "GET":
            continue
        needed = "&".join(f"{one['name']}=shop" for one in operation.get("parameters", ()) if one.get("required"))
        for name in ("orders", "shop-app", "billing", "none-such"):
            answer = await shop.request(method, re.sub(r"\{[^}]*\}", name, path), needed if "{" not in path else "")
            assert str(answer.status) in operation["responses"], (path, name, answer.body)
            assert_form(document, answer, operation["responses"][str(answer.status)])
            seen.add((path, answer.status))
    assert {path for path, status in seen if status == 200} >= {
        "/api/v1/graph",
        "/api/v1/search",
        "/api/v1/topics/{name}",
        "/api/v1/topics/{name}/impact",
        "/api/v1/applications/{name}",
        "/api/v1/share-groups/{name}",
        "/api/v1/share-groups/{name}/breaker",
    }


async def test_methods_that_are_not_documented_are_refused(shop: ApiStage, document: Any) -> None:
    for path, methods in document["paths"].items():
        if not path.startswith("/api/v1/") or path == STREAM:
            continue
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "NONE-SUCH"} - {
            one.upper() for one in methods
        }:
            answer = await shop.request(method, re.sub(r"\{[^}]*\}", "orders", path))
            assert answer.status == 405, (path, method, answer.body)
            assert answer.headers["allow"], path
            assert_form(document, answer, {})


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"content-type": "text/plain"}, b"{}", 415),
        ({}, b"{}", 415),
        ({"content-type": "application/json"}, b"{bad", 400),
        ({"content-type": "application/json"}, b"\xff\xfe", 400),
        ({"content-type": "application/json"}, b"", 400),
        ({"content-type": "application/json"}, b"[" * 5_000, 400),
    ],
)
async def test_a_body_that_does_not_fit_is_refused_as_documented(
    shop: ApiStage, document: Any, headers: dict[str, str], body: bytes, status: int
) -> None:
    for path, method, operation in operations(document):
        if "application/json" in operation.get("requestBody", {}).get("content", ()):
            answer = await shop.request(method, re.sub(r"\{[^}]*\}", "billing", path), headers=headers, body=body)
            assert (answer.status, str(answer.status) in operation["responses"]) == (status, True), (path, answer.body)
            assert_form(document, answer, operation["responses"][str(status)])


async def test_headers_that_make_no_sense_change_no_answer(shop: ApiStage, document: Any) -> None:
    hostile = {"if-none-match": 'W/"\x01', "accept": "text/x-none;q=x", "range": "bytes=9-1", "x-other": "x" * 5_000}
    for path, method, _ in operations(document):
        if method == "GET":
            sent = re.sub(r"\{[^}]*\}", "orders", path)
            plain, other = await shop.request(method, sent), await shop.request(method, sent, headers=hostile)
            assert (plain.status, plain.headers["content-type"]) == (other.status, other.headers["content-type"]), path


async def test_no_operation_answers_without_the_token_that_it_needs(
    shop_tables: tuple[EstateTables, FakeClock], document: Any
) -> None:
    closed = ApiStage(*shop_tables, is_read_open=False)
    for path, method, operation in operations(document):
        for token in ("", "none-such", "\x7f"):
            answer = await closed.request(method, re.sub(r"\{[^}]*\}", "orders", path), token=token)
            if answer.status == 404:  # an operation that this application does not have
                assert answer.json["message"].startswith("HTTP 404"), (path, answer.body)
                continue
            assert answer.status in {401, 403}, (path, method, answer.body)
            assert_form(document, answer, operation["responses"][str(answer.status)])


def assert_form(document: Any, answer: Answer, documented: Any) -> None:
    """The answer has a content type that is documented; as JSON, it is what the document's own schema says."""
    kind = answer.headers["content-type"].partition(";")[0]
    content = documented.get("content", ERROR)
    assert kind in content, (kind, content)
    if kind == "application/json":
        schema = content[kind]["schema"]
        models_of(ApiModel)[schema["$ref"].rpartition("/")[2]].model_validate(answer.json)
        if documented:
            assert deviations(document, schema, answer.json) == []


TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
KEYWORDS = {"additionalProperties", "anyOf", "default", "description", "enum", "items", "properties", "required"}
KEYWORDS |= {"title", "type", "$ref"}


def deviations(document: Any, schema: Any, value: Any, where: str = "$") -> list[str]:
    """Where a value is not as its JSON schema says; a keyword that is unknown here fails the test."""
    assert schema.keys() <= KEYWORDS, schema.keys() - KEYWORDS
    if "$ref" in schema:
        return deviations(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], value, where)
    if "anyOf" in schema:
        each = [deviations(document, one, value, where) for one in schema["anyOf"]]
        return [] if [] in each else [f"{where} is none of {len(each)}: {each[0]}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where} is {value!r}"]
    wanted = TYPES.get(schema.get("type", ""), (object,))
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted and object not in wanted):
        return [f"{where} is {type(value).__name__}, not {schema['type']}"]
    found: list[str] = []
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        found += [f"{where} has no {name}" for name in schema.get("required", ()) if name not in value]
        for name, one in value.items():
            if name in known:
                found += deviations(document, known[name], one, f"{where}.{name}")
            elif others is False:
                found.append(f"{where} has {name}")
            elif isinstance(others, dict):
                found += deviations(document, others, one, f"{where}.{name}")
    elif isinstance(value, list) and "items" in schema:
        for one in value:
            found += deviations(document, schema["items"], one, f"{where}[]")
    return found


def test_the_comparison_with_a_schema_finds_what_differs() -> None:
    schema: Any = {"type": "object", "properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}
    schema |= {"required": ["a"], "additionalProperties": False}
    assert [deviations({}, schema, value) == [] for value in ({"a": 1}, {"a": None})] == [True, True]
    wrongs: list[Any] = [{}, {"a": "1"}, {"a": True}, {"a": 1, "b": 1}, [], None]
    for wrong in wrongs:
        assert deviations({}, schema, wrong) != [], wrong


def fitting(parameter: Any) -> st.SearchStrategy[Any]:
    return st.one_of([_of_schema(schema) for schema in parameter["schema"].get("anyOf", [parameter["schema"]])])


def _of_schema(schema: Any) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "integer":
            return st.integers(schema.get("minimum", 0), schema.get("maximum", 10))
        case "boolean":
            return st.sampled_from(["true", "false"])
        case "string":
            return st.sampled_from(["orders", "shop-app", "1", "all", "2026-11-15T12:00:00Z", "topic,streams", "csv"])
        case _:
            return st.just("")


async def test_without_the_libraries_of_tables_the_rest_works() -> None:
    stage = Stage()
    assert (await stage.call("GET", "/api/v1/connectors")).status == 200
    assert (await stage.call("GET", "/api/v1/health")).json["tables"] == []
    answer = await stage.call("GET", "/api/v1/graph")
    assert answer.status == 503
    assert "pip install 'headgate[pipeline]'" in answer.json["message"]
