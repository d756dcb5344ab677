"""The map in a real browser: layout, overlays, time, differences, applications from inside, exports and links."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Request, expect

from tests.e2e.browsing import KEYS, NO_KAFKA, node, now_ms, open_map
from tests.e2e.estate import APP, REPARTITION, write_estate
from tests.support.web import Web, running_web


def boxes(page: Page) -> dict[str, dict[str, float]]:
    """The nodes of the map as rectangles on the screen, by key."""
    found: dict[str, dict[str, float]] = page.locator(".react-flow__node").evaluate_all(
        """nodes => Object.fromEntries(nodes.map(node => {
             const { left, right, top, bottom } = node.getBoundingClientRect();
             return [node.dataset.id, { left, right, top, bottom }];
           }))"""
    )
    return found


def overlapping(found: dict[str, dict[str, float]]) -> list[tuple[str, str]]:
    keys = sorted(found)

    def is_over(one: dict[str, float], other: dict[str, float]) -> bool:
        beside = one["right"] <= other["left"] or other["right"] <= one["left"]
        return not (beside or one["bottom"] <= other["top"] or other["bottom"] <= one["top"])

    return [(one, two) for place, one in enumerate(keys) for two in keys[:place] if is_over(found[one], found[two])]


def watched_layouts(page: Page) -> list[str]:
    asked: list[str] = []

    def keep(request: Request) -> None:
        if "/graph/layout" in request.url:
            asked.append(request.url)

    page.on("request", keep)
    return asked


def test_the_server_computes_the_overview_and_the_browser_what_is_around_a_focus(page: Page, web: Web) -> None:
    asked = watched_layouts(page)
    open_map(page, web)
    expect(node(page, "topic/orders")).to_be_visible()
    assert len(asked) == 1
    overview = boxes(page)
    assert overlapping(overview) == []
    assert overview["client/web-shop"]["right"] < overview["topic/orders"]["left"]
    open_map(page, web, "?focus=orders")
    expect(node(page, "topic/orders")).to_be_visible()
    assert len(asked) == 1
    assert overlapping(boxes(page)) == []


def test_without_graphviz_the_browser_lays_out_the_overview(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A search path without `dot`; the interpreter is started by its full path.
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert shutil.which("dot") is None
    write_estate(tmp_path / "tables", now_ms())
    with running_web(tmp_path, NO_KAFKA, KEYS | {"tables.path": str(tmp_path / "tables")}) as web:
        with page.expect_response(lambda answer: "/graph/layout" in answer.url) as answered:
            open_map(page, web)
        assert answered.value.status == 501
        expect(node(page, "topic/orders")).to_be_visible()
        assert overlapping(boxes(page)) == []
        page.close()


def test_an_edge_back_to_an_application_goes_around_the_nodes(page: Page, web: Web) -> None:
    open_map(page, web, f"?focus={APP}&internal=true")
    edge = page.locator(f'.react-flow__edge[data-id="topic/{REPARTITION} streams/{APP}"] .react-flow__edge-path')
    expect(edge).to_be_attached()
    points: list[dict[str, Any]] = edge.evaluate(
        """path => {
             const toScreen = path.getScreenCTM(), length = path.getTotalLength(), found = [];
             for (let at = 3; at < length - 3; at += 2) {
               const { x, y } = path.getPointAtLength(at).matrixTransform(toScreen);
               found.push({ x, y });
             }
             return found;
           }"""
    )
    assert len(points) > 20
    behind = [
        (key, point)
        for key, box in boxes(page).items()
        for point in points
        if box["left"] < point["x"] < box["right"] and box["top"] < point["y"] < box["bottom"]
    ]
    assert behind == []
