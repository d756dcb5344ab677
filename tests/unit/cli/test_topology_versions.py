"""`headgate topology versions`, `show` and `diff` from the outside, with versions in the place of a topic."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.cli import topology_diffs, topology_versions
from headgate.cli.main import main
from headgate.config.model import Config
from headgate.facts.topology import Description, ProcessorNode, Provenance, Subtopology, TopologyDescribed, content_hash
from headgate.kafka.topics import TopicListing
from headgate.topologies.kept_versions import KeptVersion
from headgate.topologies.model.topology_parser import parse
from tests.unit.topologies.topologies import FIXTURES, generated

Capture = pytest.CaptureFixture[str]
GENERATED = FIXTURES / "generated"
AT = 1_794_731_901_000


def kept(
    description: Description,
    *,
    is_current: bool = False,
    deleted_at: int | None = None,
    provenance: Provenance = "pushed",
) -> KeptVersion:
    fact = TopologyDescribed(
        at=AT,
        writer="gw-a/0",
        group="shop",
        incarnation="9f2c",
        epoch=0,
        hash=content_hash(description),
        provenance=provenance,
        member="member-1",
        process="process-1",
        description=description,
    )
    return KeptVersion(fact=fact, is_current=is_current, deleted_at=deleted_at)


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A configuration, and a topic with two versions of the group `shop`."""
    versions = (kept(generated("orders-v1")), kept(generated("orders-store-renamed"), is_current=True))

    async def read(_: Config, group: str) -> tuple[KeptVersion, ...]:
        return versions if group == "shop" else ()

    def listing(_: object) -> TopicListing:
        return TopicListing(cluster="c", topics={"orders": range(4), "wide": range(8), "totals": range(3)})

    monkeypatch.setattr(topology_versions, "read_versions", read)
    monkeypatch.setattr(topology_diffs, "list_topics", listing)
    file = tmp_path / "headgate.toml"
    file.write_text("[gateway]\nnodes = [0]\n")
    return ["--config", str(file)]


def test_versions_are_listed_with_the_newest_first(config: list[str], capsys: Capture) -> None:
    assert main(["topology", "versions", "shop", *config]) == 0
    heading, newest, oldest = capsys.readouterr().out.splitlines()
    assert heading.split() == [
        "VERSION",
        "WHEN",
        "PROVENANCE",
        "NODES",
        "STATE",
        "MEMBER",
        "PROCESS",
        "GATEWAY",
        "PUBLISHED-BY",
    ]
    assert newest.split()[0] == f"9f2c/0/{content_hash(generated('orders-store-renamed'))[7:19]}"
    assert newest.split()[3:] == ["pushed", "30", "current", "member-1", "process-1", "gw-a/0", "-"]
    assert oldest.split()[5] == "kept"


def test_versions_as_json(config: list[str], capsys: Capture) -> None:
    assert main(["topology", "versions", "shop", "--json", *config]) == 0
    found = json.loads(capsys.readouterr().out)
    digest = content_hash(generated("orders-v1"))
    assert found["group"] == "shop"
    assert found["versions"][0] == {
        "version": f"9f2c/0/{digest[7:19]}",
        "incarnation": "9f2c",
        "topology_epoch": 0,
        "hash": digest,
        "provenance": "pushed",
        "at": AT,
        "member": "member-1",
        "process": "process-1",
        "writer": "gw-a/0",
        "by": None,
        "client_id": None,
        "nodes": 30,
        "current": False,
        "partial": False,
        "deleted_at": None,
    }


def test_a_pasted_version_is_listed_with_its_publisher() -> None:
    fact = replace(
        kept(generated("orders-v1")).fact, provenance="pasted", member=None, by="User:build", client_id="ci\x1b"
    )
    row = topology_versions.versions_text([KeptVersion(fact=fact)]).splitlines()[1]
    assert row.split()[3] == "pasted"
    assert row.endswith(" User:build ci\\x1b")


def test_a_group_without_versions_is_an_error(config: list[str], capsys: Capture) -> None:
    assert main(["topology", "versions", "other", *config]) == 1
    assert capsys.readouterr().err == "headgate: no version of the topology of group 'other' is kept\n"


def test_the_latest_version_is_shown_unless_another_is_named(config: list[str], capsys: Capture) -> None:
    assert main(["topology", "show", "shop", *config]) == 0
    assert "(stores: [product-totals])" in capsys.readouterr().out
    assert main(["topology", "show", "shop", "--version", "previous", *config]) == 0
    assert "(stores: [totals])" in capsys.readouterr().out
    assert main(["topology", "show", "shop", "--version", "ffffffff", *config]) == 1
    assert capsys.readouterr().err.startswith("headgate: shop@ffffffff: there is no such version")


