"""The page in a real browser against the real web process, on the tables of a small estate.

Every wait is for a condition. The process reads no Kafka here: the state of share groups is therefore unknown.
"""

import re
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from headgate.web.tokens import TokenScope, add_token
from tests.e2e.browsing import KEYS, NO_KAFKA, loose_edges, node, now_ms, open_map
from tests.e2e.estate import APP, HOSTILE, edges, write_estate
from tests.support.web import Web, running_web
from tests.unit.lineage.shop import use, write


def test_the_map_shows_who_uses_which_topic(page: Page, web: Web) -> None:
    open_map(page, web)
    expect(node(page, f"streams/{APP}")).to_be_visible()
    expect(node(page, "topic/orders")).to_be_visible()
    expect(page.locator(".edge-both")).not_to_have_count(0)
    expect(page.locator(".edge-declared")).to_have_count(5)
    expect(page.locator(".edge-observed").nth(10)).to_be_attached()
    # Another kind of line for each, and not only another class.
    dashes = {
        page.locator(f".edge-{state} path").first.evaluate("path => getComputedStyle(path).strokeDasharray")
        for state in ("both", "declared", "observed")
    }
    assert len(dashes) == 3
    expect(page.locator(".react-flow__node[data-id*=repartition]")).to_have_count(0)
    page.get_by_role("button", name="Internal topics").click()
    expect(page.locator(".react-flow__node[data-id*=repartition]")).to_have_count(1)


def test_a_name_is_text_and_nothing_else(page: Page, web: Web) -> None:
    open_map(page, web, "?focus=audit")
    shown = page.locator(".react-flow__node", has_text="onerror")
    expect(shown).to_contain_text("<img src=x")
    assert "\u202e" not in (shown.text_content() or "")
    shown.click()
    expect(page.get_by_label("Selected node")).to_contain_text("gnp.exe")
    assert page.locator("img").count() == 0
    page.goto(f"{web.url}/topics/-/audit")
    expect(page.get_by_role("heading", name="Readers")).to_be_visible()
    expect(page.get_by_text("<img src=x").first).to_be_visible()
    assert HOSTILE.endswith("gnp.exe")


def test_a_selected_node_has_facts_and_impact_and_the_link_reproduces_the_view(page: Page, web: Web) -> None:
    open_map(page, web)
    node(page, "topic/orders").click()
    panel = page.get_by_label("Selected node")
    expect(panel).to_contain_text("99.9 %")
    expect(panel).to_contain_text("Written by")
    expect(panel).to_contain_text(re.compile(r"4 topics, 7 applications and clients"))
    panel.get_by_role("button", name="Focus").click()
    expect(page).to_have_url(re.compile(r"focus=orders"))
    page.get_by_role("radio", name="Down").click()
    page.get_by_role("radio", name="all").click()
    # Only all hops reach the one, and only the direction leaves the other out: the last view is the one that is shown.
    expect(node(page, "consumer_group/dashboard")).to_be_visible()
    expect(node(page, "client/web-shop")).to_have_count(0)
    link, shown = page.url, page.locator(".react-flow__node").count()

    again = page.context.new_page()
    again.goto(link)
    expect(again.locator(".react-flow__node")).to_have_count(shown)
    expect(again.get_by_label("Selected node")).to_contain_text("orders")
    expect(again.get_by_role("radio", name="Down")).to_be_checked()


def test_the_map_without_topics_and_at_another_time(page: Page, web: Web) -> None:
    open_map(page, web)
    page.get_by_role("button", name="Without topics").click()
    expect(node(page, "topic/orders")).to_have_count(0)
    expect(node(page, f"streams/{APP}")).to_be_visible()
    open_map(page, web, f"?focus=orders&as_of={now_ms() - 36 * 3_600_000}")
    expect(node(page, "consumer_group/old-reader")).to_be_visible()
    page.get_by_role("button", name="Live", exact=True).click()
    expect(node(page, "consumer_group/old-reader")).to_have_count(0)


def test_an_update_keeps_positions_and_marks_what_is_new(page: Page, tmp_path: Path) -> None:
    now = now_ms()
    write_estate(tmp_path / "tables", now)
    with running_web(tmp_path, NO_KAFKA, KEYS | {"tables.path": str(tmp_path / "tables")}) as web:
        open_map(page, web)
        expect(node(page, "topic/orders")).to_be_visible()
        before = _positions(page)
        more = use("new-reader", "orders", "read", "consumer_group", valid_from=now - 1_000)
        write(tmp_path / "tables", "lineage_edges", [*edges(now), more])
        expect(node(page, "consumer_group/new-reader")).to_be_visible()
        expect(node(page, "consumer_group/new-reader").locator(".is-new")).to_have_count(1)
        after = _positions(page)
        assert {key: after[key] for key in before} == before
        page.close()


