"""The pages of the benchmarks and what others say of their figures: of the last recorded campaign, and of no other."""

import re
import resource
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from bench import profiling, record, render, scale, share
from bench.campaign import STAGES
from bench.figures import Figure, Rounds, memory, p50, p99, proxy_cpu, throughput
from bench.record import Campaign
from bench.scenarios import BY_NAME, Unit
from bench.sections import rewrite, with_kept_sections
from bench.targets import DIRECT, HEADGATE, KROXYLICIOUS, judge

OPERATE = (Path(__file__).parents[3] / "docs" / "operate.md").read_text("utf-8")
COLUMNS = {"plaintext": 1, "tls": 2}
NUMBER = re.compile(r"[\d,]*\.?\d+")


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    return record.load(record.LATEST)


def rounds(campaign: Campaign, stage: str) -> Rounds:
    found = campaign.stage(stage)
    assert found is not None
    return Rounds(stage=found)


def test_the_page_is_the_record_as_it_is_rendered(campaign: Campaign) -> None:
    assert render.PAGE.read_text("utf-8") == render.page(campaign, render.NOTES.read_text("utf-8"))


@pytest.mark.parametrize("stage", ["plaintext", "tls"])
def test_every_cpu_of_headgate_is_held_against_kroxylicious(campaign: Campaign, stage: str) -> None:
    of_stage = rounds(campaign, stage)
    wanted = {
        name: ratio
        for name, scenario in BY_NAME.items()
        if scenario.unit is not Unit.MEMORY
        and (ratio := of_stage.ratio(name, HEADGATE, KROXYLICIOUS, proxy_cpu)) is not None
    }
    assert len(wanted) >= 6
    judged = [
        verdict
        for verdict in judge(campaign)
        if verdict.target.text.endswith("CPU against Kroxylicious")
        and verdict.target.text.startswith("TLS") == (stage == "tls")
    ]
    assert sorted(verdict.value or 0.0 for verdict in judged) == sorted(wanted.values())
    assert {verdict.target.limit for verdict in judged} == {1.0}
    assert [verdict.text == "met" for verdict in judged] == [(verdict.value or 0.0) <= 1 for verdict in judged]


def test_every_missed_target_against_kroxylicious_is_explained(campaign: Campaign) -> None:
    notes = render.NOTES.read_text("utf-8")
    for verdict in judge(campaign):
        if verdict.target.text.endswith("CPU against Kroxylicious") and verdict.text != "met":
            assert f"{verdict.value:.2f}x" in notes, verdict.target.text


def capacity(row: str, stage: str) -> list[str]:
    """The numbers in a cell of the table of `docs/operate.md`."""
    [line] = [line for line in OPERATE.splitlines() if line.startswith(f"| {row} |")]
    return NUMBER.findall(line.split("|")[1 + COLUMNS[stage]])


ROWS: Mapping[str, tuple[str, Figure]] = {
    "CPU time for each GB produced (64 KiB requests)": ("produce-64k", proxy_cpu),
    "CPU time for each GB fetched (1 MiB responses)": ("fetch-1m", proxy_cpu),
    "CPU time for each small request (200 clients)": ("clients-200", proxy_cpu),
    "new connections a second": ("connections", throughput),
    "memory of the worker with 1,000 idle connections": ("idle-1000", memory("largest_mb")),
}


@pytest.mark.parametrize("stage", COLUMNS)
def test_the_capacity_table_has_the_figures_of_the_last_campaign(campaign: Campaign, stage: str) -> None:
    of_stage = rounds(campaign, stage)
    wanted: dict[str, tuple[float | None, ...]] = {
        row: (of_stage.median(scenario, HEADGATE, figure),) for row, (scenario, figure) in ROWS.items()
    }
    added = (of_stage.difference("latency", HEADGATE, DIRECT, figure) for figure in (p50, p99))
    wanted["added latency, p50 and p99"] = tuple(added)
    for row, values in wanted.items():
        shown = capacity(row, stage)
        assert len(shown) == len(values), row
        for text, value in zip(shown, values, strict=True):
            assert value is not None, row
            half_of_the_last_digit = 0.5 * 10 ** -len(text.partition(".")[2])
            assert abs(float(text.replace(",", "")) - value) <= half_of_the_last_digit + 1e-9, (row, value)


def test_small_fetches_are_measured_beside_small_produces() -> None:
    produce, fetch = BY_NAME["produce-1k"], BY_NAME["fetch-1k"]
    assert (fetch.unit, fetch.words["depth"]) == (produce.unit, produce.words["depth"])
    for stage in STAGES:
        assert (fetch in stage.scenarios) == (produce in stage.scenarios)


# Sections that are written by hand.


def test_a_fresh_page_keeps_the_sections_that_it_does_not_write() -> None:
    page = "# Page\n\nold\n\n## Figures\n\nold\n\n## Why\n\nby hand\n\n### Part\n\nof it\n"
    fresh = "# Page\n\nnew\n\n## Figures\n\nnew\n"
    assert with_kept_sections(page, fresh) == f"{fresh}\n## Why\n\nby hand\n\n### Part\n\nof it\n"
    assert with_kept_sections("", fresh) == fresh


@pytest.mark.parametrize(
    ("module", "page", "section"),
    [
        (share, share.PAGE, "What it costs, and why"),
        (scale, scale.PAGE, "Why the growth is missed, and what it would take"),
        (profiling, profiling.PAGE, "A trace of one large fetch"),
    ],
)
def test_a_run_keeps_the_section_that_is_written_by_hand(
    module: ModuleType, page: Path, section: str, tmp_path: Path
) -> None:
    """The program rewrites its page with `rewrite` only."""
    text = page.read_text("utf-8")
    [kept] = re.findall(rf"^## {re.escape(section)}\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    copy = tmp_path / page.name
    copy.write_text(text, encoding="utf-8")
    rewrite(copy, "# Fresh\n")
    assert kept.rstrip() in copy.read_text("utf-8")
    source = Path(module.__file__ or "").read_text("utf-8")
    assert "rewrite(" in source
    assert "write_text(" not in source


def test_the_page_of_share_groups_judges_its_figures_by_the_targets_of_the_program() -> None:
    text = share.PAGE.read_text("utf-8")
    for way, target in share.TARGETS.items():
        [ratio] = re.findall(rf"^\| {way} \| [\d,]+ \| ([\d.]+) \|", text, re.MULTILINE)
        verdict = "met" if float(ratio) >= target else "**missed**"
        assert f"- {way}: at least {target} of plain ({verdict}: {ratio})\n" in text


# The limit on descriptors of `bench.scale`.


@pytest.mark.parametrize("may_raise", [True, False])
def test_the_limit_on_descriptors_is_raised_as_far_as_it_may_be(
    monkeypatch: pytest.MonkeyPatch, may_raise: bool
) -> None:
    limits = (1_024, 20_000)

    def change(_: int, wanted: tuple[int, int]) -> None:
        nonlocal limits
        if wanted[1] > limits[1] and not may_raise:
            raise ValueError("not allowed to raise maximum limit")
        limits = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", change)
    files = scale.raise_file_limit(22_000)
    assert files == (22_000 if may_raise else 20_000)
    assert scale.connection_counts(files)[-1] == (10_000 if may_raise else 9_000)
    assert scale.raise_file_limit(1) == files, "a limit is never lowered"
