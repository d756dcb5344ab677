"""The index of the REST interface at `/api`, which is also at `/` where the page is not built."""

import re

import pytest

import headgate
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.stage import Answer, Stage


async def page(stage: Stage | None = None) -> Answer:
    return await (stage or Stage()).call("GET", "/api")


async def test_it_needs_no_token_and_shows_no_names_of_the_configuration() -> None:
    stage = Stage(is_read_open=False)
    stage.main.use("secret-connector", "secret-topic")
    answer = await page(stage)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert headgate.__version__ in answer.body.decode()
    assert b"secret" not in answer.body


async def test_every_link_is_a_resource_and_every_named_path_too(shop: ApiStage) -> None:
    text = (await page()).body.decode()
    links = set(re.findall(r'href="([^"]*)"', text))
    assert links >= {"/api/v1/connectors", "/api/v1/health", "/api/v1/graph"}
    stage = Stage(tables=shop.tables)
    stage.made = stage.application()
    for link in links:
        assert (await stage.call("GET", link)).status == 200
    for method, path in re.findall(r"<code>(GET|PUT) (/[^<]*)</code>", text):
        assert (await stage.call(method, path)).status in {200, 202}


async def test_it_may_load_and_run_nothing_but_its_own_style() -> None:
    answer = await page()
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy.pop("style-src").startswith("'sha256-")
    assert policy.pop("default-src") == "'none'"
    assert set(policy.values()) == {"'none'"}
    assert not re.search(rb"<script|<img|<link|<form|<iframe| on\w+=| style=", answer.body)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example"])
async def test_it_follows_allowed_hosts(host: str) -> None:
    assert (await Stage().call("GET", "/api", host=(host,))).status == 400
