"""`/api/v1/applications`: lists, one application, its topology, versions, differences and tasks."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headgate.facts.topology import Description
from headgate.topologies.model.topology_parser import parse
from headgate.topologies.model.topology_text import render
from headgate.web.api import models
from headgate.web.tokens import TokenScope, add_token
from tests.unit.lineage.shop import NOON, TWO
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.shop_rows import NEW_TEXT, NEWER, OLDER, VERSIONS

LATER = datetime.fromtimestamp(TWO / 1000 + 3600, UTC)


async def test_applications_with_a_topology_and_those_that_are_only_seen(shop: ApiStage) -> None:
    found = models.ApplicationsModel.model_validate(await shop.json("applications"))
    assert [(one.name, one.kind, one.version) for one in found.applications] == [
        ("night-job", "spark", None),
        ("shop-app", "streams", NEWER),
    ]
    application = found.applications[1]
    assert (application.reads_count, application.writes_count, application.since) == (2, 3, NOON)
    assert (found.count, found.next) == (2, None)


async def test_applications_in_pages_and_by_a_part_of_the_name(shop: ApiStage) -> None:
    first = await shop.json("applications", limit=1)
    assert first["next"] == "night-job"
    second = await shop.json("applications", limit=1, after=first["next"])
    assert ([one["name"] for one in second["applications"]], second["next"]) == (["shop-app"], None)
    assert (await shop.json("applications", contains="SHOP"))["count"] == 1


async def test_one_application_has_its_topics_and_its_gaps(shop: ApiStage) -> None:
    found = models.ApplicationModel.model_validate(await shop.json("applications/shop-app"))
    assert [one.topic for one in found.reads] == ["clicks", "orders"]
    assert [one.topic for one in found.writes] == ["large", "sessions", "totals"]
    assert [(one.kind, one.topic, one.state) for one in found.gaps] == [
        ("declared_silent", "clicks", "unknown"),
        ("declared_silent", "large", "open"),
    ]


async def test_an_application_as_it_was_before(shop: ApiStage) -> None:
    found = await shop.json("applications/shop-app", as_of=NOON - 1)
    assert (found["version"], [one["topic"] for one in found["writes"]][-1]) == (OLDER, "totals")
    assert "old-totals" in [one["topic"] for one in found["writes"]]


async def test_versions_with_the_current_one_first(shop: ApiStage) -> None:
    found = models.VersionsModel.model_validate(await shop.json("applications/shop-app/versions"))
    assert [(one.version, one.current, one.nodes) for one in found.versions] == [(NEWER, True, 6), (OLDER, False, 2)]


async def test_the_topology_in_four_formats(shop: ApiStage) -> None:
    found = models.TopologyModel.model_validate(await shop.json("applications/shop-app/topology"))
    assert found.version == NEWER
    assert found.description == json.loads(VERSIONS[1]["description"])
    text = await shop.get("applications/shop-app/topology", format="text")
    described = parse(NEW_TEXT)
    assert isinstance(described, Description)
    assert text.body.decode() == render(described)
    assert text.headers["content-type"].startswith("text/plain")
    assert b"digraph" in (await shop.get("applications/shop-app/topology", format="dot")).body
    assert (await shop.get("applications/shop-app/topology", format="mermaid")).body.startswith(b"flowchart LR")


@pytest.mark.parametrize("version", ["previous", OLDER, VERSIONS[0]["hash"], VERSIONS[0]["hash"][7:15]])
async def test_another_version_by_its_name_or_hash(shop: ApiStage, version: str) -> None:
    found = await shop.json("applications/shop-app/topology", version=version)
    assert found["version"] == OLDER


@pytest.mark.parametrize("version", ["9f/0/000000000000", "sha256:zz", "", "sha256:"])
async def test_a_version_that_does_not_exist_is_404(shop: ApiStage, version: str) -> None:
    assert (await shop.get("applications/shop-app/topology", version=version)).status == 404


async def test_the_difference_of_two_versions_with_its_verdict(shop: ApiStage) -> None:
    found = models.DiffModel.model_validate(await shop.json("applications/shop-app/diff"))
    assert (found.from_, found.to) == (OLDER, NEWER)
    assert {"kind": "processor", "name": "count", "subtopology": "0"} in found.added
    back = await shop.json("applications/shop-app/diff", **{"from": NEWER, "to": OLDER})
    assert back["verdict"] == "state_lost"
    same = await shop.json("applications/shop-app/diff", **{"from": NEWER, "to": NEWER})
    assert (same["added"], same["removed"], same["verdict"]) == ([], [], "safe")


async def test_tasks_by_member_with_hosts_and_stores(shop: ApiStage) -> None:
    found = models.TasksModel.model_validate(await shop.json("applications/shop-app/tasks"))
    assert [(one.member, one.host, [task.task for task in one.tasks]) for one in found.members] == [
        ("m-1", "10.0.0.7", ["0_0", "1_0"]),
        ("m-2", "10.0.0.8", ["0_0"]),
        ("m-3", "10.0.0.7", []),
    ]
    first = found.members[0].tasks[0]
    assert (first.role, first.stores, first.lag) == ("active", ["counts"], 7)
    assert (await shop.json("applications/shop-app/tasks", limit=1))["truncated"]


@pytest.mark.parametrize("part", ["", "/topology", "/versions", "/diff", "/tasks"])
async def test_an_absent_application_is_404(shop: ApiStage, part: str) -> None:
    answer = await shop.get(f"applications/shop-ap{part}")
    assert answer.status == 404
    assert "similar names: 'shop-app'" in answer.json["message"]


async def test_an_application_that_is_only_seen_has_no_versions(shop: ApiStage) -> None:
    assert (await shop.json("applications/night-job"))["version"] is None
    answer = await shop.get("applications/night-job/versions")
    assert answer.status == 404
    assert answer.json["message"] == "No version of the topology of 'night-job' is known"


async def test_a_limited_token_sees_its_application_without_other_topics(shop: ApiStage, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    token = add_token(file, name="team", scope=TokenScope.READ, expires=LATER, names=["shop-*", "orders"])
    stage = ApiStage(shop.tables, shop.clock, tokens_file=file, is_read_open=False)
    assert [one["name"] for one in (await stage.get("applications", token=token)).json["applications"]] == ["shop-app"]
    found = (await stage.get("applications/shop-app", token=token)).json
    assert [one["topic"] for one in found["reads"]] == ["orders", None]
    assert [one["topic"] for one in found["gaps"]] == [None, None]
    for path, query in (
        ("topology", {}),
        ("topology", {"format": "text"}),
        ("diff", {}),
        ("topology", {"format": "dot"}),
    ):
        given: dict[str, Any] = query
        body = (await stage.get(f"applications/shop-app/{path}", token=token, **given)).body
        assert b'"totals"' not in body
        assert b"topic: totals" not in body
        assert b"clicks]" not in body
    assert b"topics: [(hidden)]" in (await stage.get("applications/shop-app/topology", token=token, format="text")).body
    for part in ("", "/topology", "/versions", "/diff", "/tasks"):
        answer = await stage.get(f"applications/night-job{part}", token=token)
        assert answer.status == 404
        assert answer.json["message"].startswith("The tables have no application 'night-job'")
