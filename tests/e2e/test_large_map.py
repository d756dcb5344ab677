"""The map of 900 nodes in a real browser: what is done for each node, and what is not.

How often functions of the page are called is counted, because times would tell more of the machine.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import CDPSession, Page, expect

from bench.page import OVERVIEW_NODES, overview_rows, write_rows, zoom_to_one
from tests.e2e.browsing import KEYS, NO_KAFKA, now_ms, open_map
from tests.support.web import Web, running_web


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    folder = tmp_path_factory.mktemp("large")
    write_rows(folder / "tables", overview_rows(now_ms()))
    with running_web(folder, NO_KAFKA, KEYS | {"tables.path": str(folder / "tables")}) as web:
        yield web


def counting(page: Page) -> CDPSession:
    session: CDPSession = page.context.new_cdp_session(page)
    session.send("Profiler.enable")
    session.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": False})
    return session


def most_calls(session: CDPSession) -> int:
    """How often the function was called that was called most since the counting began."""
    scripts = session.send("Profiler.takePreciseCoverage")["result"]
    session.detach()
    return max(int(one["ranges"][0]["count"]) for script in scripts for one in script["functions"])


def drawn(page: Page) -> set[str]:
    keys: list[str] = page.locator(".react-flow__node").evaluate_all("nodes => nodes.map(node => node.dataset.id)")
    return set(keys)


def start_drag(page: Page) -> tuple[float, float]:
    """Presses the mouse beside the nodes, and makes the first step: only then is it known to be one of a drag."""
    place = page.locator(".map-canvas").bounding_box()
    assert place is not None
    x, y = place["x"] + place["width"] / 2, place["y"] + 6
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 5, y, steps=2)
    expect(page.locator(".map-canvas")).to_have_attribute("data-moving", "")
    return x - 5, y


def test_a_step_of_a_drag_runs_nothing_for_each_node(page: Page, large: Web) -> None:
    open_map(page, large)
    assert len(drawn(page)) == OVERVIEW_NODES
    x, y = start_drag(page)
    session, steps = counting(page), 20
    for step in range(steps):
        page.mouse.move(x - 3 * step, y)
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert most_calls(session) < steps * OVERVIEW_NODES / 4
    page.mouse.up()


def test_the_clock_of_the_page_draws_no_node_again(page: Page, large: Web) -> None:
    page.clock.install()
    open_map(page, large)
    assert len(drawn(page)) == OVERVIEW_NODES
    session = counting(page)
    page.clock.run_for(3_000)
    assert most_calls(session) < OVERVIEW_NODES


def test_closer_only_nodes_in_sight_are_drawn_also_during_a_drag(page: Page, large: Web) -> None:
    open_map(page, large)
    zoom_to_one(page)
    expect(page.locator(".react-flow__node")).not_to_have_count(OVERVIEW_NODES)
    before = drawn(page)
    assert 0 < len(before) < OVERVIEW_NODES / 4
    x, y = start_drag(page)
    page.mouse.move(x, y + 700, steps=4)
    expect(page.locator(".map-canvas")).to_have_attribute("data-moving", "")
    expect(page.locator(f'.react-flow__node[data-id="{min(before)}"]')).to_have_count(0)
    assert drawn(page) - before
    page.mouse.up()
