"""`python -m bench.page`: how fast the map of the page is in a real browser, as a section of `bench/PAGE.md`.

A real `headgate web` serves estates that are made here: one of 900 nodes for the overview, and one whose focus has 300
nodes. Targets: the overview in 3 s to its first picture, 16 ms (p95) of work on the main thread for a step of panning,
a focus of 300 nodes laid out in 2 s. Bundle size and memory of the tab are recorded without a target. Run it on a
machine that does nothing else: figures of a busy one are not results.
"""

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from bench import machine
from bench.sections import with_section
from headgate.web import page as built_page
from tests.e2e.browsing import KEYS, NO_KAFKA, now_ms
from tests.support.web import Web, running_web
from tests.unit.lineage.shop import DAY, Row, use, write

CHROMIUM = "/usr/bin/chromium"
RESULT = Path(__file__).with_name("PAGE.md")
FIGURES = "## Figures"
OVERVIEW_NODES, FOCUS_NODES = 900, 300
HUB = "hub"
_RUNS = 5
_PAN_STEPS = 120
_WAIT_MS = 120_000
_HEAD = ("| what | measured | target | met |", "|---|---:|---:|---|")
_ZOOM = "() => new DOMMatrixReadOnly(getComputedStyle(document.querySelector('.react-flow__viewport')).transform).a"
_ZOOM_A_PIXEL, _NEAR = 0.002, 0.02  # of the wheel, as a power of two
_DRAWN = ".map-canvas[data-layout]:not([data-layout=pending]) .react-flow__node"


class PageFigure(NamedTuple):
    """One line of the table; `target` None is only recorded."""

    what: str
    value: float
    unit: str
    target: float | None = None

    def line(self) -> str:
        wanted = "-" if self.target is None else f"<= {self.target:,.0f} {self.unit}"
        verdict = "-" if self.target is None else "yes" if self.value <= self.target else "**no**"
        return f"| {self.what} | {self.value:,.1f} {self.unit} | {wanted} | {verdict} |"


