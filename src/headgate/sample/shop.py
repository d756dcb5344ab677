"""The shop of the sample: the names of its topics and programs, and the topology that one of them sends.

storefront -> orders, customers      sample-payments -> payments      connector sample-catalog -> products
sample-orders (Streams 4.4)          orders, customers -> large-orders, orders-by-customer
sample-fulfilment (Streams 4.3.1)    orders, payments -> shipments -> connector sample-archive
sample-billing, sample-notices       share groups on orders and on shipments, with dead letters
sample-dashboard                     a consumer group on orders-by-customer
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka.cimpl import NewTopic

APPLICATION: Final = "sample-orders"
FULFILMENT: Final = "sample-fulfilment"
STOREFRONT: Final = "sample-producer"
PAYMENT_SERVICE: Final = "sample-payments"
DASHBOARD: Final = "sample-dashboard"
BILLING, NOTICES = "sample-billing", "sample-notices"
CATALOG, ARCHIVE = "sample-catalog", "sample-archive"

ORDERS, CUSTOMERS, PAYMENTS, SHIPMENTS, PRODUCTS = "orders", "customers", "payments", "shipments", "products"
LARGE, COUNTS = "large-orders", "orders-by-customer"
ORDERS_DLQ, SHIPMENTS_DLQ = "dlq.orders", "dlq.shipments"

CONNECT: Final = "sample-connect"
STATUS_TOPIC, CONFIG_TOPIC, OFFSET_TOPIC = f"{CONNECT}-status", f"{CONNECT}-configs", f"{CONNECT}-offsets"

# What the map shows of it, each edge by the names of its ends.
MAP_EDGES: Final = frozenset({
    *((STOREFRONT, ORDERS), (STOREFRONT, CUSTOMERS), (PAYMENT_SERVICE, PAYMENTS), (CATALOG, PRODUCTS)),
    *((ORDERS, APPLICATION), (CUSTOMERS, APPLICATION), (APPLICATION, LARGE), (APPLICATION, COUNTS)),
    *((ORDERS, FULFILMENT), (PAYMENTS, FULFILMENT), (FULFILMENT, SHIPMENTS), (SHIPMENTS, ARCHIVE)),
    *((ORDERS, BILLING), (BILLING, ORDERS_DLQ), (SHIPMENTS, NOTICES), (NOTICES, SHIPMENTS_DLQ), (COUNTS, DASHBOARD)),
})  # fmt: skip

LARGE_FROM: Final = 400  # of an amount
_TOPICS: Final = (
    *(ORDERS, CUSTOMERS, PAYMENTS, SHIPMENTS, PRODUCTS, LARGE, COUNTS),
    *(ORDERS_DLQ, SHIPMENTS_DLQ),
)
_COMPACTED: Final = {"cleanup.policy": "compact"}  # Connect refuses any other policy of its topics


def new_topics() -> Iterator[NewTopic]:
    """All topics, with one partition each: each further one costs fetches and files."""
    for name in _TOPICS:
        yield _topic(name, {})
    for name in (STATUS_TOPIC, CONFIG_TOPIC, OFFSET_TOPIC):
        yield _topic(name, _COMPACTED)


def _topic(name: str, config: Mapping[str, str]) -> NewTopic:
    return NewTopic(name, num_partitions=1, replication_factor=1, config=dict(config))


def _node(name: str, kind: int, *, to: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"source_topics": [], "sink_topic": None, "stores": []}
    return {"name": name, "node_type": kind, **empty, "successors": list(to), **more}


def topology() -> dict[str, Any]:
    """The topology of `sample-orders`: large orders filtered, orders counted by customer."""
    store = f"{APPLICATION}-counts"
    return {
        "subtopologies": [
            {
                "id": "0",
                "nodes": [
                    _node("orders", 1, to=("large", "by-customer"), source_topics=[ORDERS]),
                    _node("large", 2, to=("to-large-orders",)),
                    _node("to-large-orders", 3, sink_topic=LARGE),
                    _node("by-customer", 2, to=("to-counts",), stores=[store]),
                    _node("to-counts", 3, sink_topic=COUNTS),
                ],
            }
        ],
        "global_stores": [
            {
                "source": _node("customers", 1, to=("keep-customers",), source_topics=[CUSTOMERS]),
                "processor": _node("keep-customers", 2, stores=["customers"]),
            }
        ],
    }
