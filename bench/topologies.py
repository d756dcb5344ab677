"""`python -m bench.topologies`: what holding and pushing topologies costs the default store, as markdown tables.

Two questions. How long does a worker take to start, and how large is it, when ten thousand groups have a description of
500 nodes each, from a warm cache and from nothing? And what does one push of ten thousand nodes cost, step by step?
Each figure is taken in a process of its own, against a real broker of this run's own. The budget of a start is 5 s.
"""

import argparse
import asyncio
import gc
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from bench import machine
from headgate.base.clock import SystemClock
from headgate.embedded import ClusterSpec, EmbeddedKafka
from headgate.facts.topics import message_limit
from headgate.facts.topology import (
    Description,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    Subtopology,
    content_hash,
)
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.shared_clients import SharedClients
from headgate.kafka.topics import Origin, ensure_topics
from headgate.plugin import PushedTopology, StoreSettings
from headgate.topologies.model.group_state import Bookkeeping
from headgate.topologies.model.streams_groups import StreamsGroups
from headgate.topologies.stores.kafka_store import SUFFIX, KafkaStore, described_fact
from headgate.topologies.wire_descriptions import from_wire, to_wire
from headgate.wire.codec import decode, encode
from headgate.wire.messages.streams import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from tests.support.ports import port_block

GROUPS, NODES_HELD, NODES_PUSHED = 10_000, 500, 10_000
BUDGET_S = 5.0
PREFIX = "headgate."
MAX_BYTES = 4 * 1024 * 1024
_AT_ONCE = 100
_PUSHES = 5
_MIB = 1024 * 1024
_LONGEST_S = 300.0
# A real cluster's broker has all of it in its page cache or reads it from a disk; heap is not what this is about.
_BROKER = {"auto.create.topics.enable": "false", "message.max.bytes": str(64 * _MIB)}


def application(name: str, nodes: int) -> Description:
    """Sub-topologies of fifty nodes each: a source, processors of which every third has a store, and a sink.

    Names of nodes hold something that no other has, or all of them together would pack into nothing.
    """
    subtopologies = []
    for number in range(nodes // 50):
        names = [f"KSTREAM-TRANSFORM-{_word(f'{name}/{number}/{at}')}" for at in range(48)]
        first = SourceNode(
            name=f"KSTREAM-SOURCE-{number:010d}", topics=(f"{name}-input-{number}",), successors=(names[0],)
        )
        last = SinkNode(name=f"KSTREAM-SINK-{number:010d}", topic=f"{name}-output-{number}")
        middle: list[Node] = [
            ProcessorNode(
                name=one, stores=(f"{name}-store-{number}-{at}",) if at % 3 == 0 else (), successors=(following,)
            )
            for at, (one, following) in enumerate(zip(names, [*names[1:], last.name], strict=True))
        ]
        subtopologies.append(Subtopology(id=str(number), nodes=(first, *middle, last)))
    return Description(subtopologies=tuple(subtopologies))


def _word(text: str) -> str:
    return hashlib.blake2s(text.encode(), digest_size=5).hexdigest()


def pushed(group: str, description: Description) -> PushedTopology:
    return PushedTopology(
        group=group,
        epoch=0,
        description=description,
        incarnation="0123456789ab",
        hash=content_hash(description),
        member=str(uuid.uuid5(uuid.NAMESPACE_URL, group)),
        process=str(uuid.uuid5(uuid.NAMESPACE_DNS, group)),
    )


def request_of(description: Description) -> bytes:
    """The push as a client sends it."""
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id="pushed", member_id="m", topology_epoch=0, topology_description=to_wire(description)
    )
    return bytes(encode(request, 0))


# --- what runs in a process of its own ------------------------------------------------------------------------------


def _memory(name: str) -> float:
    """A line of /proc/self/status in MiB: VmRSS is now, VmHWM the most so far."""
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    return 0.0


def _forget_peak() -> None:
    """From here on VmHWM counts anew."""
    Path("/proc/self/clear_refs").write_text("5", "utf-8")


