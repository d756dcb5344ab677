"""`python -m bench.share`: what minding share groups costs, into `bench/SHARE.md`.

The same records are consumed again and again by real Java share consumers of a new group each time: through a gateway
that does not mind share groups (plain), and through one that does, for a group without a config of ours (off), with a
breaker (on), with a tenth rejected (rejects), and with these copied (copy). The ways are measured in turn, several
rounds; what counts is the ratio to plain in the same round, and the CPU seconds of the gateway. Beside it: how many
records still reach members after a trip, and the memory of what 200 members hold. Sections of the page that are
written by hand stay.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import machine
from bench.processes import cpu_seconds, resident_mb
from bench.sections import rewrite
from headgate.embedded import ClusterSpec, EmbeddedKafka
from headgate.embedded.spec import QUICK_SETTINGS
from tests.support.certificates import make_certificates
from tests.support.cluster import Cluster
from tests.support.ports import port_block
from tests.support.raw_client import RawClient
from tests.support.share_consumers import ShareJvm
from tests.support.share_member import RawShareMember
from tests.support.share_scene import BREAKER, COPY, DLQ_TOPIC, MINIMUM, THRESHOLD, ShareScene, share_scene

PAGE = Path(__file__).resolve().parent / "SHARE.md"
# Of the plain gateway: with the breaker on, with a tenth rejected, and with copies of these.
TARGETS = {"on": 0.95, "rejects": 0.6, "copy": 0.45}
PARTITIONS, MEMBERS, RECORD_BYTES = 4, 2, 500
HOLDERS, LOCKS = 200, 2000
_LONGEST_S = 600.0
_SETTINGS = {**QUICK_SETTINGS, "group.share.max.size": "1000", "auto.create.topics.enable": "false"}


@dataclass(frozen=True, slots=True)
class Way:
    """One way of consuming: through which gateway, with which configs (the dead-letter topic comes by itself)."""

    name: str
    minding: bool
    configs: Mapping[str, str]
    rejects_percent: int = 0


# At 100 % it never trips: what is measured is counting and judging.
_ON = {BREAKER: "true", THRESHOLD: "100", DLQ_TOPIC: ""}
WAYS = (
    Way("plain", minding=False, configs={}),
    Way("off", minding=True, configs={}),
    Way("on", minding=True, configs=_ON),
    Way("rejects", minding=True, configs=_ON, rejects_percent=10),
    Way("copy", minding=True, configs={**_ON, COPY: "true"}, rejects_percent=10),
)


@dataclass(frozen=True, slots=True)
class Cost:
    records_a_second: float
    cpu_s: float


class Stage:
    """A broker, both gateways, and a JVM of consumers that has been warmed up."""

    def __init__(self, plain: ShareScene, minding: ShareScene, jvm: ShareJvm, records: int) -> None:
        self._scenes = {False: plain, True: minding}
        self._jvm = jvm
        self._records = records
        self.topic = plain.new_topic(partitions=PARTITIONS)
        value = b"x" * RECORD_BYTES
        for first in range(0, records, 10_000):
            count = min(10_000, records - first)
            keys = [str(first + at).encode() for at in range(count)]
            plain.send(self.topic, [value] * count, partitions=PARTITIONS, keys=keys)

    def consume(self, way: Way) -> Cost:
        """All records once; from the first to the last that the members were given."""
        scene = self._scenes[way.minding]
        dlq = scene.new_topic("dlq", partitions=2) if DLQ_TOPIC in way.configs else ""
        group = scene.new_group({**way.configs, **({DLQ_TOPIC: dlq} if dlq else {})})
        [worker] = scene.gateway.workers()
        before = cpu_seconds([worker])
        members = [
            self._jvm.join(
                f"{group}-{at}",
                scene.bootstrap,
                group,
                [self.topic],
                rejects_percent=way.rejects_percent,
                each=False,
            )
            for at in range(MEMBERS)
        ]
        self._jvm.wait_until(
            lambda: sum(event["count"] for one in members for event in one.events("polled")) >= self._records or None,
            f"{self._records} records, {way.name}",
            _LONGEST_S,
            lambda: str([one.seen() for one in members]),
        )
        spent = cpu_seconds([worker]) - before
        times = [event["at_ms"] / 1000 for one in members for event in one.events("polled")]
        for one in members:
            one.close()
            if one.errors:
                raise RuntimeError(f"{way.name}: {one.errors[:3]}")
        return Cost(self._records / (max(times) - min(times)), spent)

    def after_a_trip(self) -> tuple[int, int, float]:
        """Records that reached members before the trip and after, and seconds from the first to the trip."""
        scene = self._scenes[True]
        dlq = scene.new_topic("dlq", partitions=2)
        group = scene.new_group({DLQ_TOPIC: dlq, BREAKER: "true", THRESHOLD: "20", MINIMUM: "100"})
        members = [
            self._jvm.join(f"{group}-{at}", scene.bootstrap, group, [self.topic], rejects_percent=25, each=False)
            for at in range(MEMBERS)
        ]
        scene.wait_for_status(group, lambda status: bool(status["paused"]))
        time.sleep(2.0)
        [trip] = scene.events(group, "tripped")
        polled = [event for one in members for event in one.events("polled")]
        for one in members:
            one.close()
        before = sum(event["count"] for event in polled if event["at_ms"] <= trip["at"])
        after = sum(event["count"] for event in polled if event["at_ms"] > trip["at"])
        return before, after, (trip["at"] - min(event["at_ms"] for event in polled)) / 1000


def held(scene: ShareScene, members: int, locks: int) -> tuple[float, float]:
    """The worker's memory in MB before and after so many members hold so many records each."""
    topic, dlq = scene.new_topic(partitions=members), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq, BREAKER: "true"})
    scene.send(topic, [b"x" * 100] * (members * locks), partitions=members)
    topic_id = scene.topic_id(topic)
    [worker] = scene.gateway.workers()
    before = resident_mb(worker)
    with ExitStack() as stack:
        for number in range(members):
            client = stack.enter_context(RawClient(scene.gateway.address(0)))
            member = RawShareMember(group=group, topic=topic, topic_id=topic_id, partition=number)
            member.join(client)
            acquired = 0
            while acquired < locks:
                acquired += sum(one.last_offset - one.first_offset + 1 for one in member.acquire(client))
        return before, resident_mb(worker)


