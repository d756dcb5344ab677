"""The views of the page on an estate with trouble, in a real browser against the real web process."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browsing import KEYS, NO_KAFKA, now_ms
from tests.e2e.busy_estate import HOSTS, write_busy_estate
from tests.e2e.estate import APP
from tests.support.web import Web, running_web


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    folder = tmp_path_factory.mktemp("busy")
    write_busy_estate(folder / "tables", now_ms())
    with running_web(folder, NO_KAFKA, KEYS | {"tables.path": str(folder / "tables")}) as running:
        yield running


def test_now_lists_what_needs_somebody_worst_first(page: Page, busy: Web) -> None:
    page.goto(busy.url)
    titles = page.locator(".card h2")
    expect(titles).to_contain_text(
        [
            "shipping writes more dead letters",
            f"{APP} runs different topologies",
            "fraud-detector falls behind",
            f"{APP} differs from its description",
            "session-builder differs from its description in 2 uses",
        ]
    )
    card = page.locator(".card", has_text="runs different topologies")
    expect(card).to_contain_text(f"1 member on {HOSTS[0]}; 2 members on {HOSTS[1]}, {HOSTS[2]}")
    expect(card).to_contain_text("Changed before: revenue-totals topology changed")
    expect(card.locator(".command code")).to_contain_text(f"--group {APP} --tasks")
    expect(card.locator("header time")).to_have_text(re.compile(r"^since .*\(2\d min\)$"))
    lag = page.locator(".card", has_text="falls behind")
    expect(lag.get_by_role("img", name=re.compile("records behind: highest"))).to_be_visible()
    expect(page.get_by_label("In short")).to_contain_text(re.compile(r"1 mismatch.*3 new gaps.*dead letters/h"))
    # Without Kafka the state of share groups is not known, and the page does not claim that it is good.
    expect(page.get_by_text("Not watched: share groups")).to_be_visible()
    expect(page.get_by_text("1 gap is older than a day and not listed")).to_be_visible()
    card.get_by_role("link", name="Open its members").click()
    expect(page).to_have_url(f"{busy.url}/apps/-/{APP}?tab=members")


def test_connectors_with_what_is_known_of_them(page: Page, busy: Web) -> None:
    page.goto(f"{busy.url}/connect")
    row = page.get_by_role("row", name=re.compile("s3-archive"))
    expect(row).to_contain_text("sink")
    expect(row).to_contain_text("not known")  # neither Connect's topic nor the wire is read here
    page.get_by_label("Filter by name").fill("postgres-c")
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("link", name="postgres-customers").click()
    expect(page).to_have_url(f"{busy.url}/connect/-/postgres-customers")
    expect(page.get_by_role("heading", name="Writes")).to_be_visible()
    expect(page.get_by_role("link", name="customers", exact=True)).to_be_visible()
    page.goto(f"{busy.url}/connect/-/none-such")
    expect(page.get_by_role("heading", name="There is no such connector")).to_be_visible()
