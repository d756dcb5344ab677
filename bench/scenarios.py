"""What is measured, as a table: one row is a load, the unit that its figures are in, and the words of the loader.

A call is a whole request with its answer; a gigabyte is 10^9 bytes of requests (produce) or answers (fetch).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from bench.cluster import READ, READ_SMALL, RECORD_BYTES, RECORDS_A_BATCH, WRITTEN


class Unit(StrEnum):
    """What throughput and CPU are counted in."""

    BYTES = "bytes"  # MB/s, CPU seconds a GB
    CALLS = "calls"  # calls/s, CPU microseconds a call
    CONNECTIONS = "connections"  # connections/s, CPU microseconds a connection
    LATENCY = "latency"  # microseconds of one call after the other
    MEMORY = "memory"  # resident megabytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    title: str
    unit: Unit
    words: Mapping[str, object]

    @property
    def uses_java_tool(self) -> bool:
        """Kafka's own program makes the load; it follows the addresses that it is told, as every real client does."""
        return str(self.words["call"]).startswith("java-")


SCENARIOS = (
    Scenario(
        name="produce-64k",
        title="Produce of 64 KiB: acks=all, 4 connections with 5 calls in flight each",
        unit=Unit.BYTES,
        words={
            "call": "produce",
            "topic": WRITTEN,
            "records": RECORDS_A_BATCH,
            "size": RECORD_BYTES,
            "connections": 4,
            "depth": 5,
        },
    ),
    Scenario(
        name="produce-1k",
        title="Produce of 1 KB: acks=all, 4 connections with 5 calls in flight each",
        unit=Unit.CALLS,
        words={
            "call": "produce",
            "topic": WRITTEN,
            "records": 1,
            "size": RECORD_BYTES,
            "connections": 4,
            "depth": 5,
        },
    ),
    Scenario(
        name="fetch-1k",
        title="Fetch of 1 KB: one batch of one record, 4 connections with 5 calls in flight each",
        unit=Unit.CALLS,
        words={"call": "fetch", "topic": READ_SMALL, "max_bytes": RECORD_BYTES, "connections": 4, "depth": 5},
    ),
    Scenario(
        name="fetch-1m",
        title="Fetch of 1 MiB: 4 connections with 2 calls in flight each, the broker reads from its page cache",
        unit=Unit.BYTES,
        words={"call": "fetch", "topic": READ, "max_bytes": 1 << 20, "connections": 4, "depth": 2},
    ),
    Scenario(
        name="clients-200",
        title="200 clients of small calls: Heartbeat of a group's member, one call in flight each",
        unit=Unit.CALLS,
        words={"call": "heartbeat", "connections": 200, "depth": 1},
    ),
    Scenario(
        name="connections",
        title="Connection rate: connect, ApiVersions, reset; 8 at a time",
        unit=Unit.CONNECTIONS,
        words={"call": "api_versions", "connections": 8, "depth": 1, "reconnect": 1},
    ),
    Scenario(
        name="latency",
        title="Latency: Heartbeat of a group's member, one client, one call after the other",
        unit=Unit.LATENCY,
        words={"call": "heartbeat", "connections": 1, "depth": 1},
    ),
    Scenario(
        name="java-producer",
        title="Second view: kafka-producer-perf-test, acks=all, batches of 64 KiB",
        unit=Unit.BYTES,
        # CPU is counted in steps of 0.01 s: a tenth of the records decided nothing.
        words={"call": "java-producer", "topic": WRITTEN, "records": 2_000_000, "size": RECORD_BYTES},
    ),
    Scenario(
        name="java-consumer",
        title="Second view: kafka-consumer-perf-test, fetches of 1 MiB",
        unit=Unit.BYTES,
        words={"call": "java-consumer", "topic": READ, "records": 250_000, "size": RECORD_BYTES},
    ),
    Scenario(
        name="idle-1000",
        title="Memory with 1,000 idle connections, each after one ApiVersions call, in a fresh process",
        unit=Unit.MEMORY,
        words={"call": "open", "connections": 1000, "depth": 1},
    ),
)

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
