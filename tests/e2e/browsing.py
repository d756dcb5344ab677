"""How the tests of the page start a web process on tables, and find nodes on the map."""

import re
import time
from typing import Any

from playwright.sync_api import Page, expect

from tests.support.web import Web

WAIT_MS = 60_000
KEYS: dict[str, object] = {"activity.enable": False, "share_groups.enable": False, "lags.enable": False}
NO_KAFKA = "127.0.0.1:1"


def now_ms() -> int:
    return int(time.time() * 1000)


def node(page: Page, key: str) -> Any:
    return page.locator(f'.react-flow__node[data-id="{key}"]')


def open_map(page: Page, web: Web, query: str = "") -> None:
    """Opens the map and waits until it is laid out."""
    page.goto(f"{web.url}/map{query}")
    expect(page.locator(".map-canvas")).to_have_attribute("data-layout", re.compile(r"^\d+$"))
