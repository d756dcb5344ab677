"""Hostile names in a real browser: each is text in every view, wherever it stands, and makes no view wider."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browsing import KEYS, NO_KAFKA, now_ms
from tests.e2e.estate import HOSTILE_NAMES
from tests.e2e.hostile_estate import SHARED, write_hostile_estate
from tests.support.web import Web, running_web

LISTS = ("/", "/map", "/apps", "/topics", "/groups", "/letters", "/connect", "/health", f"/topics/-/{SHARED}")
# What would end a line, change its direction, or be read by a terminal: none of it may reach the document.
IN_THE_DOCUMENT = r"""() => {
  const bad = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/;
  const found = [];
  for (const one of document.querySelectorAll("*")) {
    if (/^(script|style)$/i.test(one.tagName)) continue;
    for (const { name, value } of one.attributes) {
      if (name !== "value" && bad.test(value)) found.push(`${one.tagName} ${name}`);
    }
    for (const child of one.childNodes) {
      if (child.nodeType === 3 && bad.test(child.data)) found.push(`${one.tagName} ${JSON.stringify(child.data)}`);
    }
  }
  if (document.querySelector("img, iframe, script:not([src])") !== null) found.push("an element of a name");
  return found.map(text => text.slice(0, 200));
}"""
TOO_WIDE = """part => part.scrollWidth - part.clientWidth"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    folder = tmp_path_factory.mktemp("hostile")
    write_hostile_estate(folder / "tables", now_ms())
    with running_web(folder, NO_KAFKA, KEYS | {"tables.path": str(folder / "tables")}) as running:
        yield running


def look(page: Page, url: str) -> dict[str, object]:
    """What is wrong with a view: in its text, and with its width on a large and on a narrow screen."""
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(url)
    wrong: dict[str, object] = {}
    for width in (1440, 400):
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator("h1, .map-canvas, .notice, .map-list").first).to_be_visible()
        expect(page.locator(".skeleton, .laying, [data-layout=pending]")).to_have_count(0)
        if found := page.evaluate(IN_THE_DOCUMENT):
            wrong["document"] = found
        for part in ("html", ".main"):
            if wide := page.locator(part).evaluate(TOO_WIDE):
                wrong[f"{part} at {width} is too wide"] = wide
    return wrong


def test_lists_of_hostile_names_are_text_and_fit(page: Page, hostile: Web) -> None:
    found = {path: wrong for path in LISTS if (wrong := look(page, hostile.url + path))}
    assert found == {}


@pytest.mark.parametrize("which", ["all", "long"])
def test_views_of_a_hostile_name_are_text_and_fit(page: Page, hostile: Web, which: str) -> None:
    name = quote(HOSTILE_NAMES[which], safe="")
    views = [f"/topics/-/{name}", f"/groups/-/{name}", f"/letters/-/{name}", f"/connect/-/{name}"]
    views += [f"/apps/-/{name}?tab={tab}" for tab in ("topology", "members", "versions", "activity", "text")]
    found = {path[:20] + path[-12:]: wrong for path in views if (wrong := look(page, hostile.url + path))}
    assert found == {}


def test_a_hostile_name_has_an_address_of_its_own(page: Page, hostile: Web) -> None:
    for name in HOSTILE_NAMES.values():
        page.goto(f"{hostile.url}/apps/-/{quote(name, safe='')}?tab=text")
        expect(page.get_by_label("Text of the topology")).to_contain_text("Source: in ")