@asynccontextmanager
async def _opened(bootstrap: str, folder: Path, groups: StreamsGroups) -> AsyncIterator[KafkaStore]:
    settings = {"bootstrap.servers": bootstrap}
    writer = FactWriter(
        settings,
        prefix=PREFIX,
        origin=Origin(cluster=None, writer="bench/0", boot="b"),
        largest=message_limit(MAX_BYTES),
        delivery_timeout_s=30.0,
    )
    clients = SharedClients(lambda: settings, largest=message_limit(MAX_BYTES))
    store = KafkaStore(clients, prefix=PREFIX, writer=writer, clock=SystemClock(), on_record=groups.on_record_read)
    try:
        await writer.open(SUFFIX)
        await store.configure(StoreSettings(folder=folder, max_bytes=MAX_BYTES, environment={}))
        await asyncio.wait_for(store.replayed(), _LONGEST_S)
        yield store
    finally:
        await store.close()
        await writer.close()
        await clients.close()


async def start(bootstrap: str, folder: Path) -> dict[str, float]:
    """A worker's start until it knows every group; its memory before and after."""
    before = _memory("VmRSS")
    groups = StreamsGroups(Bookkeeping.STORE)
    begun = time.monotonic()
    async with _opened(bootstrap, folder, groups) as store:
        ready = time.monotonic() - begun
        gc.collect()
        held = _memory("VmRSS")
        begun = time.monotonic()
        found = await store.get("group-00042", 0)
        assert found is not None
        read = time.monotonic() - begun
    return {
        "groups": len(groups),
        "ready_s": ready,
        "before_mib": before,
        "held_mib": held,
        "peak_mib": _memory("VmHWM"),
        "get_ms": read * 1000,
    }


class Steps:
    """How long each step took, each time."""

    def __init__(self) -> None:
        self._times: dict[str, list[float]] = {}

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self._times.setdefault(step, []).append(time.monotonic() - begun)

    def middle(self) -> dict[str, float]:
        return {step: statistics.median(times) for step, times in self._times.items()}


def _read(body: bytes, group: str, steps: Steps) -> PushedTopology:
    with steps.timed("decode_s"):
        request = decode(StreamsGroupTopologyDescriptionUpdateRequest, 0, body)
    with steps.timed("check_s"):
        description = from_wire(request.topology_description)
    assert isinstance(description, Description)
    with steps.timed("hash_s"):
        return pushed(group, description)


async def push(bootstrap: str, folder: Path, nodes: int) -> dict[str, float]:
    """Pushes of new topologies one after the other, as the gateway does it; the middle time of each step."""
    bodies = [request_of(application(f"app-{number}", nodes)) for number in range(_PUSHES)]
    steps = Steps()
    async with _opened(bootstrap, folder, StreamsGroups(Bookkeeping.STORE)) as store:
        gc.collect()
        before = _memory("VmRSS")
        _forget_peak()
        for number, body in enumerate(bodies):
            one = await asyncio.to_thread(_read, body, f"pushed-{number}", steps)
            with steps.timed("set_s"):
                await store.set(one)
            with steps.timed("get_s"):
                found = await store.get(one.group, 0)
            assert found == one.description
    return steps.middle() | {
        "wire_mib": len(bodies[0]) / _MIB,
        "before_mib": before,
        "peak_mib": _memory("VmHWM"),
    }


def _in_child(*words: str) -> dict[str, Any]:
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "bench.topologies", "--child", *words],
        check=True,
        capture_output=True,
        text=True,
        timeout=_LONGEST_S + 60,
    )
    return {**json.loads(done.stdout.splitlines()[-1]), "process_s": time.monotonic() - begun}


# --- the run --------------------------------------------------------------------------------------------------------


async def fill(bootstrap: str, groups: int, nodes: int) -> float:
    """Write a description of each group into the topic; gives their size on average in KiB."""
    settings = {"bootstrap.servers": bootstrap}
    await ensure_topics(settings, prefix=PREFIX, max_bytes=MAX_BYTES)
    writer = FactWriter(
        settings,
        prefix=PREFIX,
        origin=Origin(cluster=None, writer="bench/0", boot="a"),
        largest=message_limit(MAX_BYTES),
        delivery_timeout_s=60.0,
    )
    await writer.open(SUFFIX)
    try:
        for first in range(0, groups, _AT_ONCE):
            names = [f"group-{number:05d}" for number in range(first, min(first + _AT_ONCE, groups))]
            facts = (described_fact(pushed(name, application(name, nodes)), at=1) for name in names)
            await asyncio.gather(*(writer.write(fact) for fact in facts))
            _say(f"\r{first + len(names)} of {groups} descriptions written", end="")
        _say("")
    finally:
        await writer.close(timeout_s=60.0)
    return len(request_of(application("group-00000", nodes))) / 1024


