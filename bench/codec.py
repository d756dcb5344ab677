"""What decoding costs: one heartbeat of a Streams member, and the answer that describes a hundred of them.

The limits are those of the gateway's budget: 25 microseconds and 2.5 milliseconds.
"""

import statistics
import time
from collections.abc import Callable

from headgate.wire.codec import decode, encode
from headgate.wire.messages.streams import (
    Assignment,
    DescribedStreamsGroup,
    DescribedSubtopology,
    DescribedTopology,
    Endpoint,
    HeartbeatSubtopology,
    HeartbeatTopology,
    KeyValue,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupMember,
    TaskIds,
    TaskOffset,
    TopicInfo,
)

ROUNDS = 30


def joining_heartbeat() -> StreamsGroupHeartbeatRequest:
    """The largest heartbeat of a member's life: it joins, with its topology, tags and offsets."""
    changelog = TopicInfo(
        name="word-count-Counts-changelog",
        replication_factor=1,
        topic_configs=(KeyValue(key="cleanup.policy", value="compact"),),
    )
    repartition = TopicInfo(name="word-count-Counts-repartition", replication_factor=1)
    return StreamsGroupHeartbeatRequest(
        group_id="word-count",
        member_id="Zr6kCcS0Qf-8DeEy5PZy4w",
        instance_id="one",
        rack_id="rack-a",
        rebalance_timeout_ms=300_000,
        topology=HeartbeatTopology(
            subtopologies=(
                HeartbeatSubtopology(
                    subtopology_id="0",
                    source_topics=("streams-plaintext-input",),
                    repartition_sink_topics=("word-count-Counts-repartition",),
                ),
                HeartbeatSubtopology(
                    subtopology_id="1",
                    state_changelog_topics=(changelog,),
                    repartition_source_topics=(repartition,),
                ),
            ),
        ),
        active_tasks=(),
        standby_tasks=(),
        warmup_tasks=(),
        process_id="c0a8012e-47c1-4c3e-8f05-0d1c1e2f3a4b",
        user_endpoint=Endpoint(host="app-1.example", port=7070),
        client_tags=(KeyValue(key="zone", value="a"),),
        task_offsets=(TaskOffset(subtopology_id="1", partition=0, offset=12),),
        task_end_offsets=(TaskOffset(subtopology_id="1", partition=0, offset=14),),
    )


def described_group(members: int) -> StreamsGroupDescribeResponse:
    tasks = Assignment(
        active_tasks=(TaskIds(subtopology_id="0", partitions=(0, 1)), TaskIds(subtopology_id="1", partitions=(0, 1))),
        standby_tasks=(TaskIds(subtopology_id="1", partitions=(2,)),),
    )
    member = StreamsGroupMember(
        member_id="Zr6kCcS0Qf-8DeEy5PZy4w",
        member_epoch=7,
        rack_id="rack-a",
        client_id="word-count-9f0d-StreamThread-1-consumer",
        client_host="/192.168.1.46",
        process_id="c0a8012e-47c1-4c3e-8f05-0d1c1e2f3a4b",
        user_endpoint=Endpoint(host="app-1.example", port=7070),
        client_tags=(KeyValue(key="zone", value="a"),),
        task_offsets=(TaskOffset(subtopology_id="1", partition=0, offset=12),),
        task_end_offsets=(TaskOffset(subtopology_id="1", partition=0, offset=14),),
        assignment=tasks,
        target_assignment=tasks,
    )
    group = DescribedStreamsGroup(
        group_id="word-count",
        group_state="Stable",
        group_epoch=7,
        assignment_epoch=7,
        topology=DescribedTopology(
            subtopologies=(DescribedSubtopology(subtopology_id="0", source_topics=("streams-plaintext-input",)),)
        ),
        members=(member,) * members,
    )
    return StreamsGroupDescribeResponse(groups=(group,))


def microseconds(call: Callable[[], object], calls: int) -> tuple[float, float]:
    """Best and median CPU time of several rounds: neighbours on the machine do not count, their cache misses do."""
    call()
    taken = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(calls):
            call()
        taken.append((time.process_time() - start) / calls * 1e6)
    return min(taken), statistics.median(taken)


def main() -> dict[str, float]:
    """Print a line for each figure and give the medians by name, in microseconds."""
    heartbeat, answer = encode(joining_heartbeat(), 1), encode(described_group(100), 1)
    request, response = (
        decode(StreamsGroupHeartbeatRequest, 1, heartbeat),
        decode(StreamsGroupDescribeResponse, 1, answer),
    )
    steady = encode(StreamsGroupHeartbeatRequest(group_id="word-count", member_id="Zr6kCcS0Qf-8DeEy5PZy4w"), 1)
    figures = {}
    for name, size, calls, call in (
        ("decode a steady heartbeat", steady, 500, lambda: decode(StreamsGroupHeartbeatRequest, 1, steady)),
        ("decode a joining heartbeat", heartbeat, 500, lambda: decode(StreamsGroupHeartbeatRequest, 1, heartbeat)),
        ("encode a joining heartbeat", heartbeat, 500, lambda: encode(request, 1)),
        ("decode a describe of 100 members", answer, 5, lambda: decode(StreamsGroupDescribeResponse, 1, answer)),
        ("encode a describe of 100 members", answer, 5, lambda: encode(response, 1)),
    ):
        best, median = microseconds(call, calls)
        figures[name] = median
        print(f"{name}: {len(size)} bytes, best {best:.1f} us, median {median:.1f} us")
    return figures


if __name__ == "__main__":
    main()
