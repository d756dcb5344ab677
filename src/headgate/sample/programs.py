"""The sample applications of `headgate dev`: clients of the gateway, so that there is something to see.

A producer in Python, a Streams member on kafka-clients 4.4.0 (`java/.../members`), which sends its topology, the
WordCountDemo of Kafka 4.3.1, which is too old to send one, and a share group with a circuit breaker (`billing.py`).
Their logs are in the folder's `logs/`. If one of them cannot be started or ends, that is reported once.
"""

import json
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.base.errors import PlatformError
from headgate.embedded.java import class_path, find_java
from headgate.embedded.spawn import start_tethered, stop_all
from headgate.kafka.topics import quiet
from headgate.sample.billing import DEAD_LETTERS, Billing

APPLICATION: Final = "sample-orders"
DEMO: Final = "sample-wordcount"
ORDERS, CUSTOMERS, LARGE, COUNTS = "orders", "customers", "large-orders", "orders-by-customer"
WORDS_IN, WORDS_OUT = "streams-plaintext-input", "streams-wordcount-output"
_TOPICS: Final = (ORDERS, CUSTOMERS, LARGE, COUNTS, WORDS_IN, WORDS_OUT, DEAD_LETTERS)
_NAMES: Final = ("ada", "grace", "edsger", "barbara", "donald")
_CALL_S: Final = 20.0
_PAUSE_S: Final = 0.5
_END_S: Final = 3.0
_SMALL_JVM: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOG4J: Final = Path(__file__).parents[1] / "embedded" / "log4j2.xml"


def _node(name: str, kind: int, *, to: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"source_topics": [], "sink_topic": None, "stores": []}
    return {"name": name, "node_type": kind, **empty, "successors": list(to), **more}


def topology() -> dict[str, Any]:
    """The topology of the application: large orders filtered, orders counted by customer."""
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


class Sample:
    """Applications that are started when the gateway is ready, and stopped before it."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._children: list[subprocess.Popen[bytes]] = []
        self._stop = threading.Event()
        self._producer: threading.Thread | None = None
        self._billing = Billing(bootstrap, ORDERS, folder, self._stop)

    def start(self) -> None:
        """Start all of them; it blocks for about a second. A failure is reported on standard error."""
        try:
            self._make_topics()
            self._start_member()
            self._start_demo()
            self._billing.start()
        except (PlatformError, KafkaException, OSError) as failure:
            print(f"headgate: not all sample applications could be started: {failure}", file=sys.stderr)
        self._producer = threading.Thread(target=self._produce, name="headgate-sample", daemon=True)
        self._producer.start()

    def stop(self) -> None:
        self._stop.set()  # of the producer and of the share group, which end while the children do
        stop_all(self._children, _END_S)
        self._billing.join()
        if self._producer is not None:
            self._producer.join(_END_S)

    def _make_topics(self) -> None:
        admin = AdminClient(quiet({"bootstrap.servers": self._bootstrap}))
        there = admin.list_topics(timeout=_CALL_S).topics
        wanted = [NewTopic(name, num_partitions=1, replication_factor=1) for name in _TOPICS if name not in there]
        for made in admin.create_topics(wanted).values() if wanted else ():
            made.result(_CALL_S)

    def _start_member(self) -> None:
        join = {
            "id": 1,
            "op": "join",
            "member": "sample",
            "group": APPLICATION,
            "settings": {"bootstrap.servers": self._bootstrap},
            "subtopologies": {"0": {"sources": [ORDERS]}},
            "description": topology(),
            "epoch": 0,
            "process": None,
            "commits": False,
        }
        calls = self._folder / "sample-member.jsonl"
        calls.write_text(json.dumps(join) + "\n", encoding="utf-8")
        self._start_java("sample-member", class_path("clients", "members"), "headgate.members.Main", str(calls))

    def _start_demo(self) -> None:
        settings = {
            "application.id": DEMO,
            "bootstrap.servers": self._bootstrap,
            "group.protocol": "streams",
            "client.id": DEMO,
            "state.dir": str((self._folder / "sample-state").absolute()),
            "replication.factor": "1",
        }
        properties = self._folder / "sample-demo.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        demo = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
        self._start_java("sample-demo", class_path("broker"), demo, str(properties))

    def _start_java(self, name: str, jars: str, main: str, argument: str) -> None:
        java = find_java().command
        logs = self._folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        logging = (f"-Dlog4j2.configurationFile={_LOG4J}", f"-Dheadgate.log={logs / name}.log")
        command: list[str | Path] = [java, *_SMALL_JVM, *logging, "-cp", jars, main, argument]
        self._children.append(start_tethered(command, output=logs / f"{name}.out"))

    def _produce(self) -> None:
        """Produce two orders and a sentence a second; librdkafka waits for a cluster that is down."""
        settings = {"bootstrap.servers": self._bootstrap, "queue.buffering.max.messages": 1000}
        producer = Producer(quiet(settings, client__id="sample-producer"))
        chance = random.Random(1)  # noqa: S311 - a sample
        number = 0
        while not self._stop.wait(_PAUSE_S):
            number += 1
            customer = chance.choice(_NAMES)
            order = json.dumps({"order": number, "customer": customer, "amount": chance.randrange(1, 500)})
            try:
                producer.produce(ORDERS, key=customer, value=order)
                if number % 2:
                    producer.produce(WORDS_IN, value=f"{customer} orders number {number}")
            except BufferError:
                pass  # the cluster accepts nothing at the moment
            producer.poll(0)
        producer.flush(1)