def test_a_version_is_shown_as_json_and_as_pictures(config: list[str], capsys: Capture) -> None:
    assert main(["topology", "show", "shop", "--json", *config]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["current"] is True
    assert len(found["description"]["subtopologies"]) == 2
    assert main(["topology", "show", "shop", "--dot", *config]) == 0
    assert capsys.readouterr().out.startswith("digraph topology {\n")
    assert main(["topology", "show", "shop", "--mermaid", *config]) == 0
    assert capsys.readouterr().out.startswith("flowchart LR\n")


def test_a_partial_description_is_marked_wherever_it_is_shown(
    config: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(*_: object) -> tuple[KeptVersion, ...]:
        return (kept(generated("orders-v1"), is_current=True, provenance="assignment"),)

    monkeypatch.setattr(topology_versions, "read_versions", read)
    assert main(["topology", "versions", "shop", *config]) == 0
    assert "assignment 30    current, partial member-1" in " ".join(capsys.readouterr().out.splitlines()[1:])
    assert main(["topology", "show", "shop", *config]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Partial description: members of the group have pushed none. ")
    read_again = parse(text)
    assert isinstance(read_again, Description), "the mark does not keep it from being parsed"
    assert content_hash(read_again) == content_hash(generated("orders-v1"))
    assert main(["topology", "show", "shop", "--json", *config]) == 0
    assert json.loads(capsys.readouterr().out)["partial"] is True
    for picture in ("--dot", "--mermaid"):
        assert main(["topology", "show", "shop", picture, *config]) == 0
        assert capsys.readouterr().err.startswith("headgate: Partial description: ")


def test_two_versions_of_a_group_are_compared(config: list[str], capsys: Capture) -> None:
    assert main(["topology", "diff", "shop@previous", "shop@latest", *config]) == 1
    assert capsys.readouterr().out == (
        "Changed:\n"
        "  processor KSTREAM-AGGREGATE-0000000022: stores [totals] to [product-totals]\n"
        "\n"
        "Verdict: needs a reset\n"
        "  the changelog topic totals-changelog becomes product-totals-changelog, which begins empty\n"
    )


def diffed(capsys: Capture, before: str, after: str, *more: str) -> tuple[int, Any]:
    code = main(["topology", "diff", str(GENERATED / f"{before}.txt"), str(GENERATED / f"{after}.txt"), *more])
    return code, capsys.readouterr().out


def test_files_are_compared_in_every_format(capsys: Capture) -> None:
    code, shown = diffed(capsys, "orders-v1", "orders-repartitioned", "--json")
    assert code == 1
    found = json.loads(shown)
    assert found["added"][0] == {"kind": "processor", "name": "spread-repartition-filter", "subtopology": "0"}
    assert found["moved"][0] == {"kind": "processor", "name": "by-product", "from": "0", "to": "1"}
    assert found["changed"] == [
        {
            "kind": "processor",
            "name": "KSTREAM-PEEK-0000000015",
            "field": "successors",
            "from": ["by-product"],
            "to": [],
        }
    ]
    assert (found["removed"], found["renamed"], found["renumbered"]) == ([], [], 5)
    assert found["verdict"] == "state_lost"
    assert len(found["reasons"]) == 1
    code, shown = diffed(capsys, "orders-v1", "orders-filter-renamed", "--json")
    assert json.loads(shown)["renamed"] == [{"kind": "processor", "from": "valid", "to": "only-valid"}]
    assert diffed(capsys, "orders-v1", "orders-v1", "--dot")[1].startswith("digraph topology {\n")
    assert diffed(capsys, "orders-v1", "orders-v1", "--mermaid")[1].startswith("flowchart LR\n")


def test_equal_topologies_have_exit_code_0(capsys: Capture) -> None:
    code, shown = diffed(capsys, "orders-v1", "orders-v1")
    assert code == 0
    assert shown.startswith("The topologies are the same.\n\nVerdict: safe to roll\n")


def test_numbers_of_partitions_are_taken_from_the_command_line(capsys: Capture, tmp_path: Path) -> None:
    after = tmp_path / "after.txt"
    after.write_text((GENERATED / "count-named-store.txt").read_text().replace("[in]", "[wide]"))
    before = str(GENERATED / "count-named-store.txt")
    counts = ["--partitions", "in=4", "--partitions", "wide=8"]
    assert main(["topology", "diff", before, str(after), *counts]) == 1
    assert "the changelog topic totals-changelog has 4 partitions and needs 8\n" in capsys.readouterr().out
    for wrong in ("in", "in=", "in=0", "in=x", "=3", "in=99999999"):
        assert main(["topology", "diff", before, str(after), "--partitions", wrong]) == 2
        assert "write TOPIC=N" in capsys.readouterr().err


def test_numbers_of_partitions_are_read_from_the_cluster_unless_they_are_given(
    config: list[str], capsys: Capture, tmp_path: Path
) -> None:
    text = (GENERATED / "orders-store-renamed.txt").read_text()
    file = tmp_path / "after.txt"
    file.write_text(text.replace("[orders]", "[wide]"))
    command = ["topology", "diff", "shop@latest", str(file), *config]
    assert main(command) == 1
    assert "the changelog topic loyalty-changelog has 4 partitions and needs 8\n" in capsys.readouterr().out
    assert main([*command, "--partitions", "wide=4"]) == 1
    assert "Verdict: safe to roll\n" in capsys.readouterr().out


def test_a_version_needs_the_configuration_of_a_gateway(capsys: Capture) -> None:
    assert main(["topology", "diff", "shop@latest", "shop@previous"]) == 2
    assert "--config names the gateway's TOML file" in capsys.readouterr().err


def test_names_that_are_not_printable_are_escaped(
    config: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = Description(subtopologies=(Subtopology(id="0", nodes=(ProcessorNode(name="\x1b[2J\udc80"),)),))

    async def read(*_: object) -> tuple[KeptVersion, ...]:
        return (kept(Description()), kept(hostile, is_current=True))

    monkeypatch.setattr(topology_versions, "read_versions", read)
    assert main(["topology", "show", "shop", *config]) == 0
    assert main(["topology", "diff", "shop@previous", "shop@latest", *config]) == 1
    assert capsys.readouterr().out.count("\\x1b[2J\\udc80") == 2


def test_a_file_that_is_no_text_is_a_usage_error(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "binary"
    file.write_bytes(b"Topologies:\n \xff\xfe")
    assert main(["topology", "diff", str(file), str(file)]) == 2
    assert capsys.readouterr().err == f"headgate: {file} is not UTF-8 text: line 2, byte 2\n"
