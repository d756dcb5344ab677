"""Steady traffic of librdkafka in a process of its own: an idempotent producer and a group that reads what it writes.

The process writes numbers, evenly over the partitions, until it is told to stop; then it waits until all of them are
acknowledged and read, and reports. Whatever the clients complain of meanwhile is in the report.

One rule: it knows only the address that it was given, so its sockets can be looked at from outside.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

_ROOT = Path(__file__).parents[2]
_START_S, _FINISH_S = 60.0, 60.0
# What librdkafka says of a connection that was lost; it goes on by itself.
CONNECTION_LOST = frozenset((KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the clients saw: `acked` and `read` are numbers, `errors` are (who, code, text)."""

    acked: frozenset[int]
    read: frozenset[int]
    errors: tuple[tuple[str, int, str], ...]

    @property
    def lasting_errors(self) -> list[tuple[str, int, str]]:
        """Errors that a client cannot leave behind by trying again."""
        return [error for error in self.errors if error[1] not in CONNECTION_LOST]


class Traffic:
    """The process; `finish` stops it and gives its report."""

    def __init__(
        self, config: Mapping[str, Any], topic: str, *, partitions: int = 1, protocol: str = "classic", pace_ms: int = 2
    ) -> None:
        order = {"config": dict(config), "topic": topic, "partitions": partitions, "pace_ms": pace_ms}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.traffic"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        self._say(json.dumps({**order, "protocol": protocol}))
        assert self._hear(_START_S) == "running"

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin
        assert self._process.stdout
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def finish(self) -> Report:
        self._say("stop")
        report = json.loads(self._hear(2 * _FINISH_S))
        return Report(
            acked=frozenset(report["acked"]),
            read=frozenset(report["read"]),
            errors=tuple((who, code, text) for who, code, text in report["errors"]),
        )

    def _say(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self, deadline: float) -> str:
        assert self._process.stdout
        timer = threading.Timer(deadline, self._process.kill)
        timer.start()
        try:
            return self._process.stdout.readline().strip()
        finally:
            timer.cancel()


class _Clients:
    """The two clients, each on a thread of its own."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._order = order
        self._acked: set[int] = set()
        self._read: set[int] = set()
        self._errors: list[tuple[str, int, str]] = []
        self._stopped = threading.Event()
        self._all_written = threading.Event()

    def run(self) -> None:
        threads = [threading.Thread(target=self._write), threading.Thread(target=self._consume)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + _START_S
        while not (self._acked and self._read) and time.monotonic() < deadline:
            time.sleep(0.01)
        print("running" if self._read else f"nothing is read: {self._errors}", flush=True)
        sys.stdin.readline()
        self._stopped.set()
        for thread in threads:
            thread.join()
        report = {"acked": sorted(self._acked), "read": sorted(self._read), "errors": self._errors}
        print(json.dumps(report), flush=True)

    def _complain(self, who: str, error: KafkaError) -> None:
        self._errors.append((who, error.code(), error.str()))

    def _write(self) -> None:
        producer = Producer({
            **self._order["config"],
            "enable.idempotence": True,
            "message.timeout.ms": int(_FINISH_S * 1000),
            "reconnect.backoff.max.ms": 500,
            "error_cb": lambda error: self._complain("producer", error),
        })  # fmt: skip
        number = 0
        while not self._stopped.is_set():
            producer.produce(
                self._order["topic"],
                str(number).encode(),
                partition=number % self._order["partitions"],
                on_delivery=self._delivered,
            )
            number += 1
            producer.poll(0)
            time.sleep(self._order["pace_ms"] / 1000)
        left = producer.flush(_FINISH_S)
        if left:
            self._errors.append(("producer", KafkaError._MSG_TIMED_OUT, f"{left} records are not acknowledged"))
        self._all_written.set()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._acked.add(int(message.value() or b""))
        else:
            # A record that was given up is lost, whatever the reason.
            self._errors.append(("delivery", KafkaError._MSG_TIMED_OUT, error.str()))

    def _consume(self) -> None:
        consumer = Consumer({
            **self._order["config"],
            "group.id": f"{self._order['topic']}-readers",
            "group.protocol": self._order["protocol"],
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "reconnect.backoff.max.ms": 500,
            "error_cb": lambda error: self._complain("consumer", error),
        })  # fmt: skip
        consumer.subscribe([self._order["topic"]])
        deadline = float("inf")
        while time.monotonic() < deadline:
            for message in consumer.consume(500, 0.1):
                if (error := message.error()) is not None:
                    self._complain("consumer", error)
                else:
                    self._read.add(int(message.value() or b""))
            if self._all_written.is_set():
                deadline = min(deadline, time.monotonic() + _FINISH_S)
                if self._acked <= self._read:
                    break
        consumer.close()


def contents(config: Mapping[str, Any], topic: str, partitions: int = 1) -> list[list[bytes]]:
    """Everything that stands in the topic, by partition, in order: what was written twice stands there twice."""
    consumer = Consumer(
        {**config, "group.id": "audit", "enable.auto.commit": False, "isolation.level": "read_committed"}
    )
    found: list[list[bytes]] = []
    try:
        for partition in range(partitions):
            place = TopicPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=_START_S)
            consumer.assign([place])
            values: list[bytes] = []
            deadline = time.monotonic() + _START_S
            while len(values) < end and time.monotonic() < deadline:
                values += [message.value() or b"" for message in consumer.consume(1000, 0.5) if not message.error()]
            found.append(values)
    finally:
        consumer.close()
    return found


if __name__ == "__main__":
    _Clients(json.loads(sys.stdin.readline())).run()
