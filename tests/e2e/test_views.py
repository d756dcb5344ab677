"""The views of the page on an estate with trouble, in a real browser against the real web process."""

import re
from typing import Any

from playwright.sync_api import Page, expect

from tests.e2e.busy_estate import HOSTS, PLAN, REJECTED
from tests.e2e.estate import APP, HOSTILE
from tests.support.web import Web


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
    expect(card).to_contain_text("Changed before: revenue-totals topology changed: 2 added, 1 removed, ")
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


def test_the_latest_changes_say_what_changed(page: Page, busy: Web) -> None:
    page.goto(busy.url)
    rows = page.get_by_role("region", name="Latest changes").get_by_role("row")
    expect(rows.filter(has_text="tripped")).to_contain_text("90 of 400 records (22.5 %) in 1 min, threshold 20 %")
    expect(rows.filter(has_text="config changed")).to_contain_text("threshold 30 % → 20 %")
    expect(rows.filter(has_text="config changed")).to_contain_text("User:ops")
    expect(rows.filter(has_text="mismatch")).to_contain_text(f"1 member on {HOSTS[0]}; 2 members on {HOSTS[1]}")
    changed = rows.filter(has_text="topology changed").filter(has_text=APP)
    expect(changed).to_contain_text("added input <img src=x")
    changed.get_by_role("link", name="topology changed").click()
    expect(page).to_have_url(f"{busy.url}/apps/-/{APP}?tab=versions")


def test_commands_have_the_address_of_the_gateway(page: Page, busy: Web) -> None:
    """A server without Kafka knows the address from its configuration."""
    page.goto(busy.url)
    gateway = page.request.get(f"{busy.url}/api/v1/operator").json()["gateway"]
    card = page.locator(".card", has_text="runs different topologies")
    expect(card.locator(".command code")).to_contain_text(f"--bootstrap-server {gateway} ")
    page.goto(f"{busy.url}/groups")
    expect(page.locator("body")).not_to_contain_text("HOST:PORT")


def test_only_the_newest_episode_that_lasts_has_a_primary_button(page: Page, busy: Web) -> None:
    page.route("**/api/v1/operator", lambda route: route.fulfill(json=OPERATOR))
    page.goto(f"{busy.url}/letters")
    expect(page.locator(".card")).to_have_count(2)
    expect(page.locator(".card .button.primary")).to_have_count(1)
    expect(page.locator(".card", has_text="shipping").locator(".button.primary")).to_have_text("Plan a replay…")


def test_the_rate_of_a_group_has_a_scale_and_says_what_its_shapes_are(page: Page, busy: Web) -> None:
    page.goto(f"{busy.url}/groups/-/billing")
    chart = page.locator(".chart").last
    expect(chart.locator(".scale span")).to_have_text(["22.5 %", "0 %"])
    expect(chart.locator("figcaption .key")).to_have_text(["a minute", "trip or pause"])
    expect(chart.locator("figcaption svg")).to_have_count(2)
    events = page.locator("section", has=page.get_by_role("heading", name="Events")).get_by_role("listitem")
    expect(events.filter(has_text="tripped")).to_contain_text("30 of 100 records (30 %) in 1 min, threshold 20 %")


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


def test_an_application_shows_hosts_tasks_and_stores_and_the_mismatch(page: Page, busy: Web) -> None:
    page.goto(f"{busy.url}/apps/-/{APP}?tab=members")
    expect(page.get_by_text("Its members run different topologies")).to_be_visible()
    row = page.get_by_role("row", name=re.compile(HOSTS[0]))
    expect(row.locator(".role.active")).to_have_count(2)
    expect(row.locator(".role.warmup")).to_contain_text("48,210")
    expect(row.locator(".role.warmup")).to_have_attribute("title", re.compile("stores customer-store, 48,210 records"))
    expect(page.get_by_role("columnheader", name=re.compile("Sub-topology 1"))).to_contain_text("customer-store")