def run(*, groups: int, rounds: int) -> str:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
        folder = Path(name)
        spec = ClusterSpec(data_dir=folder / "kafka", port=port_block(), settings=_BROKER, heap_mb=1024, full_jit=True)
        with EmbeddedKafka(spec) as kafka:
            wire_kib = asyncio.run(fill(kafka.bootstrap, groups, NODES_HELD))
            cold, warm = [], []
            for number in range(rounds):
                place = folder / f"worker-{number}"
                place.mkdir()
                cold.append(_in_child("start", kafka.bootstrap, str(place)))
                warm.append(_in_child("start", kafka.bootstrap, str(place)))
                _say(f"round {number + 1} of {rounds}: {cold[-1]['ready_s']:.1f} s, {warm[-1]['ready_s']:.1f} s")
                size = (place / "topologies.db").stat().st_size / _MIB
                (place / "topologies.db").unlink()
            (folder / "pusher").mkdir()
            one_push = _in_child("push", kafka.bootstrap, str(folder / "pusher"), str(NODES_PUSHED))
    return _page(groups, wire_kib, size, cold, warm, one_push)


def _page(
    groups: int,
    wire_kib: float,
    cache_mib: float,
    cold: Sequence[dict[str, float]],
    warm: Sequence[dict[str, float]],
    one_push: dict[str, float],
) -> str:
    facts = machine.facts()
    where = ", ".join(f"{name} {facts[name]}" for name in ("headgate", "Python", "Kafka", "processor", "memory"))
    lines = [
        f"## Held by `kafka:`: {groups} groups, {NODES_HELD} nodes each ({wire_kib:.0f} KiB on the wire)",
        "",
        f"{where}. The middle of {len(cold)} runs; the budget of a start is {BUDGET_S:.0f} s.",
        "",
        "| start | until every group is known | whole process | memory before | with all groups | most | first `get` |",
        "|---|---|---|---|---|---|---|",
        _start_row("from nothing", cold),
        _start_row("from a warm cache", warm),
        "",
        f"The cache is a file of {cache_mib:.0f} MiB.",
        "",
        f"## One push of {NODES_PUSHED} nodes ({one_push['wire_mib']:.2f} MiB on the wire)",
        "",
        "| decode | check | hash | `set`, read back and cached | `get` | memory before | most |",
        "|---|---|---|---|---|---|---|",
        "| "
        + " | ".join(f"{one_push[step] * 1000:.0f} ms" for step in ("decode_s", "check_s", "hash_s", "set_s", "get_s"))
        + f" | {one_push['before_mib']:.0f} MiB | {one_push['peak_mib']:.0f} MiB |",
    ]
    return "\n".join(lines)


def _start_row(title: str, runs: Sequence[dict[str, float]]) -> str:
    def middle(name: str) -> float:
        return statistics.median(one[name] for one in runs)

    return (
        f"| {title} | {middle('ready_s'):.2f} s | {middle('process_s'):.2f} s | {middle('before_mib'):.0f} MiB "
        f"| {middle('held_mib'):.0f} MiB | {middle('peak_mib'):.0f} MiB | {middle('get_ms'):.0f} ms |"
    )


def _say(text: str, end: str = "\n") -> None:
    print(text, file=sys.stderr, flush=True, end=end)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.topologies", description="The default store under load.")
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args(given)
    match args.child:
        case None:
            print(run(groups=args.groups, rounds=args.rounds))
        case ["start", bootstrap, folder]:
            print(json.dumps(asyncio.run(start(bootstrap, Path(folder)))))
        case ["push", bootstrap, folder, nodes]:
            print(json.dumps(asyncio.run(push(bootstrap, Path(folder), int(nodes)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
