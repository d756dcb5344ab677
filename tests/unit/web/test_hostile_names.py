"""Names that clients choose, in real tables: they are found by their encoded paths, and returned as text."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from headgate.web.api.estate_tables import EstateTables
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import TWO, pair, use, write
from tests.unit.web.api_stage import ApiStage

NAMES = [
    "a/topology",
    "../../etc/passwd",
    "..",
    "a?b#c&d=e",
    "%2e%2F",
    "a b+c",
    "<script>alert(1)</script>",
    "quote\"'`\\",
    "line\nbreak\r\n",
    "nul\x00byte",
    "\u202ebidi\u2066",
    "\x1b[31mred",
    "=HYPERLINK(1)",
    "ünïcode 😀",
    "x" * 32_767,
]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiStage]:
    root: Path = tmp_path_factory.mktemp("hostile")
    write(root, "applications", [])
    write(root, "app_io", [pair(name, f"out-{number}", app=name) for number, name in enumerate(NAMES)])
    edges = [use(name, name, "read") for name in NAMES]
    write(root, "lineage_edges", edges + [use(name, f"out-{number}", "write") for number, name in enumerate(NAMES)])
    for name in ("client_identities", "topic_coverage", "lineage_gaps", "members_tasks", "topology_versions"):
        write(root, name, [])
    clock = FakeClock(TWO)
    made = ApiStage(EstateTables(root, clock), clock)
    yield made
    asyncio.run(made.tables.close())


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
async def test_a_name_is_found_by_its_encoded_path(stage: ApiStage, name: str) -> None:
    if name == "..":  # which clients remove from a path, encoded or not
        assert (await stage.get("topics/%2E%2E")).status == 400
        return
    encoded = quote(name, safe="")
    assert (await stage.json(f"topics/{encoded}"))["topic"] == name
    impact = await stage.json(f"topics/{encoded}/impact")
    assert {"kind": "streams", "name": name, "depth": 1} in impact["nodes"]
    assert (await stage.json(f"applications/{encoded}"))["name"] == name
    answer = await stage.get(f"applications/{encoded}/tasks")
    assert (answer.status, answer.json["members"]) == (200, [])
    for part in ("topology", "versions", "diff"):
        assert (await stage.get(f"applications/{encoded}/{part}")).status == 404


async def test_all_names_are_in_the_lists_and_in_the_map(stage: ApiStage) -> None:
    listed = await stage.json("topics", limit=1000)
    assert set(NAMES) <= {row["name"] for row in listed["topics"]}
    graph = await stage.json("graph")
    assert set(NAMES) <= {node["name"] for node in graph["nodes"]}
    assert (await stage.json("search", q="<script>"))["results"][0]["name"] == "<script>alert(1)</script>"


@pytest.mark.parametrize("form", ["json", "dot", "mermaid", "csv", "svg"])
async def test_no_format_has_markup_or_control_characters_of_a_name(stage: ApiStage, form: str) -> None:
    text = (await stage.get("graph", format=form)).body.decode()
    assert not {"\x00", "\x1b", "\u202e", "\u2066"} & set(text)
    if form in {"mermaid", "svg"}:
        assert "<script" not in text
    if form == "csv":
        assert '"=HYPERLINK' not in text