def test_two_versions_side_by_side(page: Page, busy: Web) -> None:
    page.goto(f"{busy.url}/apps/-/{APP}?tab=versions")
    expect(page.get_by_text("The newer version can take over")).to_be_visible()
    after = page.locator(".side-by-side figure").nth(1)
    expect(after.locator(".node.mark-added", has_text="audit-sink")).to_contain_text("+ added")
    expect(page.locator(".side-by-side figure").first.locator(".mark")).to_have_count(0)
    expect(page.locator(".diff li")).to_have_count(1)
    newest = page.get_by_label("Newer version").input_value()
    page.get_by_label("Older version").select_option(newest)
    expect(page.get_by_text("The two versions have the same nodes, topics and stores.")).to_be_visible()
    expect(page).to_have_url(re.compile(r"from=9f2c41d07a3e%2F1"))


def test_a_pasted_topology_is_drawn_and_a_bad_one_is_explained(page: Page, busy: Web) -> None:
    page.goto(f"{busy.url}/apps")
    page.get_by_role("link", name="Paste a topology").click()
    field = page.get_by_label("The text of")
    field.fill("Topologies:\n   Sub-topology: 0\n    Source: <b>in</b>")
    page.get_by_role("button", name="Show the topology").click()
    expect(page.get_by_role("alert")).to_contain_text("The text could not be read")
    page.get_by_role("button", name="Insert an example").click()
    page.get_by_role("button", name="Show the topology").click()
    expect(page.get_by_text("The text is a whole topology")).to_be_visible()
    expect(page.locator(".react-flow__node", has_text="totals-out")).to_be_visible()
    expect(page.get_by_role("region", name="The topology as a list")).to_contain_text("counts")


def test_a_topic_has_its_activity_over_days_and_its_impact_as_a_picture(page: Page, busy: Web) -> None:
    page.goto(f"{busy.url}/topics/-/orders")
    panel = page.locator("section", has=page.get_by_role("heading", name="Activity", exact=True))
    expect(panel.locator("rect.written").nth(100)).to_be_attached()
    expect(panel.get_by_role("row", name=re.compile("mobile-gateway"))).to_contain_text("write")
    panel.get_by_role("button", name="1 day", exact=True).click()
    expect(panel.locator("rect.written").nth(30)).to_have_count(0)
    down = page.get_by_label("What depends on this topic")
    expect(down.locator(".react-flow__node", has_text="enriched-orders")).to_be_attached()
    expect(down.locator(".react-flow__edge")).not_to_have_count(0)
    expect(down.locator(".react-flow__node", has_text="web-shop")).to_have_count(0)


def test_health_says_where_the_tables_are_and_what_was_rejected(page: Page, busy: Web) -> None:
    page.goto(f"{busy.url}/health")
    expect(page.get_by_role("region", name="Rejected facts", exact=True)).to_contain_text(REJECTED)
    expect(page.locator("section", has=page.get_by_role("heading", name="Tables"))).to_contain_text("/tables")
    expect(page.get_by_role("row", name=re.compile("gw-a.0"))).to_contain_text("2")
    leads = {"worker": "gw-b/0", "version": "9.9.9", "host": "10.0.0.9", "is_leader": False}
    nobody = {"state": "nobody", "duty": "breakers", "workers": [leads], "truncated": False, "at": 1, "problem": None}
    page.route("**/api/v1/health/leader", lambda route: route.fulfill(json=nobody))
    page.reload()
    expect(page.get_by_role("alert").filter(has_text="No worker leads")).to_contain_text("no circuit breaker trips")
    expect(page.get_by_role("row", name=re.compile("gw-b.0"))).to_contain_text("9.9.9")
    expect(page.get_by_role("row", name=re.compile("gw-a.0"))).to_contain_text("not connected now")
    page.goto(busy.url)
    expect(page.locator(".card h2").first).to_contain_text("No worker leads")