def _positions(page: Page) -> dict[str, str]:
    found: dict[str, str] = page.locator(".react-flow__node").evaluate_all(
        "nodes => Object.fromEntries(nodes.map(node => [node.dataset.id, node.style.transform]))"
    )
    assert found
    return found


def test_search_and_all_views_by_keyboard_only(page: Page, web: Web) -> None:
    page.goto(web.url)
    expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Name to search for")).to_be_focused()
    page.keyboard.type("enricher")
    expect(page.get_by_role("option").first).to_contain_text(APP)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{web.url}/apps/-/{APP}")
    page.keyboard.press("Control+k")
    expect(page.get_by_label("Name to search for")).to_be_focused()
    page.keyboard.type("nothing has this name")
    expect(page.get_by_text("No name contains this text.")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    for key, heading in {"t": "Topics", "a": "Applications", "g": "Share groups", "h": "Health", "n": "Now"}.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()


def test_arrows_walk_the_map(page: Page, web: Web) -> None:
    open_map(page, web, "?selected=topic%2Forders")
    node(page, "topic/orders").focus()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile(f"selected=streams%2F{APP}"))
    page.keyboard.press("ArrowLeft")
    expect(page).to_have_url(re.compile(r"selected=topic%2F(orders|customers)"))
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(re.compile("selected"))


def test_a_topic_lists_its_users_and_what_depends_on_it(page: Page, web: Web) -> None:
    page.goto(f"{web.url}/topics")
    page.get_by_label("Filter by name").fill("pay")
    page.get_by_role("link", name="payments").click()
    expect(page.get_by_text("Records are written past the gateway")).to_be_visible()
    expect(page.get_by_role("link", name="fraud-detector")).to_have_count(2)  # as a reader, and in the impact
    page.goto(f"{web.url}/topics/-/none-such")
    expect(page.get_by_role("heading", name="There is no such topic")).to_be_visible()


def test_an_application_has_its_topology_versions_and_text(page: Page, web: Web) -> None:
    page.goto(f"{web.url}/apps/-/{APP}")
    expect(page.locator(".picture")).to_have_attribute("data-layout", "done")
    expect(page.locator(".picture").get_by_text("Sub-topology 1")).to_be_visible()
    expect(page.locator(".react-flow__node", has_text="customer-store")).to_be_visible()
    expect(page.locator(".react-flow__node", has_text="audit-sink")).to_be_visible()
    assert loose_edges(page) == []
    page.get_by_role("link", name="Versions", exact=True).click()
    expect(page.get_by_text("The newer version can take over")).to_be_visible()
    page.get_by_role("link", name="9f2c41d07a3e/0/ab12ab12ab12").click()
    expect(page.get_by_text("This version does not run any more")).to_be_visible()
    expect(page.locator(".react-flow__node", has_text="enriched-sink")).to_be_visible()
    expect(page.locator(".react-flow__node", has_text="audit-sink")).to_have_count(0)
    page.get_by_role("link", name="Text", exact=True).click()
    expect(page.get_by_label("Text of the topology")).to_contain_text("Source: orders-source (topics: [orders])")


def test_a_share_group_has_its_rate_and_its_trips(page: Page, web: Web) -> None:
    page.goto(f"{web.url}/groups")
    expect(page.get_by_text("The state of share groups is not up to date")).to_be_visible()
    page.get_by_role("link", name="billing", exact=True).click()
    expect(page.locator(".chart rect")).not_to_have_count(0)
    expect(page.locator(".chart > svg line.stop")).to_have_count(1)
    expect(page.get_by_text("30 of 100 records (30 %) in 1 min, threshold 20 %")).to_be_visible()


def test_a_back_test_recommends_a_setting_with_its_command(page: Page, web: Web) -> None:
    page.goto(f"{web.url}/groups/-/billing")
    panel = page.locator("section.panel", has=page.get_by_role("heading", name="Back-test"))
    expect(panel.locator("tbody tr").nth(0)).to_contain_text("live")
    expect(panel.locator("tbody tr").nth(1)).to_contain_text("recommended")
    expect(panel.locator("tbody tr").nth(1)).to_contain_text("10 %")
    panel.get_by_role("button", name="Show the command").click()
    expect(panel.locator("code")).to_contain_text("circuit.breaker.threshold.percent=10")


