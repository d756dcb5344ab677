"""Connect's two paths: bodies, codes and texts."""

import pytest

from tests.unit.web.stage import Stage

TOPICS, RESET = "/connectors/src/topics", "/connectors/src/topics/reset"


@pytest.fixture
def stage() -> Stage:
    found = Stage()
    found.main.use("src", "b", "a")
    found.other.use("src", "c")
    return found


async def test_the_topics_of_a_connector(stage: Stage) -> None:
    answer = await stage.call("GET", TOPICS)
    assert (answer.status, answer.json) == (200, {"src": {"topics": ["a", "b"]}})
    assert answer.headers["content-type"] == "application/json"


async def test_any_name_has_a_response(stage: Stage) -> None:
    assert (await stage.call("GET", "/connectors/unknown/topics")).json == {"unknown": {"topics": []}}
    stage.main.use("a/b é", "t")
    assert (await stage.call("GET", "/connectors/a/b é/topics")).json == {"a/b é": {"topics": ["t"]}}


async def test_a_reset_is_accepted_without_a_body_for_any_name(stage: Stage) -> None:
    for name in ("src", "unknown"):
        answer = await stage.call("PUT", f"/connectors/{name}/topics/reset")
        assert (answer.status, answer.body) == (202, b"")
    assert stage.main.topics.of("src") == ()
    assert stage.other.topics.of("src") == ("c",)


async def test_each_cluster_answers_at_a_path_of_its_own_and_the_first_at_the_plain_one(stage: Stage) -> None:
    for cluster, topics in (("main", ["a", "b"]), ("other", ["c"])):
        answer = await stage.call("GET", f"/connect/{cluster}{TOPICS}")
        assert (answer.status, answer.json) == (200, {"src": {"topics": topics}})
    assert (await stage.call("GET", TOPICS)).json == {"src": {"topics": ["a", "b"]}}
    assert (await stage.call("PUT", f"/connect/other{RESET}")).status == 202
    assert stage.other.topics.of("src") == ()
    assert stage.main.topics.of("src") == ("a", "b")
    assert (await stage.call("PUT", RESET)).status == 202
    assert stage.main.topics.of("src") == ()


async def test_an_unknown_cluster_is_not_found(stage: Stage) -> None:
    answer = await stage.call("GET", f"/connect/unknown{TOPICS}")
    assert (answer.status, answer.json["error_code"]) == (404, 404)
    stage.has_clusters = False
    answer = await stage.call("GET", TOPICS)
    assert answer.status == 404
    assert "[connect.NAME]" in answer.json["message"]


async def test_with_tracking_off_both_calls_are_forbidden(stage: Stage) -> None:
    stage.tracking = stage.allow_reset = False
    for method, path in (("GET", TOPICS), ("PUT", RESET)):
        answer = await stage.call(method, path)
        assert answer.status == 403
        assert answer.body == b'{"error_code":403,"message":"Topic tracking is disabled."}'
    assert stage.main.topics.of("src") == ("a", "b")


async def test_with_reset_off_only_the_reset_is_forbidden(stage: Stage) -> None:
    stage.allow_reset = False
    answer = await stage.call("PUT", RESET)
    assert answer.status == 403
    assert answer.body == b'{"error_code":403,"message":"Topic tracking reset is disabled."}'
    assert (await stage.call("GET", TOPICS)).json == {"src": {"topics": ["a", "b"]}}


async def test_before_the_topic_was_read_requests_fail_with_503(stage: Stage) -> None:
    stage.main.is_ready, stage.main.problem = False, "it is away"
    for method, path in (("GET", TOPICS), ("PUT", RESET)):
        answer = await stage.call(method, path)
        assert answer.status == 503
        assert "it is away" in answer.json["message"]


async def test_a_reset_that_was_not_written_is_an_error(stage: Stage) -> None:
    stage.main.failing = "the cluster takes none"
    answer = await stage.call("PUT", RESET)
    assert (answer.status, answer.json) == (503, {"error_code": 503, "message": "the cluster takes none"})


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/connectors", 404, "HTTP 404 Not Found"),
        ("GET", "/connectors//topics", 404, "HTTP 404 Not Found"),
        ("GET", "/connectors/src/topics/", 404, "HTTP 404 Not Found"),
        ("GET", "/docs", 404, "HTTP 404 Not Found"),
        ("GET", "/openapi.json", 404, "HTTP 404 Not Found"),
        ("POST", TOPICS, 405, "HTTP 405 Method Not Allowed"),
        ("GET", RESET, 405, "HTTP 405 Method Not Allowed"),
        ("OPTIONS", RESET, 405, "HTTP 405 Method Not Allowed"),
    ],
)
async def test_every_error_is_connects_object(stage: Stage, method: str, path: str, status: int, message: str) -> None:
    answer = await stage.call(method, path)
    assert (answer.status, answer.json) == (status, {"error_code": status, "message": message})
