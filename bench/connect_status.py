"""`python -m bench.connect_status`: how long a status topic of Connect takes to follow, and what it costs in memory.

A million records, each about another topic of one of a thousand connectors (the worst case: a compacted topic of the
largest estate), read from the start by a process of its own against a real broker of this run's own; then the time from
one more record's append to its being known. `--write` puts the table into bench/ACTIVITY.md.
"""

import argparse
import asyncio
import gc
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import machine
from headgate.activity.connect_status_topic import ConnectStatusTopic
from headgate.activity.model.connect_records import TopicUsed, status_key, status_value
from headgate.embedded import ClusterSpec, EmbeddedKafka
from tests.support.ports import port_block

RECORDS, CONNECTORS, PARTITIONS = 1_000_000, 1_000, 5
TOPIC = "connect-status"
PAGE = Path(__file__).with_name("ACTIVITY.md")
TITLE = "## A status topic, followed"
_LONGEST_S = 600.0
_FLUSH_EVERY = 10_000


def used(number: int) -> TopicUsed:
    return TopicUsed(
        topic=f"warehouse.public.table-{number:07d}",
        connector=f"jdbc-source-{number % CONNECTORS:04d}",
        task=number % 8,
        discover_timestamp_ms=1_794_731_901_727 + number,
    )


def fill(bootstrap: str, records: int) -> int:
    """Write the topic; gives the bytes of keys and values."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(TOPIC, PARTITIONS, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([wanted])[TOPIC].result(60)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 20, "acks": "all"}
    )
    size = 0
    for number in range(records):
        one = used(number)
        key, value = status_key(one.topic, one.connector), status_value(one)
        size += len(key) + len(value)
        producer.produce(TOPIC, key=key, value=value)
        if number % _FLUSH_EVERY == 0:
            producer.flush(60)
    assert producer.flush(60) == 0
    return size


def _memory(name: str) -> float:
    """A line of /proc/self/status in MiB: VmRSS is now, VmHWM the most so far."""
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    return 0.0


async def follow(bootstrap: str, records: int) -> dict[str, float]:
    """What a process needs until it knows all of it, and for one more."""
    before = _memory("VmRSS")
    began, busy = time.monotonic(), time.process_time()
    follower = ConnectStatusTopic({"bootstrap.servers": bootstrap}, status_topic=TOPIC)
    async with follower.running():
        await asyncio.wait_for(follower.ready(), _LONGEST_S)
        ready, cpu = time.monotonic() - began, time.process_time() - busy
        assert len(follower.topics) == records
        gc.collect()
        held = _memory("VmRSS")
        asked = time.perf_counter()
        assert len(follower.topics.of("jdbc-source-0000")) == -(-records // CONNECTORS)
        answer = time.perf_counter() - asked
        appended = time.monotonic()
        assert await follower.record(used(records))
        known = time.monotonic() - appended
    return {
        "ready_s": ready,
        "cpu_s": cpu,
        "before_mib": before,
        "held_mib": held,
        "peak_mib": _memory("VmHWM"),
        "answer_ms": answer * 1000,
        "known_ms": known * 1000,
    }


def run(records: int) -> str:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
        spec = ClusterSpec(data_dir=Path(name) / "kafka", port=port_block(), heap_mb=1024, full_jit=True)
        with EmbeddedKafka(spec) as kafka:
            size = fill(kafka.bootstrap, records)
            print(f"{records:,} records written", file=sys.stderr, flush=True)
            child = [sys.executable, "-m", "bench.connect_status", "--child", kafka.bootstrap, str(records)]
            done = subprocess.run(child, check=True, capture_output=True, text=True, timeout=_LONGEST_S + 60)
    return section(records, size, json.loads(done.stdout.splitlines()[-1]))


def section(records: int, size: int, found: dict[str, Any]) -> str:
    facts = ", ".join(f"{key} {value}" for key, value in machine.facts().items())
    return f"""{TITLE}

{time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}, `python -m bench.connect_status --write`. {facts}.

{records:,} records of as many topics and {CONNECTORS:,} connectors in {PARTITIONS} partitions, {size / 2**20:.0f} MiB
of keys and values.

| what | found |
|---|---:|
| from the start of the process's reading until all of it is known | {found["ready_s"]:.1f} s |
| CPU for it | {found["cpu_s"]:.1f} s |
| records a second | {records / found["ready_s"]:,.0f} |
| memory before | {found["before_mib"]:.0f} MiB |
| memory with all of it | {found["held_mib"]:.0f} MiB |
| most on the way | {found["peak_mib"]:.0f} MiB |
| one connector's sorted topics | {found["answer_ms"]:.2f} ms |
| one more use, appended and read back | {found["known_ms"]:.0f} ms |
"""


def write(text: str, page: Path = PAGE) -> None:
    """Put the section into the page, in place of the one that it had."""
    before = page.read_text("utf-8") if page.exists() else "# Activity: what it costs\n"
    pattern = re.compile(rf"^{re.escape(TITLE)}\n.*?(?=^## |\Z)", flags=re.MULTILINE | re.DOTALL)
    if pattern.search(before):
        after = pattern.sub(lambda found: text + ("\n" if found.end() < len(before) else ""), before)
    else:
        after = f"{before.rstrip()}\n\n{text}"
    page.write_text(after, "utf-8")


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.connect_status", description="A status topic, followed.")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args(given)
    if args.child is not None:
        bootstrap, records = args.child
        print(json.dumps(asyncio.run(follow(bootstrap, int(records)))))
        return 0
    text = run(args.records)
    print(text)
    if args.write:
        write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