def test_the_theme_is_kept(page: Page, web: Web) -> None:
    page.goto(web.url)
    page.get_by_role("button", name="Switch to the dark theme").click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_on_a_narrow_screen_the_map_is_a_list_of_neighbours(page: Page, busy: Web) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    views = (
        "/map?focus=orders",
        "/",
        "/topics",
        "/apps",
        "/groups",
        "/letters",
        "/connect",
        "/health",
        "/topics/-/orders",
        "/groups/-/billing",
        "/letters/-/shipping",
        "/connect/-/s3-archive",
        *(f"/apps/-/{APP}?tab={tab}" for tab in ("topology", "members", "versions", "activity", "text")),
    )
    for path in views:
        page.goto(busy.url + path)
        expect(page.locator(".panel, .card, .notice").first).to_be_visible()
        expect(page.locator(".skeleton, .laying, [data-layout=pending]")).to_have_count(0)
        for part in ("html", ".main"):
            assert page.locator(part).evaluate("part => part.scrollWidth - part.clientWidth") == 0, (path, part)
    page.goto(f"{busy.url}/map?focus=orders")
    expect(page.get_by_text("Gives data to")).to_be_visible()
    expect(page.get_by_role("radiogroup", name="Hops")).to_be_hidden()  # only neighbours are listed
    page.get_by_role("link", name=APP).click()
    expect(page.get_by_role("link", name="enriched-orders")).to_be_visible()


@pytest.mark.parametrize("path", ["/map", "/map?selected=topic%2Forders", f"/apps/-/{APP}"])
def test_nothing_on_a_picture_covers_the_controls(page: Page, web: Web, path: str) -> None:
    page.goto(web.url + path)
    expect(page.locator(".react-flow__attribution")).to_be_visible()
    boxes: dict[str, dict[str, float]] = page.evaluate(
        """() => Object.fromEntries([".react-flow__attribution", ".react-flow__controls", ".legend"].flatMap(name => {
             const found = document.querySelector(name)?.getBoundingClientRect();
             return found === undefined ? [] : [[name, found.toJSON()]];
           }))"""
    )
    for first, second in combinations(boxes, 2):
        one, other = boxes[first], boxes[second]
        beside = one["right"] <= other["left"] or other["right"] <= one["left"]
        assert beside or one["bottom"] <= other["top"] or other["bottom"] <= one["top"], (first, second, boxes)


def test_without_tables_every_view_says_what_is_missing(page: Page, tmp_path: Path) -> None:
    with running_web(tmp_path, NO_KAFKA, KEYS | {"tables.path": str(tmp_path / "none")}) as web:
        for path in ("/map", "/topics", "/apps"):
            page.goto(web.url + path)
            expect(page.get_by_role("alert")).to_contain_text("could not be loaded")
            expect(page.get_by_role("alert")).to_contain_text("headgate pipeline run")
        page.goto(f"{web.url}/health")
        expect(page.get_by_text("No run of the pipeline is recorded")).to_be_visible()
        page.close()


def test_without_a_token_the_page_asks_for_one_and_uses_it(page: Page, tmp_path: Path) -> None:
    write_estate(tmp_path / "tables", now_ms())
    tokens = tmp_path / "tokens.toml"
    expires = datetime.now(UTC) + timedelta(days=1)
    token = add_token(tokens, name="team", scope=TokenScope.READ, expires=expires, names=["orders"])
    keys = KEYS | {"tables.path": str(tmp_path / "tables"), "web.tokens_file": str(tokens)}
    keys["web.allowed_hosts"] = ["127.0.0.1"]
    with running_web(tmp_path, NO_KAFKA, keys, host="0.0.0.0") as web:
        page.goto(f"{web.url}/map?focus=orders")
        expect(page.get_by_role("heading", name="A token is needed to see the map")).to_be_visible()
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Use for this tab").click()
        expect(node(page, "topic/orders")).to_be_visible()
        expect(page.locator(".react-flow__node", has_text="name not visible")).not_to_have_count(0)
        expect(page.locator(".react-flow__node", has_text="web-shop")).to_have_count(0)
        with page.expect_download() as saved:  # a link of the browser would send no token
            page.get_by_label("Export").select_option("png")
        assert saved.value.suggested_filename == "map.png"
        assert saved.value.path().read_bytes().startswith(b"\x89PNG")
        page.close()


def test_when_the_server_goes_away_the_page_keeps_what_it_has_and_says_so(page: Page, tmp_path: Path) -> None:
    write_estate(tmp_path / "tables", now_ms())
    with running_web(tmp_path, NO_KAFKA, KEYS | {"tables.path": str(tmp_path / "tables")}) as web:
        open_map(page, web)
        expect(page.locator(".freshness")).to_have_attribute("data-state", "good")
    expect(page.locator(".freshness")).to_contain_text("no connection")
    expect(page.get_by_role("heading", name="Not updated for")).to_be_visible()
    expect(node(page, "topic/orders")).to_be_visible()
