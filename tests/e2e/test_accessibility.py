"""axe-core on every view in both themes and on a narrow screen: no serious finding; and all views by keyboard alone."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browsing import WAIT_MS
from tests.e2e.busy_estate import PLAN
from tests.e2e.estate import APP
from tests.support.web import Web

AXE = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"
TABS = [f"/apps/-/{APP}?tab={tab}" for tab in ("topology", "members", "versions", "activity", "text")]
PATHS = [
    *("/", "/map", "/apps", "/apps?paste", "/topics", "/groups", "/letters", "/connect", "/health"),
    *TABS,
    *("/letters/-/shipping?episode=5f1c0d2a9b3e", "/letters/-/shipping?new=plan", f"/letters/-/shipping?plan={PLAN}"),
    *("/topics/-/orders", "/groups/-/billing", "/connect/-/s3-archive", "/topics/-/none-such"),
]
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 1440), ("light", 400)])
def test_no_view_has_a_serious_finding(browser: Browser, busy: Web, theme: Any, width: int) -> None:
    """Colours are the same at every width, so one theme is enough on a narrow screen."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    source = AXE.read_text("utf-8")
    found: dict[str, list[str]] = {}
    for path in PATHS:
        page.goto(busy.url + path)
        expect(page.locator("h1, .map-canvas, .notice").first).to_be_visible()
        expect(page.locator(".skeleton, .laying, [data-layout=pending]")).to_have_count(0)
        page.evaluate(source)
        violations = page.evaluate("rules => axe.run(document, rules).then(found => found.violations)", RULES)
        bad = [one for one in violations if one["impact"] in {"serious", "critical"}]
        if bad:
            found[path] = [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in bad]
    context.close()
    assert found == {}


def test_from_now_to_a_version_by_keyboard_only(page: Page, busy: Web) -> None:
    page.goto(busy.url)
    target = page.get_by_role("link", name="Open its members")
    expect(target).to_be_visible()
    for _ in range(80):
        page.keyboard.press("Tab")
        if target.evaluate("link => link === document.activeElement"):
            break
    expect(target).to_be_focused()
    outline = target.evaluate("link => getComputedStyle(link).outlineStyle")
    assert outline != "none"
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"tab=members"))
    expect(page.get_by_role("heading", name="Hosts and tasks")).to_be_visible()
