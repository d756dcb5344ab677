"""All programs of the sample of `headgate dev`: clients of the gateway, so that there is something to see.

Threads for those in Python, JVMs for the others; `shop.py` says what each of them does. A program that cannot be
started or that ends is reported once on standard error, and the others go on.
"""

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headgate.base.errors import HeadgateError
from headgate.kafka.topics import quiet
from headgate.sample import storefront
from headgate.sample.connect import connectors, create_connectors
from headgate.sample.jvms import SampleJvms
from headgate.sample.outages import DEFAULT_EVERY_S, Downstream, OutageSchedule
from headgate.sample.share_consumers import PROGRAMS, SampleShareConsumer
from headgate.sample.shop import CONNECT, new_topics

_CALL_S: Final = 20.0
_END_S: Final = 5.0


class Sample:
    """Programs that are started when the gateway is ready, and stopped before it."""

    def __init__(self, bootstrap: str, folder: Path, *, outage_every_s: float = DEFAULT_EVERY_S) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._outage_every_s = outage_every_s
        self._jvms = SampleJvms(bootstrap, folder)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start all of them; it blocks for about a second. Failures are reported on standard error."""
        own = self._folder / "sample"
        own.mkdir(parents=True, exist_ok=True)
        if not self._is_done("the topics of the sample could not be created", self._make_topics):
            return
        self._run(
            "the storefront of the sample", storefront.produce, self._bootstrap, own / "catalog.jsonl", self._stop
        )
        self._run("the dashboard of the sample", storefront.watch_counts, self._bootstrap, self._stop)
        for program in PROGRAMS:
            schedule = OutageSchedule(every_s=self._outage_every_s, first_part=program.first_outage)
            downstream = Downstream(self._folder / program.switch, schedule, time.monotonic)
            consumer = SampleShareConsumer(program, self._bootstrap, downstream, self._stop, time.monotonic)
            self._run(f"the share group {program.group} of the sample", consumer.run)
        self._is_done("not all JVMs of the sample could be started", self._start_jvms)

    def stop(self) -> None:
        self._stop.set()  # of the threads, which end while the JVMs do
        self._jvms.stop()
        for thread in self._threads:
            thread.join(_END_S)

    def _make_topics(self) -> None:
        admin = AdminClient(quiet({"bootstrap.servers": self._bootstrap}))
        there = admin.list_topics(timeout=_CALL_S).topics
        wanted = [topic for topic in new_topics() if topic.topic not in there]
        for made in admin.create_topics(wanted).values() if wanted else ():
            made.result(_CALL_S)

    def _start_jvms(self) -> None:
        port = self._jvms.start()
        wanted = connectors(self._folder / "sample")
        name = f"connectors could not be created, see {self._jvms.log_of(CONNECT)}"
        self._run(name, create_connectors, port, wanted, self._stop)

    def _run(self, name: str, work: Callable[..., None], *arguments: object) -> None:
        """Run a program on a thread of its own."""
        bound = partial(self._is_done, name, partial(work, *arguments))
        thread = threading.Thread(target=bound, name="headgate-sample", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _is_done(self, name: str, work: Callable[[], object]) -> bool:
        """Whether the work succeeded; a failure is reported, unless the sample is being stopped."""
        try:
            work()
        except (HeadgateError, KafkaException, OSError) as failure:
            if not self._stop.is_set():
                print(f"headgate: {name}: {failure}", file=sys.stderr, flush=True)
            return False
        return True
