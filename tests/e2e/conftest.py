"""What the tests of the page share: Chromium, a web process on the estate in tables, and a page that is watched."""

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from headgate.web import page as built_page
from tests.e2e.browsing import KEYS, NO_KAFKA, WAIT_MS, now_ms
from tests.e2e.busy_estate import write_busy_estate
from tests.e2e.estate import write_estate
from tests.support.web import Web, running_web

CHROMIUM = "/usr/bin/chromium"
expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    assert (built_page.ROOT / "index.html").is_file(), "the page is not built: make setup"
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """The web process on the tables of the estate, without Kafka; no test changes these tables."""
    folder = tmp_path_factory.mktemp("estate")
    write_estate(folder / "tables", now_ms())
    with running_web(folder, NO_KAFKA, KEYS | {"tables.path": str(folder / "tables")}) as running:
        yield running


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """The same on a night with trouble: mismatches, gaps, growing lags and dead letters, rejected facts."""
    folder = tmp_path_factory.mktemp("busy")
    write_busy_estate(folder / "tables", now_ms())
    with running_web(folder, NO_KAFKA, KEYS | {"tables.path": str(folder / "tables")}) as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page whose scripts fail the test when they raise, or when the policy of the server stops something."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    context.set_default_timeout(WAIT_MS)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda line: problems.append(line.text) if "Content Security Policy" in line.text else None)
    opened.on("dialog", lambda dialog: problems.append(dialog.message))
    yield opened
    context.close()
    assert problems == []
