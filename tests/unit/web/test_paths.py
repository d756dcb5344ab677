"""Paths are normalised before they are routed: any name can be asked for, and no path means two things."""

import pytest

from headgate.web.paths import normalized_path
from tests.unit.web.api_stage import ApiStage


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"/api/v1/topics/orders", "/api/v1/topics/orders"),
        (b"/%61pi/v1/topics/%6Frders", "/api/v1/topics/orders"),
        (b"/api/v1/topics/a%2Fimpact", "/api/v1/topics/a%2Fimpact"),
        (b"/api/v1/topics/a%2fb", "/api/v1/topics/a%2Fb"),
        (b"/api/v1/topics/%00%0a%22", "/api/v1/topics/%00%0A%22"),
        (b"/api/v1/topics/%25%32%66", "/api/v1/topics/%252f"),
        (b"/api/v1/topologies:parse", "/api/v1/topologies:parse"),
        (b"/api/v1/topologies%3Aparse", "/api/v1/topologies:parse"),
    ],
)
def test_equal_names_have_equal_paths(raw: bytes, path: str) -> None:
    assert normalized_path(raw) == path


@pytest.mark.parametrize(
    "raw", [b"/api%2Fv1/topics", b"/api/v1/../../x", b"/api/v1/%2e%2e/x", b"/api/v1/./x", b"/api/v1/" + b"a" * 200_000]
)
async def test_a_path_that_is_this_interface_only_when_decoded_is_refused(shop: ApiStage, raw: bytes) -> None:
    assert normalized_path(raw) is None
    assert (await shop.request("GET", raw.decode())).status == 400


async def test_a_slash_in_a_name_is_not_another_resource(shop: ApiStage) -> None:
    assert (await shop.get("topics/orders/impact")).status == 200
    answer = await shop.get("topics/orders%2Fimpact")
    assert answer.status == 404
    assert "no topic 'orders/impact'" in answer.json["message"]


@pytest.mark.parametrize("name", ["%FF", "%C3%28"])
async def test_a_name_that_is_not_utf8_is_400(shop: ApiStage, name: str) -> None:
    assert (await shop.get(f"topics/{name}")).status == 400


async def test_an_encoded_name_is_decoded_once(shop: ApiStage) -> None:
    assert (await shop.get("topics/%6Frders")).status == 200
    assert (await shop.get("topics/%256Frders")).status == 404


@pytest.mark.parametrize("path", ["nothing", "topics/", "topics//impact", "graph/x", ""])
async def test_unknown_paths_are_404_in_the_form_of_errors(shop: ApiStage, path: str) -> None:
    assert (await shop.get(path)).status == 404


async def test_other_methods_are_405(shop: ApiStage) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert (await shop.request(method, "/api/v1/graph")).status == 405
