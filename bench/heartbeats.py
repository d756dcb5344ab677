"""`python -m bench.heartbeats`: what a Streams heartbeat costs the gateway, as a markdown table.

CPU microseconds of the worker for each heartbeat of a real broker's member, by what the gateway does with it: passed
(`owner = "broker"`), looked at (version 0), carried from version 1 to 0 and back (version 1). The ways are measured in
turn, several rounds, on gateways that stand side by side; what is added is against the same call passed. Beside it a
describe of a group of many members, with and without its topology of 500 nodes.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from confluent_kafka.cimpl import NewTopic

from bench import machine
from bench.cluster import admin
from bench.processes import cpu_seconds
from bench.topologies import application, request_of
from headgate.config.addresses import Address
from headgate.embedded import ClusterSpec, EmbeddedKafka
from headgate.kafka.connections import BrokerConnection, Dialler
from headgate.wire import frames
from headgate.wire.codec import decode, encode
from headgate.wire.messages.streams import (
    HeartbeatSubtopology,
    HeartbeatTopology,
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdateRequest,
    TaskOffset,
)
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.ports import port_block

HEARTBEAT, DESCRIBE, PUSH = 88, 89, 93
_DEPTH = 1  # a member waits for the answer to its heartbeat before the next one
_MEMBERS = 100
_FENCED = 110
_SETTINGS = {"group.streams.initial.rebalance.delay.ms": "0", "group.streams.max.size": "1000"}


def joining(group: str, member: str) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        process_id=f"process of {member}",
        rebalance_timeout_ms=60_000,
        topology=HeartbeatTopology(
            epoch=0, subtopologies=(HeartbeatSubtopology(subtopology_id="0", source_topics=("in",)),)
        ),
        active_tasks=(),
        standby_tasks=(),
        warmup_tasks=(),
    )


async def link_to(address: str) -> BrokerConnection:
    host, _, port = address.partition(":")
    where = Address(host, int(port))
    return await Dialler(bootstrap=(where,)).connect(where)


async def join(address: str, group: str, member: str, version: int) -> tuple[BrokerConnection, int]:
    """A connection on which this member is in the group, and its epoch."""
    link = await link_to(address)
    while True:
        answer = await link.call(joining(group, member), version)
        if answer.error_code == 0:
            return link, answer.member_epoch
        await asyncio.sleep(0.1)  # the coordinator has just been made


async def settle(link: BrokerConnection, group: str, epoch: int, version: int) -> int:
    """The member's epoch when the group has come to rest."""
    for _ in range(20):
        message = StreamsGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=epoch)
        answer = await link.call(message, version)
        epoch = answer.member_epoch if answer.error_code == 0 else epoch
        await asyncio.sleep(0.05)
    return epoch


async def beat(address: str, group: str, version: int, calls: int) -> None:
    """So many heartbeats of one member, one after the other, each checked for its error code."""
    link, epoch = await join(address, group, "m", version)
    epoch = await settle(link, group, epoch, version)
    # As a member with twenty tasks sends them in between: nothing is new but where it is.
    offsets = tuple(TaskOffset(subtopology_id="0", partition=i, offset=1000 + i) for i in range(20))
    header = frames.RequestHeader(
        api_key=HEARTBEAT, api_version=version, correlation_id=7, client_id=b"bench", tags=b"\x00"
    ).encode()
    reader, writer = link._reader, link._writer  # a caller waits for each answer; this does not
    sent = refused = 0
    for done in range(calls):
        while sent < min(done + _DEPTH, calls):
            message = StreamsGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=epoch)
            if version:
                message = replace(message, task_offsets=offsets, task_end_offsets=offsets)
            writer.write(frames.frame(header, encode(message, version)))
            sent += 1
        size = int.from_bytes(await reader.readexactly(4), "big")
        answer = decode(StreamsGroupHeartbeatResponse, version, (await reader.readexactly(size))[5:])
        if answer.error_code == _FENCED:  # the group went on to another epoch, and some were on their way
            refused += 1
        elif answer.error_code:
            raise RuntimeError(f"a heartbeat was refused: {answer}")
        else:
            epoch = answer.member_epoch
    if refused > calls / 100:
        raise RuntimeError(f"{refused} of {calls} heartbeats were refused")
    await link.shut()


