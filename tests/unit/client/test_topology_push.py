"""The client table of KIP-1331, by a clock that the test moves."""

import pytest

from headgate.client import Description, PushResult, SinkNode, SourceNode, Subtopology, TopologyPush
from headgate.topologies.wire_descriptions import to_wire
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.streams import (
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

DESCRIPTION = Description(
    subtopologies=(
        Subtopology(
            id="0",
            nodes=(
                SourceNode(name="read", topics=("orders",), successors=("write",)),
                SinkNode(name="write", topic="bills"),
            ),
        ),
    )
)
ASKED = StreamsGroupHeartbeatResponse(topology_description_required=True)
NOT_ASKED = StreamsGroupHeartbeatResponse()


def pushes(description: Description | None = DESCRIPTION) -> TopologyPush:
    return TopologyPush("g", description, topology_epoch=3, jitter=lambda: 1.0)


def answered(code: int = 0, throttle_ms: int = 0) -> StreamsGroupTopologyDescriptionUpdateResponse:
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=code, throttle_time_ms=throttle_ms)


def in_flight() -> TopologyPush:
    push = pushes()
    push.on_heartbeat(ASKED)
    assert push.next_request(0, member_id="m") is not None
    return push


def test_a_member_that_is_asked_sends_its_description_once() -> None:
    push = pushes()
    assert push.next_request(0, member_id="m") is None
    push.on_heartbeat(ASKED)
    request = push.next_request(0, member_id="m")
    assert request is not None
    assert (request.group_id, request.member_id, request.topology_epoch) == ("g", "m", 3)
    assert request.topology_description == to_wire(DESCRIPTION)
    assert push.next_request(100, member_id="m") is None, "one is in flight"
    assert push.on_response(0.1, answered()) is PushResult.STORED
    assert push.next_request(100, member_id="m") is None


@pytest.mark.parametrize("known", [{"member_id": ""}, {"member_id": "m", "has_coordinator": False}])
def test_without_a_member_id_or_a_coordinator_it_waits(known: dict[str, object]) -> None:
    push = pushes()
    push.on_heartbeat(ASKED)
    assert push.next_request(0, **known) is None  # type: ignore[arg-type]
    assert push.next_request(0, member_id="m") is not None


def test_a_member_without_a_description_ignores_that_it_is_asked() -> None:
    push = pushes(None)
    push.on_heartbeat(ASKED)
    assert not push.is_required
    assert push.next_request(0, member_id="m") is None
    assert push.wait_s(0) is None


def test_a_heartbeat_with_an_error_does_not_ask() -> None:
    push = pushes()
    push.on_heartbeat(StreamsGroupHeartbeatResponse(error_code=14, topology_description_required=True))
    assert push.next_request(0, member_id="m") is None


def test_a_heartbeat_that_does_not_ask_takes_nothing_back() -> None:
    push = pushes()
    push.on_heartbeat(ASKED)
    push.on_heartbeat(NOT_ASKED)
    assert push.next_request(0, member_id="m") is not None


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ErrorCode.NOT_COORDINATOR, PushResult.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, PushResult.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, PushResult.RETRY),
    ],
)
def test_errors_that_pass_are_retried_after_the_back_off(code: int, outcome: PushResult) -> None:
    push = in_flight()
    assert push.on_response(1.0, answered(code)) is outcome
    assert push.is_required
    assert push.wait_s(1.0) == pytest.approx(0.1)
    assert push.next_request(1.09, member_id="m") is None
    assert push.next_request(1.11, member_id="m") is not None


def test_a_disconnect_is_retried_and_the_back_off_grows_to_its_longest() -> None:
    push = in_flight()
    waits = []
    for at in range(1, 8):
        assert push.on_disconnect(at * 10) is PushResult.FIND_COORDINATOR
        waits.append(push.wait_s(at * 10))
        assert push.next_request(at * 10 + 5, member_id="m") is not None
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, PushResult.REJOIN),
        (ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, PushResult.REFUSED),
        (ErrorCode.INVALID_REQUEST, PushResult.REFUSED),
        (ErrorCode.UNSUPPORTED_VERSION, PushResult.REFUSED),
        (ErrorCode.GROUP_ID_NOT_FOUND, PushResult.REFUSED),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, PushResult.REFUSED),
        (12345, PushResult.REFUSED),
    ],
)
def test_other_errors_are_not_retried_until_a_heartbeat_asks_again(code: int, outcome: PushResult) -> None:
    push = in_flight()
    assert push.on_response(1.0, answered(code)) is outcome
    assert push.next_request(1e6, member_id="m") is None
    push.on_heartbeat(ASKED)
    assert push.next_request(1e6, member_id="m") is not None


def test_a_coordinator_without_the_request_is_not_asked_again() -> None:
    push = in_flight()
    assert push.on_unsupported(1.0) is PushResult.REFUSED
    assert push.next_request(1e6, member_id="m") is None


@pytest.mark.parametrize("code", [0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_throttle_time_delays_the_next_push(code: int) -> None:
    push = in_flight()
    push.on_response(1.0, answered(code, throttle_ms=5_000))
    push.on_heartbeat(ASKED)
    assert push.next_request(5.9, member_id="m") is None
    assert push.next_request(6.1, member_id="m") is not None


def test_a_success_resets_the_back_off() -> None:
    push = in_flight()
    for at in (1, 2, 3):
        push.on_disconnect(at)
        assert push.next_request(at + 0.9, member_id="m") is not None
    push.on_response(4, answered())
    push.on_heartbeat(ASKED)
    assert push.wait_s(4) == pytest.approx(0.1)
