"""`python -m bench.lags`: what a round of polling lags costs, written into the section `Cost` of docs/lags.md.

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
from collections.abc import Sequence
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import uvloop
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.cimpl import NewTopic

from bench import machine
from bench.cluster import admin
from bench.sections import with_section
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

PAGE = Path(__file__).resolve().parents[1] / "docs" / "lags.md"
COST = "## Cost"
_ROUND_S = 60.0
TITLES = ("the first: everything is written", "nothing has changed", "all groups have committed")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    title: str
    facts: int
    fact_mb: float
    seconds: float
    cpu_s: float
    longest_pause_ms: float

    @property
    def cells(self) -> str:
        return (
            f"| {self.title} | {self.facts:,} | {self.fact_mb:.1f} | {self.seconds:.1f} | {self.cpu_s:.1f} "
            f"| {self.longest_pause_ms:.0f} |"
        )


async def measure(bootstrap: str, groups: int, partitions: int) -> list[Round]:
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
    found = []
    for number, title in enumerate(TITLES):
        if number != 1:
            await commit(dialler, groups, partitions, 1 + number)
        pauses = Pauses()
        watching = asyncio.create_task(pauses.watch())
        facts.clear()
        cpu = time.process_time()
        counts = await poller.poll()
        cpu = time.process_time() - cpu
        watching.cancel()
        if counts.polled != groups:
            raise SystemExit(f"{counts.polled} of {groups} groups were polled")
        encoded = (encode(writer.stamped(fact)) for fact in facts)
        fact_bytes = sum(len(key) + len(value or b"") for _, key, value in encoded)
        found.append(
            Round(
                title=title,
                facts=len(facts),
                fact_mb=fact_bytes / 1e6,
                seconds=counts.seconds,
                cpu_s=cpu,
                longest_pause_ms=1000 * pauses.longest_s,
            )
        )
        print(found[-1].cells, file=sys.stderr)
    await writer.close()
    return found


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


def section(rounds: Sequence[Round], groups: int, partitions: int, by_admin_s: float, measured: str) -> str:
    """The section `Cost` of docs/lags.md."""
    share = 100 * max(one.cpu_s for one in rounds) / _ROUND_S
    table = "\n".join(one.cells for one in rounds)
    at_once = by_admin_s * groups / _ADMIN_GROUPS
    return f"""{COST}

`python -m bench.lags` makes {groups:,} groups with {partitions} partitions each on one real broker, polls them as a
gateway does, and writes this section. The broker is on the same machine; CPU seconds are those of the polling process,
and the longest pause is that of its event loop. {measured}

| round | facts | MB of facts | seconds | CPU seconds | longest pause, ms |
|---|---:|---:|---:|---:|---:|
{table}

So the worker that polls spends up to {share:.0f} % of a core for {groups:,} groups, at one round a minute. librdkafka's
Admin, which takes one group in a request, needed {by_admin_s:.2f} s for {_ADMIN_GROUPS} groups in the same run, for the
committed offsets alone, which is {at_once:.0f} s for {groups:,}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=10, help="of each group, in one topic")
    parser.add_argument(
        "--out", type=Path, default=PAGE, help="the page whose section is written (default: %(default)s)"
    )
    args = parser.parse_args()
    measured = f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, "
    measured += ", ".join(f"{key} {value}" for key, value in machine.facts().items()) + "."
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-"))
        kafka = stack.enter_context(EmbeddedKafka(ClusterSpec(data_dir=Path(name) / "kafka", port=port_block())))
        client = admin(kafka.bootstrap, None)
        topics = [NewTopic(f"lags-{number}", args.partitions, 1) for number in range(_TOPICS)]
        for made in client.create_topics(topics).values():
            made.result(60)
        rounds = uvloop.run(measure(kafka.bootstrap, args.groups, args.partitions))
        by_admin_s = admin_seconds(kafka.bootstrap, _ADMIN_GROUPS)
    text = section(rounds, args.groups, args.partitions, by_admin_s, measured)
    print(text)
    args.out.write_text(with_section(args.out.read_text(encoding="utf-8"), text), encoding="utf-8")


if __name__ == "__main__":
    main()