def test_dead_letters_have_a_verdict_the_next_command_and_their_records(page: Page, busy: Web) -> None:
    page.goto(f"{busy.url}/letters")
    cards = page.locator(".card")
    expect(cards).to_have_count(2)
    expect(cards.nth(0)).to_contain_text("Some records fail, all others work: schema_id=7")
    expect(cards.nth(0)).to_contain_text("most failures with schema_id=7: 9 of 50 (10 to 31 %)")
    expect(cards.nth(0).locator(".command code")).to_contain_text("headgate dlq plan --group shipping --cluster 5f1c")
    expect(cards.nth(1)).to_contain_text("outage")
    expect(cards.nth(0).get_by_role("img", name=re.compile("dead letters in 2 min: highest"))).to_be_visible()
    cards.nth(0).get_by_role("link", name="Show the dead letters").click()
    expect(page).to_have_url(f"{busy.url}/letters/-/shipping?episode=5f1c0d2a9b3e")
    rows = page.get_by_role("region", name="Dead letters").get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("offset 42")
    expect(rows.nth(1)).to_contain_text("gone: expired")
    expect(rows.nth(2)).to_contain_text("at its source, expires in")
    expect(page.get_by_role("heading", name=re.compile("1 record expires within 24 hours, in"))).to_be_visible()
    expect(rows.nth(2)).to_contain_text("<img src=x")
    page.goto(f"{busy.url}/letters/-/billing")
    expect(page.get_by_text("There are no dead letters")).to_be_visible()


def test_a_trip_leads_to_its_dead_letters_and_a_record_is_read_on_request(page: Page, busy: Web) -> None:
    """What a gateway and a cluster would answer is made by the browser's own routing."""
    page.goto(f"{busy.url}/groups/-/billing")
    page.get_by_role("link", name="dead letters", exact=True).first.click()
    expect(page).to_have_url(re.compile(r"/letters/-/billing\?at=\d+$"))
    expect(page.get_by_role("heading", name=re.compile("No episode is known at"))).to_be_visible()
    page.get_by_role("link", name="Open the group").click()
    expect(page).to_have_url(f"{busy.url}/groups/-/billing")

    page.route("**/api/v1/operator", lambda route: route.fulfill(json=OPERATOR))
    page.route("**/api/v1/dead-letters/record", lambda route: route.fulfill(json=record(route.request.post_data_json)))
    page.goto(f"{busy.url}/letters/-/shipping")
    page.get_by_role("button", name="Show the record at offset 41").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("with your own rights")
    dialog.get_by_role("button", name="Read the record").click()
    value = dialog.get_by_role("region", name="Value")
    expect(value.locator("pre")).to_contain_text("<img src=x onerror=alert(1)>")
    expect(value.locator("pre")).to_contain_text("\\u{202e}")
    value.get_by_role("radio", name="Hex").click()
    expect(value.locator("pre")).to_contain_text("00000000  3c 69 6d 67 20 73 72 63")
    expect(dialog.get_by_role("region", name="Key").locator("pre")).to_contain_text("00000000  ff")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


OPERATOR = {
    "may_operate": True,
    "problem": None,
    "credential": "none",
    "principal": None,
    "may_type": True,
    "gateway": "gw:9092",
}


def record(asked: Any) -> dict[str, Any]:
    value = HOSTILE.encode()
    letter = {"topic": "dlq.shipping", "partition": 0, "offset": 0, "reason": HOSTILE}
    content = {"size": len(value), "hex": value.hex(), "text": HOSTILE, "truncated": False}
    key = {"size": 1, "hex": "ff", "text": None, "truncated": False}
    place = {name: asked[name] for name in ("group", "topic", "partition", "offset")}
    known = {"from": "source", "timestamp": None, "size": 40, "key": key, "value": content, "dead_letter": letter}
    return place | known | {"headers": [{"name": HOSTILE, "value": None}], "headers_truncated": False}


