"""A push of the Python member has the bytes that Kafka's own classes write for the same topology."""

from typing import Any

import pytest

from headgate.client import (
    Description,
    GlobalStore,
    ProcessorNode,
    SinkNode,
    SourceNode,
    Subtopology,
    TopologyPush,
)
from headgate.wire.codec import encode
from headgate.wire.messages.streams import StreamsGroupHeartbeatResponse
from tests.support.oracle import Oracle

PUSH = 93


def node(name: str, kind: int, **more: Any) -> dict[str, Any]:
    """As Kafka's JSON form of the message has it."""
    fields: dict[str, Any] = {"sourceTopics": [], "sinkTopic": None, "stores": [], "successors": []}
    return {"name": name, "nodeType": kind, **fields, **more}


CASES = {
    "empty": (Description(), {"subtopologies": [], "globalStores": []}),
    "every kind of node": (
        Description(
            subtopologies=(
                Subtopology(
                    id="0",
                    nodes=(
                        SourceNode(name="read", topics=("b", "a"), successors=("total", "copy")),
                        ProcessorNode(name="total", stores=("z", "y"), successors=("out",)),
                        SinkNode(name="out", topic="bills"),
                        SinkNode(name="copy", topic=None),
                    ),
                ),
                Subtopology(id="1", nodes=(SourceNode(name="pattern"),)),
            ),
            global_stores=(
                GlobalStore(
                    source=SourceNode(name="rates-source", topics=("rates",), successors=("rates-update",)),
                    processor=ProcessorNode(name="rates-update", stores=("rates",)),
                ),
            ),
        ),
        {
            "subtopologies": [
                {
                    "subtopologyId": "0",
                    "nodes": [
                        node("read", 1, sourceTopics=["b", "a"], successors=["total", "copy"]),
                        node("total", 2, stores=["z", "y"], successors=["out"]),
                        node("out", 3, sinkTopic="bills"),
                        node("copy", 3),
                    ],
                },
                {"subtopologyId": "1", "nodes": [node("pattern", 1)]},
            ],
            "globalStores": [
                {
                    "source": node("rates-source", 1, sourceTopics=["rates"], successors=["rates-update"]),
                    "processor": node("rates-update", 2, stores=["rates"]),
                }
            ],
        },
    ),
    "names": (
        Description(subtopologies=(Subtopology(id="", nodes=(SourceNode(name="é\U0001f600\0\n", topics=("",)),)),)),
        {
            "subtopologies": [
                {"subtopologyId": "", "nodes": [node("é\U0001f600\0\n", 1, sourceTopics=[""])]},
            ],
            "globalStores": [],
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_push_has_the_bytes_of_the_java_client(case: str, oracle: Oracle) -> None:
    description, tree = CASES[case]
    push = TopologyPush("group", description, topology_epoch=7)
    push.on_heartbeat(StreamsGroupHeartbeatResponse(topology_description_required=True))
    request = push.next_request(0, member_id="member")
    assert request is not None
    wanted = {"groupId": "group", "memberId": "member", "topologyEpoch": 7, "topologyDescription": tree}
    assert encode(request, 0) == oracle.encode("request", PUSH, 0, wanted)
