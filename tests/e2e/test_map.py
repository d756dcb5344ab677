"""The map in a real browser: layout, overlays, time, differences, applications from inside, exports and links."""

import re
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Request, expect

from tests.e2e.browsing import KEYS, NO_KAFKA, loose_edges, node, now_ms, open_map
from tests.e2e.estate import APP, REPARTITION, write_estate
from tests.support.web import Web, running_web
from tests.unit.lineage.shop import HOUR, use, write

_TRANSFORM = "getComputedStyle(document.querySelector('.react-flow__viewport')).transform"
_ZOOM = f"new DOMMatrixReadOnly({_TRANSFORM}).a"


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


def shifts(before: dict[str, dict[str, float]], after: dict[str, dict[str, float]]) -> set[tuple[int, int]]:
    """How far the nodes have moved, in whole pixels: one way, if they have moved together."""
    assert after.keys() == before.keys()
    return {
        (round(after[key]["left"] - box["left"]), round(after[key]["top"] - box["top"])) for key, box in before.items()
    }


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
    assert loose_edges(page) == []
    open_map(page, web, "?focus=orders")
    expect(node(page, "topic/orders")).to_be_visible()
    assert len(asked) == 1
    assert overlapping(boxes(page)) == []


def test_a_drag_moves_the_map_as_one_layer_that_is_given_up_when_it_ends(page: Page, web: Web) -> None:
    open_map(page, web)
    viewport = page.locator(".react-flow__viewport")
    place = page.locator(".map-canvas").bounding_box()
    assert place is not None
    before, (x, y) = boxes(page), (place["x"] + 20, place["y"] + 80)
    page.mouse.move(x, y)
    page.mouse.down()
    expect(viewport).to_have_css("will-change", "auto")  # of a click too, which moves nothing
    page.mouse.move(x + 60, y + 30, steps=3)
    expect(viewport).to_have_css("will-change", "transform")
    assert shifts(before, boxes(page)) == {(60, 30)}
    page.mouse.up()
    expect(viewport).to_have_css("will-change", "auto")
    assert shifts(before, boxes(page)) == {(60, 30)}
    # What React Flow itself moves begins where the drag has ended: the wheel, and a node that gets the focus.
    zoom, transform, dragged = page.evaluate(_ZOOM), page.evaluate(_TRANSFORM), boxes(page)
    page.mouse.wheel(0, -240)
    expect(viewport).not_to_have_css("transform", transform)
    grown = page.evaluate(_ZOOM) / zoom
    assert grown > 1.05
    around = {key: x + 60 + grown * (box["left"] - x - 60) for key, box in dragged.items()}
    assert {key: box["left"] for key, box in boxes(page).items()} == pytest.approx(around, abs=1)
    page.get_by_role("button", name="Fit View").click()
    for key in before:
        expect(node(page, key)).to_be_in_viewport(ratio=0.99)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 1_000, y, steps=3)
    page.mouse.up()
    expect(viewport).to_have_css("will-change", "auto")
    far = node(page, "topic/daily-report")
    expect(far).not_to_be_in_viewport()
    page.keyboard.press("Tab")
    far.focus()
    expect(far).to_be_in_viewport()


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


def test_an_application_expands_in_place_and_the_link_keeps_it(page: Page, web: Web) -> None:
    open_map(page, web)
    expect(node(page, f"streams/{APP}")).to_be_visible()
    before = boxes(page)
    page.get_by_role("button", name=f"Expand {APP}").click()
    expect(page.locator(".map-canvas")).to_have_attribute("data-expanded", "1")
    source = page.locator(".react-flow__node-piece", has_text="orders-source")
    expect(source).to_be_visible()
    expect(page.locator(".sub", has_text="Sub-topology 1")).to_be_visible()
    expect(page.locator(".piece-store", has_text="customer-store")).to_be_visible()
    # The edge of a topic leads to the source that reads it.
    source_id = source.get_attribute("data-id")
    expect(page.locator(f'.react-flow__edge[data-id="topic/orders streams/{APP}#{source_id}"]')).to_be_attached()
    outside = {key: box for key, box in boxes(page).items() if key in before}
    assert overlapping(outside) == []
    assert loose_edges(page) == []
    again = page.context.new_page()
    again.goto(page.url)
    expect(again.locator(".react-flow__node-piece", has_text="orders-source")).to_be_visible()
    again.close()
    page.get_by_role("button", name=f"Collapse {APP}").click()
    expect(page.locator(".react-flow__node-piece")).to_have_count(0)


