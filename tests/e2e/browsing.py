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


def loose_edges(page: Page) -> list[str]:
    """The edges of a picture with an end that is not at the middle of a side of any node."""
    found: list[str] = page.locator(".react-flow__edge").evaluate_all(
        """edges => {
             const sides = [...document.querySelectorAll(".react-flow__node")].flatMap(node => {
               const { left, right, top, bottom } = node.getBoundingClientRect();
               const [x, y] = [(left + right) / 2, (top + bottom) / 2];
               return [[left, y], [right, y], [x, top], [x, bottom]];
             });
             const isLoose = edge => {
               const path = edge.querySelector(".react-flow__edge-path"), toScreen = path.getScreenCTM();
               return [0, path.getTotalLength()].some(at => {
                 const end = path.getPointAtLength(at).matrixTransform(toScreen);
                 return !sides.some(([x, y]) => Math.hypot(x - end.x, y - end.y) < 1.5);
               });
             };
             return edges.filter(isLoose).map(edge => edge.dataset.id);
           }"""
    )
    return found


def open_map(page: Page, web: Web, query: str = "") -> None:
    """Opens the map and waits until it is laid out."""
    page.goto(f"{web.url}/map{query}")
    expect(page.locator(".map-canvas")).to_have_attribute("data-layout", re.compile(r"^\d+$"))
