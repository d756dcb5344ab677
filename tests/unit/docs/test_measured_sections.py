"""Sections that benchmarks write into pages: one is replaced, and nothing else of the page changes."""

from pathlib import Path

import pytest

from bench.lags import COST
from bench.lags import PAGE as LAGS
from bench.lineage import FIGURES, introduction, write_figures
from bench.lineage import PAGE as LINEAGE
from bench.page import RESULT as MAP
from bench.pipeline_both_ways import Found, missing_rows
from bench.pipeline_both_ways import page_section as both_ways_section
from bench.pipeline_versus import PAGE as PIPELINE
from bench.pipeline_versus import Line, Part, equal_rows, page_section
from bench.sections import with_section

SCENE = "# Page\n\nIntroduction.\n\n## One\n\nfirst\n\n### Part\n\nof it\n\n## The record of Monday\n\nold\n"


def test_a_new_section_stands_before_the_one_that_is_named_or_at_the_end() -> None:
    section = "## New\n\nfigures\n"
    assert with_section(SCENE, section, before="The record") == SCENE.replace(
        "## The record", "## New\n\nfigures\n\n## The record"
    )
    assert with_section(SCENE, section) == f"{SCENE}\n{section}"


def test_a_section_replaces_its_predecessor_with_all_its_parts() -> None:
    replaced = with_section(SCENE, "## One\n\nsecond\n", before="The record")
    assert replaced == SCENE.replace("first\n\n### Part\n\nof it", "second")
    assert with_section(replaced, "## One\n\nsecond\n") == replaced


@pytest.mark.parametrize("page", [PIPELINE, LAGS, LINEAGE, MAP])
def test_the_rest_of_a_real_page_stays_to_the_letter(page: Path) -> None:
    text = page.read_text("utf-8")
    added = with_section(text, "## A section of a test\n\nfigures\n")
    assert added == f"{text}\n## A section of a test\n\nfigures\n"


def test_the_cost_of_lags_is_a_section_of_its_page() -> None:
    assert f"\n{COST}\n" in LAGS.read_text("utf-8")


@pytest.mark.parametrize("page", [LINEAGE, MAP])
def test_what_a_run_replaces_is_a_section_of_the_page(page: Path) -> None:
    assert page.read_text("utf-8").count(f"\n{FIGURES}\n") == 1


def test_a_run_of_lineage_replaces_its_figures_and_no_explanation(tmp_path: Path) -> None:
    before = LINEAGE.read_text("utf-8")
    head, _, rest = before.partition(f"\n{FIGURES}\n")
    explained = rest[rest.index("\n## ") :]
    page = tmp_path / "page.md"
    page.write_text(before, "utf-8")
    written = write_figures(page, [*introduction(1_000_000), "| figures |", ""])
    assert page.read_text("utf-8") == f"{head}\n{written.rstrip()}\n{explained}"
    assert explained.count("## Why ") == 2, "one for each target that is missed"


def test_both_revisions_have_a_column_and_their_rows_a_line() -> None:
    found = {"dispositions": (2_000, 255), "activity_intervals": (3_000, 16)}
    part = Part(
        lines=(Line(what="seconds", target="30", values=("217.0", "22.5")),),
        rows=equal_rows("mixed facts", [found, dict(found)]),
    )
    assert page_section(["af557e4", "this tree"], [part], "Measured.").splitlines() == [
        "## af557e4 and this tree, in turn",
        "",
        "Measured.",
        "",
        "| what | target | af557e4 | this tree |",
        "|---|---:|---:|---:|",
        "| seconds | 30 | 217.0 | 22.5 |",
        "",
        "Distinct rows of each table and the sum of their hashes (DuckDB's `hash`):",
        "",
        "- mixed facts, rows equal: activity_intervals 3,000 rows, hash 10; dispositions 2,000 rows, hash ff",
    ]


def test_other_rows_of_a_revision_end_the_run() -> None:
    with pytest.raises(RuntimeError, match="the rows of mixed facts differ"):
        equal_rows("mixed facts", [{"dispositions": (1, 255)}, {"dispositions": (1, 254)}])


def test_both_ways_names_the_tables_that_had_to_be_rebuilt_and_rows_that_are_stored_twice() -> None:
    found = Found(lines=["- all revisions, rows equal"], copies={"lags": 1_000}, rebuilt={"breaker_events": 34})
    assert both_ways_section("af557e4", [31.4, 28.6], found, "Measured.").splitlines() == [
        "## af557e4 and this tree over one checkpoint",
        "",
        "Measured.",
        "",
        "af557e4, this tree, af557e4, this tree: `--once` took 31, 29 s, over the same tables and checkpoints,",
        "with new facts before each. Distinct rows of each table and the sum of their hashes (DuckDB's `hash`),",
        "beside those of runs that read all facts alone, into empty tables:",
        "",
        "- all revisions, rows equal",
        "- rows that are stored twice, which readers leave out: lags 1,000",
        (
            "- rows that were missing, because af557e4 does not know their table and had read their records, until "
            "`headgate pipeline rebuild TABLE`: breaker_events 34"
        ),
    ]


def test_both_ways_names_no_rebuild_where_no_rows_were_missing() -> None:
    section = both_ways_section("af557e4", [1.0], Found(lines=[], copies={}, rebuilt={}), "Measured.")
    assert section.endswith("- rows that are stored twice, which readers leave out: none\n")


def test_rows_are_missing_only_from_tables_that_are_not_equal() -> None:
    new = {"breaker_events": (40, 7), "group_lags": (9, 8)}
    assert missing_rows({"breaker_events": (6, 5), "group_lags": (9, 8)}, new) == {"breaker_events": 34}
    assert missing_rows({"group_lags": (9, 8)}, new) == {"breaker_events": 40}


@pytest.mark.parametrize("both", [(41, 7), (40, 6)])
def test_rows_that_this_tree_alone_does_not_make_are_a_defect_that_no_rebuild_hides(both: tuple[int, int]) -> None:
    with pytest.raises(RuntimeError, match=r"does not make: \{'breaker_events'"):
        missing_rows({"breaker_events": both}, {"breaker_events": (40, 7)})