async def described(address: str, group: str, *, topology: bool, calls: int) -> float:
    """Seconds a describe takes."""
    link = await link_to(address)
    request = StreamsGroupDescribeRequest(group_ids=(group,), include_topology_description=topology)
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        answer = await link.call(request, 1)
        times.append(time.perf_counter() - began)
        [one] = answer.groups
        if len(one.members) != _MEMBERS or one.topology_description_status != (3 if topology else 0):
            raise RuntimeError(f"{len(one.members)} members, status {one.topology_description_status}")
    await link.shut()
    return statistics.median(times)


async def fill(address: str, group: str) -> float:
    """A hundred members, one of which has pushed; the seconds of that push."""
    links = [await join(address, group, f"m{i}", 1) for i in range(_MEMBERS)]
    body = request_of(application(group, 500))
    push = decode(StreamsGroupTopologyDescriptionUpdateRequest, 0, body)
    push = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=group, member_id="m0", topology_epoch=0, topology_description=push.topology_description
    )
    began = time.perf_counter()
    answer = await links[0][0].call(push, 0)
    took = time.perf_counter() - began
    if answer.error_code:
        raise RuntimeError(f"the push was refused: {answer}")
    for link, _ in links:
        await link.shut()
    return took


def ready(gateway: GatewayProcess) -> None:
    while gateway.metric("headgate_topologies_ready") != 1:
        time.sleep(0.1)


def run(*, calls: int, rounds: int) -> str:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        kafka = EmbeddedKafka(ClusterSpec(data_dir=folder / "kafka", port=port_block(), settings=_SETTINGS))
        kafka.start()
        stack.callback(kafka.stop)
        client = admin(kafka.bootstrap, None)
        [made] = client.create_topics([NewTopic("in", 1, 1)]).values()
        made.result(20)
        passing = stack.enter_context(running_gateway(folder / "passing", kafka.bootstrap))
        owning = stack.enter_context(
            running_gateway(folder / "owning", kafka.bootstrap, topologies__owner="gateway", topologies__store="kafka:")
        )
        ready(owning)
        ways = {"0, passed": (passing, 0), "0": (owning, 0), "1": (owning, 1)}
        costs: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(rounds + 1):
            for way, (gateway, version) in ways.items():
                print(f"round {number} of {rounds}: version {way}", file=sys.stderr)
                [worker] = gateway.workers()
                before = cpu_seconds([worker])
                asyncio.run(beat(gateway.address(0), f"g{number}-{way}", version, calls))
                if number:  # the first one warms up
                    costs[way].append((cpu_seconds([worker]) - before) / calls * 1e6)
        push_s = asyncio.run(fill(owning.address(0), "large"))
        plain_s = asyncio.run(described(owning.address(0), "large", topology=False, calls=50))
        whole_s = asyncio.run(described(owning.address(0), "large", topology=True, calls=50))
    base = statistics.median(costs["0, passed"])
    lines = [
        f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, `python -m bench.heartbeats`, "
        f"{rounds} rounds of {calls} heartbeats each. " + ", ".join(f"{k} {v}" for k, v in machine.facts().items()),
        "",
        "| heartbeat, version | CPU us a call, median | rounds | added us |",
        "|---|---:|---|---:|",
    ]
    for way, found in costs.items():
        middle = statistics.median(found)
        spread = ", ".join(f"{one:.1f}" for one in found)
        lines.append(f"| {way} | {middle:.1f} | {spread} | {middle - base:.1f} |")
    lines += [
        "",
        "| call | ms |",
        "|---|---:|",
        f"| push of 500 nodes | {push_s * 1000:.1f} |",
        f"| describe of {_MEMBERS} members, median of 50 | {plain_s * 1000:.1f} |",
        f"| the same with its topology of 500 nodes | {whole_s * 1000:.1f} |",
    ]
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.heartbeats", description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(given)
    print(run(calls=args.calls, rounds=args.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
