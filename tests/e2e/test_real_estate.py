"""The map on an estate that real parts have written: a gateway, a member of a streams group, a producer and a consumer.

The web process reads the topics of the gateway. There are no tables, so the map is provisional, and no application can
be expanded: the tests of the written estate do that.
"""

import json
import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import Page, expect

from tests.e2e.browsing import loose_edges, node, open_map
from tests.support.cluster import Cluster, start_test_cluster
from tests.support.gateway import running_gateway
from tests.support.member_topologies import chain
from tests.support.members import member_jvm
from tests.support.share_scene import until
from tests.support.web import Web, running_web

FACTS = "headgate-page."
ORDERS, TOTALS, APP, TILL, READER = "page-orders", "page-totals", "page-totals-app", "page-till", "page-dashboard"
USED = {(TILL, ORDERS), (ORDERS, APP), (APP, TOTALS), (ORDERS, READER)}
KEYS = {f"client/{TILL}", f"topic/{ORDERS}", f"streams/{APP}", f"topic/{TOTALS}", f"consumer_group/{READER}"}
VIEW = f"focus={ORDERS}&hops=2&direction=down"
_DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    folder = tmp_path_factory.mktemp("real")
    keys: dict[str, object] = {"facts.prefix": FACTS, "share_groups.enable": False, "lags.enable": False}
    with start_test_cluster(tmp_path_factory) as cluster:
        _make_topics(cluster)
        enabled: dict[str, Any] = {"activity__enable": True, "topologies__owner": "gateway", "facts__prefix": FACTS}
        with (
            running_gateway(folder, cluster.bootstrap, **enabled) as gateway,
            member_jvm(folder / "members.log") as members,
            running_web(folder, cluster.bootstrap, keys | {"tables.path": str(folder / "none")}) as web,
        ):
            member = members.join(
                "one", gateway.bootstrap, APP, topics=[ORDERS], topology=chain(ORDERS, "count", out=TOTALS)
            )
            _write(gateway.bootstrap)
            _read(gateway.bootstrap)
            member.wait("pushed")
            until(lambda: _edges(web) >= USED, what=lambda: str(_edges(web)))
            yield web


def _make_topics(cluster: Cluster) -> None:
    admin = AdminClient(dict(cluster.client_config()))
    made = admin.create_topics([NewTopic(name, 1, 1) for name in (ORDERS, TOTALS)])
    for result in made.values():
        result.result(_DEADLINE_S)


def _write(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": TILL})
    producer.produce(ORDERS, b"one")
    assert producer.flush(_DEADLINE_S) == 0


def _read(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": READER, "auto.offset.reset": "earliest"})
    consumer.subscribe([ORDERS])
    assert consumer.consume(1, _DEADLINE_S)
    consumer.close()


def _bytes(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        body: bytes = answer.read()
    return body


def _edges(web: Web) -> set[tuple[str, str]]:
    status, found = web.call("GET", "/api/v1/graph")
    if status != 200:  # not read yet
        return set()
    names = [one["name"] for one in found["nodes"]]
    return {(names[edge["from"]], names[edge["to"]]) for edge in found["edges"]}


def _expect_nodes(page: Page, keys: set[str]) -> None:
    """Exactly these are shown, as soon as the map is laid out."""
    expect(page.locator(".react-flow__node")).to_have_count(len(keys))
    for key in keys:
        expect(node(page, key)).to_be_attached()


def test_what_real_clients_did_and_declared_is_on_the_map(page: Page, real: Web) -> None:
    open_map(page, real)
    expect(node(page, f"streams/{APP}")).to_be_visible()
    for key in KEYS:
        expect(node(page, key)).to_be_attached()
    assert loose_edges(page) == []
    expect(page.locator(".legend")).to_contain_text("provisional")
    declared = page.locator(f'.react-flow__edge[data-id="streams/{APP} topic/{TOTALS}"]')
    expect(declared).to_have_class(re.compile("edge-declared"))  # the member has written nothing
    observed = page.locator(f'.react-flow__edge[data-id="client/{TILL} topic/{ORDERS}"]')
    expect(observed).to_have_class(re.compile("edge-observed"))


def test_a_real_application_is_found_by_keyboard_and_focused_with_hops(page: Page, real: Web) -> None:
    page.goto(real.url)
    expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Name to search for")).to_be_focused()
    page.keyboard.type(TOTALS[:9])
    expect(page.get_by_role("option").filter(has_text=APP)).to_be_visible()
    for _ in range(page.get_by_role("option").count()):
        if page.get_by_role("option", selected=True).filter(has_text=APP).count() == 0:
            page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+Enter")
    expect(page).to_have_url(re.compile(f"focus={APP}"))
    page.get_by_role("radio", name="1", exact=True).click()
    around = {f"topic/{ORDERS}", f"streams/{APP}", f"topic/{TOTALS}"}
    _expect_nodes(page, around)
    page.get_by_role("radio", name="all", exact=True).click()
    expect(node(page, f"client/{TILL}")).to_be_visible()
    node(page, f"client/{TILL}").click()
    expect(page.get_by_label("Selected node")).to_contain_text(TILL)
    again = page.context.new_page()
    again.goto(page.url)
    expect(again.get_by_label("Selected node")).to_contain_text(TILL)
    _expect_nodes(again, around | {f"client/{TILL}"})
    again.close()


@pytest.mark.parametrize("form", ["json", "dot", "mermaid", "csv"])
def test_an_export_of_a_real_estate_is_what_the_api_answers_and_has_its_nodes(page: Page, real: Web, form: str) -> None:
    open_map(page, real, f"?{VIEW}")
    with page.context.expect_event("request", lambda request: f"format={form}" in request.url) as asked:
        page.get_by_label("Export").select_option(form)
    exported, wanted = (_bytes(url) for url in (asked.value.url, f"{real.url}/api/v1/graph?{VIEW}&format={form}"))
    assert exported == wanted
    text = exported.decode()
    assert all(name in text for name in (ORDERS, APP, TOTALS, READER))
    assert TILL not in text  # what is upstream
    if form == "json":
        found: Any = json.loads(text)
        assert {one["name"] for one in found["nodes"]} == {ORDERS, APP, TOTALS, READER}
        assert len(found["edges"]) == 3