def overview_rows(now: int) -> Iterator[Row]:
    """180 chains of a producer, a topic, an application, a topic and a group, five of six joined to the one before."""
    seen: Row = {"valid_from": now - DAY, "last_seen": now}
    for number in range(OVERVIEW_NODES // 5):
        raw, made, app = f"raw-{number:03}", f"made-{number:03}", f"application-{number:03}"
        yield use(f"producer-{number:03}", raw, "write", "client", **seen)
        yield use(app, raw, "read", **seen, declared=True)
        yield use(app, made, "write", **seen, declared=True)
        yield use(f"group-{number:03}", made, "read", "consumer_group", **seen)
        if number % 6:
            yield use(app, f"made-{number - 1:03}", "read", **seen)


def focus_rows(now: int) -> Iterator[Row]:
    """A topic with 99 applications that each make a topic for a group of their own: 299 nodes within three hops."""
    seen: Row = {"valid_from": now - DAY, "last_seen": now}
    yield use("producer", HUB, "write", "client", **seen)
    for number in range((FOCUS_NODES - 2) // 3):
        yield use(f"application-{number:03}", HUB, "read", **seen, declared=True)
        yield use(f"application-{number:03}", f"made-{number:03}", "write", **seen, declared=True)
        yield use(f"group-{number:03}", f"made-{number:03}", "read", "consumer_group", **seen)


def write_rows(root: Path, rows: Iterator[Row]) -> None:
    write(root, "lineage_edges", list(rows))
    for table in ("app_io", "applications", "changes"):
        write(root, table, [])


def first_pictures(browser: Browser, url: str) -> list[float]:
    """Milliseconds from the navigation to the first node, each in a context without a cache."""
    found = []
    for _ in range(_RUNS):
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        opened = context.new_page()
        started = time.perf_counter()
        opened.goto(url)
        opened.wait_for_selector(_DRAWN, timeout=_WAIT_MS)
        found.append((time.perf_counter() - started) * 1000)
        context.close()
    return found


def pan_steps(opened: Page) -> list[float]:
    """Milliseconds of work on the main thread for each step of a drag across the map."""
    session: CDPSession = opened.context.new_cdp_session(opened)
    session.send("Performance.enable")
    opened.mouse.move(700, 160)
    opened.mouse.down()
    found = []
    for step in range(_PAN_STEPS):
        before = _task_ms(session)
        opened.mouse.move(700 + (step % 60) * 8 - 240, 160 + step % 40)
        opened.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        found.append(_task_ms(session) - before)
    opened.mouse.up()
    return found


def zoom_to_one(opened: Page) -> None:
    opened.mouse.move(700, 400)
    while (left := math.log2(1 / opened.evaluate(_ZOOM))) > _NEAR:
        opened.mouse.wheel(0, -min(left, 1) / _ZOOM_A_PIXEL)
        opened.wait_for_timeout(100)


def _task_ms(session: CDPSession) -> float:
    return _metric(session, "TaskDuration") * 1000


def _metric(session: CDPSession, name: str) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(float(one["value"]) for one in metrics if one["name"] == name)


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def of_overview(browser: Browser, web: Web) -> Iterator[PageFigure]:
    url = f"{web.url}/map"
    first, *later = first_pictures(browser, url)
    yield PageFigure(f"overview of {OVERVIEW_NODES} nodes, first time", first, "ms", 3_000)
    yield PageFigure("the same, layout kept (median)", statistics.median(later), "ms", 3_000)
    opened = browser.new_page(viewport={"width": 1440, "height": 900})
    opened.goto(url)
    opened.wait_for_selector(_DRAWN, timeout=_WAIT_MS)
    yield PageFigure("work for a step of panning, p95", p95(pan_steps(opened)), "ms", 16)
    zoom_to_one(opened)
    yield PageFigure("the same with names that can be read (zoom 1), p95", p95(pan_steps(opened)), "ms", 16)
    session = opened.context.new_cdp_session(opened)
    session.send("Performance.enable")
    session.send("HeapProfiler.collectGarbage")
    yield PageFigure("JavaScript heap of the tab", _metric(session, "JSHeapUsedSize") / 2**20, "MiB")
    opened.close()


def of_focus(browser: Browser, web: Web) -> Iterator[PageFigure]:
    found = first_pictures(browser, f"{web.url}/map?focus={HUB}&hops=3")
    what = f"focus of {FOCUS_NODES} nodes, laid out in the browser (median)"
    yield PageFigure(what, statistics.median(found), "ms", 2_000)


def of_bundle() -> Iterator[PageFigure]:
    for suffix in ("js", "css"):
        files = (built_page.ROOT / "assets").glob(f"*.{suffix}")
        yield PageFigure(f"bundle, {suffix}", sum(file.stat().st_size for file in files) / 1024, "KiB")


def measure(folder: Path) -> Iterator[PageFigure]:
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    now = now_ms()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        write_rows(folder / "overview" / "tables", overview_rows(now))
        with running_web(
            folder / "overview", NO_KAFKA, KEYS | {"tables.path": str(folder / "overview" / "tables")}
        ) as web:
            yield from of_overview(browser, web)
        write_rows(folder / "focus" / "tables", focus_rows(now))
        with running_web(folder / "focus", NO_KAFKA, KEYS | {"tables.path": str(folder / "focus" / "tables")}) as web:
            yield from of_focus(browser, web)
        browser.close()
    yield from of_bundle()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"also write the figures of {RESULT.name}")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = [one.line() for one in measure(Path(folder))]
    on = ", ".join(f"{what}: {value}" for what, value in machine.facts().items())
    at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    text = "\n".join([FIGURES, "", f"`python -m bench.page --write`, {at}.", "", f"{on}.", "", *_HEAD, *lines, ""])
    sys.stdout.write(text)
    if arguments.write:
        RESULT.write_text(with_section(RESULT.read_text("utf-8"), text, before="What"), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
