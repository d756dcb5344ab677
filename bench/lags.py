"""`python -m bench.lags`: what a round of polling lags costs, as a markdown table for docs/lags.md.

Groups with committed offsets are made on one real broker, and rounds run as in a gateway, with the real writer of
facts: the first writes everything, the second nothing, the third what all groups have committed meanwhile. CPU time is
that of the whole process, with librdkafka's threads; the longest pause is that of the event loop. Beside them: how long
librdkafka's Admin takes for a hundred of the groups, one call for each.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from concurrent.futures import wait
from contextlib import ExitStack
from pathlib import Path

import uvloop
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.cimpl import NewTopic

from bench import machine
from bench.cluster import admin
from headgate.base.clock import SystemClock
from headgate.config.addresses import parse_address
from headgate.embedded import ClusterSpec, EmbeddedKafka
from headgate.facts import Fact, encode
from headgate.kafka.connections import Connections, Dialler
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.group_admin import find_coordinators
from headgate.kafka.topics import Origin, ensure_topics
from headgate.lags.model.round_plan import RoundLimits
from headgate.lags.poller import LagPoller
from headgate.wire.messages.groups import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from tests.support.ports import port_block

_TOPICS = 20
_CONNECTIONS = 4
_TICK_S = 0.001
_ADMIN_GROUPS = 100


async def commit(dialler: Dialler, groups: int, partitions: int, offset: int) -> None:
    """Commit an offset of all partitions of one topic, for each group."""

    async def commit_some(first: int) -> None:
        async with Connections(dialler) as connections:
            link = await connections.bootstrap()
            await find_coordinators(connections, ["group-00000"])  # brokers create their topic for the first of these
            for number in range(first, groups, _CONNECTIONS):
                committed = (
                    OffsetCommitPartition(partition_index=one, committed_offset=offset + one)
                    for one in range(partitions)
                )
                topic = OffsetCommitTopic(name=f"lags-{number % _TOPICS}", partitions=tuple(committed))
                request = OffsetCommitRequest(group_id=f"group-{number:05}", topics=(topic,))
                for _ in range(100):
                    answer = await link.ask(request, lowest=8, highest=9)
                    codes = {one.error_code for topic in answer.topics for one in topic.partitions}
                    if codes == {0}:
                        break
                    await asyncio.sleep(0.1)  # the coordinator is not there yet
                else:
                    raise SystemExit(f"offsets were not committed: {codes}")

    await asyncio.gather(*map(commit_some, range(_CONNECTIONS)))


class Pauses:
    """The longest time that the event loop did not come back to a timer."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def watch(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            self.longest_s = max(self.longest_s, time.perf_counter() - before - _TICK_S)


async def measure(bootstrap: str, groups: int, partitions: int) -> list[str]:
    dialler = Dialler(bootstrap=(parse_address(bootstrap),))
    settings = {"bootstrap.servers": bootstrap}
    await ensure_topics(settings, prefix="headgate.", max_bytes=2**20)
    writer = FactWriter(
        settings, prefix="headgate.", origin=Origin(cluster="q3Jxq3Jxq3Jxq3Jxq3Jxqw", writer="gw-a:9092/0", boot="b1")
    )
    await writer.open("lags")
    facts: list[Fact] = []

    async def dial() -> Dialler:
        return dialler

    async def write(fact: Fact) -> object:
        facts.append(fact)
        return await writer.write(fact)

    poller = LagPoller(dial, write, lambda: True, SystemClock(), limits=RoundLimits(groups=groups))
    lines = [
        "| round | groups | partitions | facts | MB of facts | seconds | CPU seconds | longest pause of the loop, ms |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for number, title in enumerate(("first", "nothing changed", "all changed")):
        if number != 1:
            await commit(dialler, groups, partitions, 1 + number)
        pauses = Pauses()
        watching = asyncio.create_task(pauses.watch())
        facts.clear()
        cpu = time.process_time()
        counts = await poller.poll()
        cpu = time.process_time() - cpu
        watching.cancel()
        encoded = (encode(writer.stamped(fact)) for fact in facts)
        fact_bytes = sum(len(key) + len(value or b"") for _, key, value in encoded)
        lines.append(
            f"| {title} | {counts.polled:,} | {counts.partitions:,} | {len(facts):,} "
            f"| {fact_bytes / 1e6:.1f} | {counts.seconds:.1f} | {cpu:.1f} | {1000 * pauses.longest_s:.0f} |"
        )
        print(lines[-1], file=sys.stderr)
    await writer.close()
    return lines


def admin_seconds(bootstrap: str, groups: int) -> float:
    """How long librdkafka's Admin takes for the committed offsets of so many groups, all calls at once."""
    client = admin(bootstrap, None)
    started = time.perf_counter()
    calls = [
        call
        for number in range(groups)
        for call in client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"group-{number:05}")]).values()
    ]
    wait(calls)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=10, help="of each group, in one topic")
    args = parser.parse_args()
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-"))
        kafka = stack.enter_context(EmbeddedKafka(ClusterSpec(data_dir=Path(name) / "kafka", port=port_block())))
        client = admin(kafka.bootstrap, None)
        topics = [NewTopic(f"lags-{number}", args.partitions, 1) for number in range(_TOPICS)]
        for made in client.create_topics(topics).values():
            made.result(60)
        lines = uvloop.run(measure(kafka.bootstrap, args.groups, args.partitions))
        by_admin = admin_seconds(kafka.bootstrap, _ADMIN_GROUPS)
    print(", ".join(f"{key} {value}" for key, value in machine.facts().items()))
    print("\n".join(["", *lines, ""]))
    print(f"librdkafka's Admin, one call for each group: {by_admin:.2f} s for {_ADMIN_GROUPS} groups.")


if __name__ == "__main__":
    main()