def run(*, records: int, rounds: int, holders: int) -> str:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        kafka = stack.enter_context(
            EmbeddedKafka(
                ClusterSpec(
                    data_dir=folder / "kafka", port=port_block(), settings=_SETTINGS, heap_mb=1024, full_jit=True
                )
            )
        )
        cluster = Cluster(kafka=kafka, certificates=make_certificates(folder / "certificates"))
        plain = stack.enter_context(share_scene(cluster, folder / "plain", share_groups__enable=False))
        minding = stack.enter_context(share_scene(cluster, folder / "minding"))
        jvm = stack.enter_context(ShareJvm("clients", folder / "jvm.log"))
        stage = Stage(plain, minding, jvm, records)
        costs: dict[str, list[Cost]] = {way.name: [] for way in WAYS}
        for number in range(rounds + 1):
            for way in WAYS:
                cost = stage.consume(way)
                _say(f"round {number} of {rounds}: {way.name} {cost.records_a_second:,.0f}/s, {cost.cpu_s:.2f} CPU s")
                if number:  # the first one warms up
                    costs[way.name].append(cost)
        trips = [stage.after_a_trip() for _ in range(rounds)]
        memory = held(minding, holders, LOCKS) if holders else None
    return _page(records, costs, trips, memory, holders)


def _page(
    records: int,
    costs: Mapping[str, Sequence[Cost]],
    trips: Sequence[tuple[int, int, float]],
    memory: tuple[float, float] | None,
    holders: int,
) -> str:
    rounds = len(trips)
    where = ", ".join(f"{name} {value}" for name, value in machine.facts().items())
    what = (
        f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, `python -m bench.share`, {rounds} rounds of "
        f"{records:,} records of {RECORD_BYTES} bytes, {PARTITIONS} partitions, {MEMBERS} members of kafka-clients "
        f"4.4.0. {where}."
    )
    lines = [
        "# Share groups: what minding them costs",
        "",
        what,
        "",
        "| way | records/s, median | to plain, median | rounds | gateway CPU s for 100,000 records | to plain |",
        "|---|---:|---:|---|---:|---:|",
    ]
    plain = costs["plain"]
    plain_cpu = statistics.median(one.cpu_s for one in plain)
    ratios = {
        name: [one.records_a_second / base.records_a_second for one, base in zip(found, plain, strict=True)]
        for name, found in costs.items()
    }
    for name, found in costs.items():
        cpu = statistics.median(one.cpu_s for one in found)
        lines.append(
            f"| {name} | {statistics.median(one.records_a_second for one in found):,.0f} "
            f"| {statistics.median(ratios[name]):.2f} | {', '.join(f'{one:.2f}' for one in ratios[name])} "
            f"| {cpu / records * 1e5:.2f} | {cpu / max(plain_cpu, 0.01):.2f} |"
        )
    lines.append("")
    for name, target in TARGETS.items():
        reached = statistics.median(ratios[name])
        verdict = "met" if reached >= target else "**missed**"
        lines.append(f"- {name}: at least {target} of plain ({verdict}: {reached:.2f})")
    lines += [
        "",
        "| trip, a quarter rejected at full speed | records before it | records after it | seconds from the first |",
        "|---|---:|---:|---:|",
        *(f"| {at + 1} | {before:,} | {after:,} | {took:.1f} |" for at, (before, after, took) in enumerate(trips)),
    ]
    if memory is not None:
        held_by = f"A worker's memory while {holders} members hold {LOCKS:,} records each"
        lines += ["", f"{held_by}: {memory[0]:.0f} MB before, {memory[1]:.0f} MB with them."]
    return "\n".join(lines) + "\n"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.share", description="What minding share groups costs.")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--holders", type=int, default=HOLDERS)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args(given)
    page = run(records=args.records, rounds=args.rounds, holders=args.holders)
    rewrite(args.page, page)
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
