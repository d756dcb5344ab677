"""The business of the sample's shop, as its producers write it."""

import json
import random
from itertools import islice
from pathlib import Path

from headgate.sample import storefront
from headgate.sample.shop import APPLICATION, COUNTS, LARGE, LARGE_FROM, ORDERS, PAYMENTS, new_topics, topology

_BURSTS = list(islice(storefront.bursts(random.Random(7)), 60))
_RECORDS = [record for burst in _BURSTS for record in burst.records]


def test_every_topic_that_is_written_is_one_of_the_shop() -> None:
    assert {topic for _, topic, _, _ in _RECORDS} < {topic.topic for topic in new_topics()}


def test_every_order_is_paid_by_its_number_so_that_it_can_be_joined() -> None:
    orders = [str(value["order"]) for _, topic, _, value in _RECORDS if topic == ORDERS]
    payments = [key for _, topic, key, _ in _RECORDS if topic == PAYMENTS]
    assert orders == payments
    assert len(set(orders)) == len(orders)


def test_the_application_writes_what_its_topology_declares() -> None:
    declared = {node["sink_topic"] for node in topology()["subtopologies"][0]["nodes"] if node["sink_topic"]}
    assert {topic for client, topic, _, _ in _RECORDS if client == APPLICATION} == declared == {LARGE, COUNTS}
    assert all(value["amount"] >= LARGE_FROM for _, topic, _, value in _RECORDS if topic == LARGE)


def test_the_catalog_grows_by_lines_of_json_up_to_a_bound(tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.jsonl"
    prices = [burst.catalog for burst in _BURSTS if burst.catalog is not None]
    for line in prices:
        storefront.append_line(catalog, line)
    assert [json.loads(line)["product"] for line in catalog.read_text().splitlines()]
    assert len(prices) == 6
    with catalog.open("a") as file:
        file.write("x" * 5 * 1024 * 1024)
    before = catalog.stat().st_size
    storefront.append_line(catalog, prices[0] or "")
    assert catalog.stat().st_size == before