def test_a_use_that_only_a_pattern_declares_is_marked(page: Page, web: Web) -> None:
    open_map(page, web)
    marked = page.locator(".react-flow__edge", has_text="by pattern")
    expect(marked).to_have_count(1)
    expect(marked).to_have_attribute("data-id", "topic/clicks streams/session-builder")
    expect(marked).to_have_attribute("aria-label", "declared and observed, by a pattern or a chosen topic")
    # A figure stands in the place of the mark; the panel has it then.
    open_map(page, web, "?overlay=rate&selected=streams%2Fsession-builder")
    expect(page.locator('.react-flow__edge[data-id="topic/clicks streams/session-builder"]')).to_contain_text("/s")
    expect(marked).to_have_count(0)
    expect(page.locator(".map-side li", has_text="clicks")).to_contain_text("by a pattern or a chosen topic")
    page.goto(f"{web.url}/topics/-/clicks")
    expect(page.get_by_text("by pattern", exact=True)).to_have_count(1)


def test_what_connect_keeps_for_itself_is_shown_with_internal_topics_only(page: Page, tmp_path: Path) -> None:
    topics = {f"connect.shop.{what}_topic": f"shop-connect-{what}" for what in ("status", "config", "offset")}
    rows = [use("archive", "orders", "read", "connector")]
    for topic in topics.values():
        rows += [use(f"{topic}-client", topic, direction, "client") for direction in ("read", "write")]
    for table in ("app_io", "applications", "changes"):
        write(tmp_path / "tables", table, [])
    write(tmp_path / "tables", "lineage_edges", rows)
    with running_web(tmp_path, NO_KAFKA, KEYS | topics | {"tables.path": str(tmp_path / "tables")}) as web:
        open_map(page, web)
        expect(page.locator(".react-flow__node")).to_have_count(2)
        page.get_by_role("button", name="Internal topics").click()
        expect(page.locator(".react-flow__node")).to_have_count(8)
        expect(node(page, "topic/shop-connect-offset")).to_be_visible()
        page.close()


def test_overlays_show_lags_dead_letters_rates_and_states(page: Page, web: Web) -> None:
    open_map(page, web)
    chosen = page.get_by_label("Overlay")
    chosen.select_option("lag")
    expect(node(page, "share_group/billing").locator(".badge")).to_have_text("1,240")
    expect(page.locator('.react-flow__edge[data-id="topic/enriched-orders share_group/billing"]')).to_contain_text(
        "1,240"
    )
    chosen.select_option("letters")
    expect(node(page, "share_group/billing").locator(".badge")).to_contain_text("▲")
    expect(node(page, "share_group/billing").locator(".badge")).to_contain_text(" %)")
    chosen.select_option("rate")
    expect(node(page, "topic/clicks").locator(".badge")).to_contain_text("/s")
    chosen.select_option("state")
    expect(node(page, "share_group/billing").locator(".badge")).to_have_text("◆unknown")  # no Kafka in this test
    again = page.context.new_page()
    again.goto(page.url)
    expect(node(again, "share_group/billing").locator(".badge")).to_have_text("◆unknown")
    again.close()


def test_a_map_of_the_past_has_no_figures_of_now(page: Page, web: Web) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    past = f"as_of={now_ms() - HOUR}&selected=topic%2Forders"
    for overlay in ("state", "lag", "letters", "rate"):
        open_map(page, web, f"?{past}&overlay={overlay}")
        chosen = page.get_by_label("Overlay")
        expect(chosen).to_be_disabled()
        expect(chosen.locator("option:checked")).to_have_text("Overlay: on the live map only")
        expect(node(page, "share_group/billing")).to_be_visible()
        expect(page.locator(".badge")).to_have_count(0)
        expect(page.locator(".react-flow__edge-text")).to_have_text(["by pattern"])
    side = page.locator(".map-side")
    expect(side).to_contain_text("Written by")
    expect(side).not_to_contain_text(" a day")
    assert [url for url in asked if "overlay" in url.partition("?")[0]] == []
    assert all("as_of=" in url for url in asked if "/topics/orders" in url)
    page.get_by_role("button", name="Live", exact=True).click()
    expect(chosen).to_have_value("rate")  # as the link has it
    expect(node(page, "topic/clicks").locator(".badge")).to_contain_text("/s")
    expect(side).to_contain_text(" a day")
    open_map(page, web, f"?overlay=rate&compare={now_ms() - HOUR}")
    expect(chosen.locator("option:checked")).to_have_text("Overlay: not on a difference")
    expect(page.locator(".badge", has_text="/s")).to_have_count(0)


