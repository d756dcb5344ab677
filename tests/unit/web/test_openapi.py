"""The OpenAPI document, and requests that are made from it: every answer has a documented status and form."""

import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.web.api.models import ApiModel
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
                if schema.keys() & {"maxLength", "maximum", "enum", "pattern", "$ref"} or schema["type"] != "string"
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
        assert str(answer.status) in documented or answer.status == 404, (sent, encoded, answer.body)
        assert answer.status < 500 or answer.status in {501, 503}, (sent, encoded, answer.body)
        assert_form(answer, documented.get(str(answer.status), {}))


def assert_form(answer: Answer, documented: Any) -> None:
    """The answer has a content type that is documented; as JSON, it has the fields of its schema and no others."""
    kind = answer.headers["content-type"].partition(";")[0]
    content = documented.get("content", ERROR)
    assert kind in content, (kind, content)
    if kind == "application/json":
        name = content[kind]["schema"]["$ref"].rpartition("/")[2]
        models_of(ApiModel)[name].model_validate(answer.json)


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