def test_a_plan_shows_what_it_holds_and_its_replay_with_progress(page: Page, busy: Web) -> None:
    page.goto(f"{busy.url}/letters/-/shipping")
    page.get_by_role("link", name=PLAN).click()
    expect(page.get_by_text("60 records to be replayed", exact=True)).to_be_visible()
    expect(page.get_by_text("1: the source is gone")).to_be_visible()
    expect(page.get_by_text("streams totals: will get the records again")).to_be_visible()
    expect(page.locator(".bars li").first).to_contain_text("the downstream timed out after 5 s")
    expect(page.locator(".bars li").nth(1)).to_contain_text("<img src=x")
    expect(page.get_by_role("region", name="Records of the plan").get_by_role("row").nth(2)).to_contain_text(
        "superseded"
    )

    running = {"state": "RUNNING", "written": 0}
    page.route("**/api/v1/operator", lambda route: route.fulfill(json=OPERATOR))
    page.route(f"**/api/v1/replays/{PLAN}", lambda route: route.fulfill(json=replay(**running)))
    page.route("**/api/v1/replays", lambda route: route.fulfill(status=202, json=replay(**running)))
    page.route(f"**/api/v1/replays/{PLAN}/pause", lambda route: route.fulfill(json=replay(state="PAUSED", written=30)))
    expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "0")
    running["written"] = 30
    expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "50")
    panel = page.get_by_role("region", name="Replay", exact=True)
    expect(panel).to_contain_text("30 written of 60 (50 %)")
    running["state"] = "PAUSED"
    panel.get_by_role("button", name="Pause").click()
    expect(panel.get_by_role("button", name="Resume")).to_be_visible()
    running |= {"state": "DONE", "written": 60}
    expect(panel.locator("code")).to_contain_text(f"headgate dlq audit --plan {PLAN}")


def replay(**known: Any) -> dict[str, Any]:
    counts = {"records": 60, "parked": 0, "skipped": 0, "at": 1, "by": "User:alice", "here": True, "rate": 50.0}
    rest: dict[str, Any] = {
        "timestamp": "original",
        "stopped_by": None,
        "error": None,
        "reasons": {},
        "notes": [],
        "go_on": None,
        "dry_run": None,
    }
    return {"plan": PLAN, "group": "shipping", "to": "original"} | counts | rest | known


def test_the_form_for_a_plan_shows_where_it_is_wrong_and_asks_again_with_readers_accepted(
    page: Page, busy: Web
) -> None:
    """The server checks the condition; what the pipeline makes of the request is made by the browser's own routing."""
    page.route("**/api/v1/operator", lambda route: route.fulfill(json=OPERATOR))
    page.goto(f"{busy.url}/letters/-/shipping?episode=5f1c0d2a9b3e")
    page.get_by_role("link", name="Plan a replay…").first.click()
    form = page.get_by_role("form", name="Plan")
    expect(form.get_by_label("Episode")).to_have_value("5f1c0d2a9b3e")
    form.get_by_label(re.compile("^Where")).fill("resaon = 'x'")
    form.get_by_role("button", name="Make the plan").click()
    wrong = page.get_by_role("alert").locator("pre")
    expect(wrong).to_contain_text("there is no column resaon; did you mean reason?")
    assert wrong.inner_text().splitlines()[-1].strip() == "^"

    asked: list[Any] = []
    refused = "others read orders too, and would get the replayed records again:\n  streams totals\nuse --accept-fanout"
    request = {"request": "r1", "group": "shipping", "at": 1, "by": "token alice"}

    def answer(route: Any) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(status=202, json={"request": f"r{len(asked)}"})

    page.route("**/api/v1/plans", answer)
    page.route(
        "**/plan-requests/r1",
        lambda route: route.fulfill(json=request | {"state": "REFUSED", "plan": None, "text": refused}),
    )
    page.route(
        "**/plan-requests/r2", lambda route: route.fulfill(json=request | {"state": "DONE", "plan": PLAN, "text": None})
    )
    form.get_by_label(re.compile("^Where")).fill("reason = 'x'")
    form.get_by_role("button", name="Make the plan").click()
    notice = page.get_by_role("status").filter(has_text="There is no plan")
    expect(notice).to_contain_text("  streams totals")
    notice.get_by_role("button").click()
    expect(page).to_have_url(f"{busy.url}/letters/-/shipping?plan={PLAN}")
    assert [(one["where"], one["cluster"], one["accept_fanout"]) for one in asked] == [
        ("reason = 'x'", "5f1c0d2a9b3e", False),
        ("reason = 'x'", "5f1c0d2a9b3e", True),
    ]