def test_a_paused_group_and_its_routes_are_red(page: Page, web: Web) -> None:
    """There is no Kafka in this test, so the state is made by the browser's own routing."""
    group: dict[str, Any] = {"name": "billing", "managed": True, "paused": True, "tripped": True, "pause_reasons": []}
    paused = {"share_groups": [group], "count": 1, "next": None, "problem": None}
    page.route("**/api/v1/share-groups?paused=true*", lambda route: route.fulfill(json=paused))
    open_map(page, web)
    expect(node(page, "share_group/billing").locator(".node")).to_have_class(re.compile(r"\bpaused\b"))
    expect(page.locator(".legend")).to_contain_text("paused")
    red = page.locator(".edge-paused")
    expect(red).to_have_count(2)  # what it reads, and its dead-letter topic
    assert sorted(one.get_attribute("data-id") or "" for one in red.all()) == [
        "share_group/billing topic/dlq.billing",
        "topic/enriched-orders share_group/billing",
    ]
    page.unroute("**/api/v1/share-groups?paused=true*")
    open_map(page, web)
    expect(red).to_have_count(0)


def test_the_time_line_moves_the_map_and_two_handles_show_a_difference(page: Page, web: Web) -> None:
    open_map(page, web, "?focus=orders")
    expect(node(page, "consumer_group/old-reader")).to_have_count(0)
    expect(page.locator(".tick")).not_to_have_count(0)
    # Dragged to about two days ago, of seven: old-reader stopped a day ago.
    track = page.locator(".time-track").bounding_box()
    assert track is not None
    y = track["y"] + 34
    page.mouse.move(track["x"] + track["width"] - 1, y)
    page.mouse.down()
    page.mouse.move(track["x"] + track["width"] * 0.8, y, steps=4)
    page.mouse.move(track["x"] + track["width"] * 0.72, y, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"as_of=\d+"))
    expect(node(page, "consumer_group/old-reader")).to_be_visible()
    # Back to live by keyboard, and compared with two days ago.
    page.get_by_role("slider", name="Time of the map").focus()
    page.keyboard.press("End")
    expect(page).not_to_have_url(re.compile("as_of"))
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page).to_have_url(re.compile(r"compare=\d+"))
    compared = f"?focus=orders&compare={now_ms() - 2 * 86_400_000}"
    open_map(page, web, compared)
    gone = node(page, "consumer_group/old-reader")
    expect(gone.locator(".badge")).to_have_text("\N{MINUS SIGN} removed")
    expect(node(page, f"streams/{APP}").locator(".badge")).to_have_text("~ changed")
    expect(page.locator(".edge-removed")).to_have_count(1)
    expect(page.locator(".legend")).to_contain_text("\N{MINUS SIGN} 2 removed, ~ 1 changed")
    expect(node(page, "topic/orders").locator(".badge")).to_have_count(0)
    # The other way round: at the later time it was there.
    open_map(page, web, f"?focus=orders&compare={now_ms() - 4 * 86_400_000}&as_of={now_ms() - 2 * 86_400_000}")
    expect(node(page, "topic/orders").locator(".badge")).to_have_text("+ added")


def test_the_map_by_keyboard_only(page: Page, web: Web) -> None:
    page.goto(web.url)
    expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Name to search for")).to_be_focused()
    page.keyboard.type("enricher")
    expect(page.get_by_role("option").first).to_contain_text(APP)
    page.keyboard.press("Shift+Enter")
    expect(page).to_have_url(re.compile(f"focus={APP}"))
    expect(node(page, f"streams/{APP}")).to_be_visible()
    node(page, f"streams/{APP}").focus()
    page.keyboard.press("ArrowLeft")
    expect(page).to_have_url(re.compile("selected=topic"))
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile(f"selected=streams%2F{APP}"))
    page.keyboard.press("e")
    expect(page.locator(".map-canvas")).to_have_attribute("data-expanded", "1")
    page.keyboard.press("e")
    expect(page.locator(".map-canvas")).to_have_attribute("data-expanded", "0")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"focus={APP}"))
    page.get_by_role("slider", name="Time of the map").focus()
    page.keyboard.press("PageDown")  # to the last change
    expect(page).to_have_url(re.compile(r"as_of=\d+"))


@pytest.mark.parametrize("form", ["json", "dot", "mermaid", "csv"])
def test_an_export_is_what_the_api_answers_byte_for_byte(page: Page, web: Web, form: str) -> None:
    open_map(page, web, "?focus=audit&internal=true&hops=3")
    with page.context.expect_event("request", lambda request: f"format={form}" in request.url) as asked:
        page.get_by_label("Export").select_option(form)
    query = "focus=audit&hops=3&direction=both&internal=true"
    wanted, exported = (_bytes(url) for url in (f"{web.url}/api/v1/graph?{query}&format={form}", asked.value.url))
    assert exported == wanted
    assert b"onerror" in wanted
    assert "\u202e".encode() not in wanted


def _bytes(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        body: bytes = answer.read()
    return body
