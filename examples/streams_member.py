"""A member of a streams group in Python: it joins, is asked for its topology, and pushes it.

    python examples/streams_member.py --bootstrap-server 127.0.0.1:9092 --group bills --topic orders

It runs until it is interrupted, and then leaves the group.
"""

import argparse
import asyncio
import logging
import signal

from headgate.client import (
    Description,
    GatewayClient,
    HeartbeatSubtopology,
    HeartbeatTopology,
    ProcessorNode,
    SinkNode,
    SourceNode,
    StreamsMember,
    Subtopology,
)


def topology(topic: str) -> HeartbeatTopology:
    """What the coordinator needs to assign tasks: one sub-topology that reads the topic."""
    return HeartbeatTopology(epoch=0, subtopologies=(HeartbeatSubtopology(subtopology_id="0", source_topics=(topic,)),))


def description(topic: str) -> Description:
    """What operators see of the application."""
    nodes = (
        SourceNode(name="orders", topics=(topic,), successors=("total",)),
        ProcessorNode(name="total", stores=("totals",), successors=("bills",)),
        SinkNode(name="bills", topic="bills"),
    )
    return Description(subtopologies=(Subtopology(id="0", nodes=nodes),))


async def run(bootstrap_servers: str, group: str, topic: str) -> None:
    client = GatewayClient(bootstrap_servers)
    member = StreamsMember(client.dialler, group, topology=topology(topic), description=description(topic))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, member.stop)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(member.run())
        announcing = tasks.create_task(announce(member))
        await running
        announcing.cancel()


async def announce(member: StreamsMember) -> None:
    await member.pushed.wait()
    print(f"pushed as {member.member_id}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    asyncio.run(run(args.bootstrap_server, args.group, args.topic))


if __name__ == "__main__":
    main()
