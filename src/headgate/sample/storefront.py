"""The producers and the consumer of the sample's shop that are written in Python.

Everything of a second is sent in one burst, because each wake-up of the cluster and of its readers costs time. The 4.4
application is a member that sends its topology and processes nothing (no release of Kafka Streams does it yet): what
it would write is written here, under the client id of its producer.
"""

import json
import random
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer

from headgate.kafka.topics import quiet
from headgate.sample.shop import (
    APPLICATION,
    COUNTS,
    CUSTOMERS,
    DASHBOARD,
    LARGE,
    LARGE_FROM,
    ORDERS,
    PAYMENT_SERVICE,
    PAYMENTS,
    STOREFRONT,
)

_NAMES: Final = ("ada", "grace", "edsger", "barbara", "donald")
_TOWNS: Final = ("london", "arlington", "rotterdam", "milwaukee")
_METHODS: Final = ("card", "card", "invoice", "transfer")
_PRODUCTS: Final = ("lamp", "desk", "chair", "shelf", "clock")
_PAUSE_S: Final = 1.0
_ORDERS_AT_ONCE: Final = 2
_CUSTOMERS_EVERY: Final = 15  # bursts; the customer of one of them moves
_PRICES_EVERY: Final = 10
_FETCH_WAIT_MS: Final = 3_000
_LARGEST_CATALOG: Final = 4 * 1024 * 1024


class Burst(NamedTuple):
    """What one second brings: records of each client, and a line of the catalog."""

    records: tuple[tuple[str, str, str, dict[str, Any]], ...]  # client, topic, key, value
    catalog: str | None


def bursts(chance: random.Random) -> Iterator[Burst]:
    """The business of the shop, second by second, without end."""
    number = burst = 0
    counts: Counter[str] = Counter()
    while True:
        records: list[tuple[str, str, str, dict[str, Any]]] = []
        for _ in range(_ORDERS_AT_ONCE):
            number += 1
            customer, amount = chance.choice(_NAMES), chance.randrange(1, 500)
            order = {"order": number, "customer": customer, "amount": amount}
            payment = {"order": number, "amount": amount, "method": chance.choice(_METHODS)}
            counts[customer] += 1
            records += [
                (STOREFRONT, ORDERS, customer, order),
                (PAYMENT_SERVICE, PAYMENTS, str(number), payment),
                (APPLICATION, COUNTS, customer, {"customer": customer, "orders": counts[customer]}),
            ]
            if amount >= LARGE_FROM:
                records.append((APPLICATION, LARGE, customer, order))
        if burst % _CUSTOMERS_EVERY == 0:
            customer = chance.choice(_NAMES)
            records.append((STOREFRONT, CUSTOMERS, customer, {"customer": customer, "town": chance.choice(_TOWNS)}))
        has_price = burst % _PRICES_EVERY == 0
        price = {"product": chance.choice(_PRODUCTS), "price": chance.randrange(10, 300)}
        burst += 1
        yield Burst(tuple(records), json.dumps(price) if has_price else None)


def produce(bootstrap: str, catalog: Path, stop: threading.Event) -> None:
    """Produce until `stop` is set; librdkafka waits for a cluster that is down."""
    settings = {"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1000}
    streams_thread = f"{APPLICATION}-{uuid.uuid4()}-StreamThread-1-producer"
    client_ids = {STOREFRONT: STOREFRONT, PAYMENT_SERVICE: PAYMENT_SERVICE, APPLICATION: streams_thread}
    producers = {client: Producer(quiet(settings, client__id=name)) for client, name in client_ids.items()}
    for burst in bursts(random.Random(1)):  # noqa: S311 - a sample
        for client, topic, key, value in burst.records:
            with suppress(BufferError):  # the cluster accepts nothing at the moment
                producers[client].produce(topic, key=key, value=json.dumps(value))
        if burst.catalog is not None:
            append_line(catalog, burst.catalog)
        for producer in producers.values():
            producer.poll(0)
        if stop.wait(_PAUSE_S):
            break
    for producer in producers.values():
        producer.flush(1)


def append_line(catalog: Path, line: str) -> None:
    """Add a line to the file that a source connector follows; it reads on where it was, so the file is never cut."""
    if not catalog.exists() or catalog.stat().st_size < _LARGEST_CATALOG:
        with catalog.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def watch_counts(bootstrap: str, stop: threading.Event) -> None:
    """The dashboard: a consumer group that reads what the application counts."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": DASHBOARD,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": _FETCH_WAIT_MS,
    }
    consumer = Consumer(quiet(settings, client__id=DASHBOARD))
    try:
        consumer.subscribe([COUNTS])
        while not stop.is_set():
            consumer.consume(100, timeout=_PAUSE_S)
    finally:
        consumer.close()
