"""The comparisons themselves: a recording that was tampered with is found out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.integration.equivalence.bench import Bench
from tests.support.clients.jvm import JavaClients
from tests.support.compare_across import Run, compare_across
from tests.support.compare_calls import Call, Conversation, Difference, frames, read
from tests.support.compare_inside import addresses_seen, compare_inside
from tests.support.recorder import Chunk, Connection, Side

METADATA, OFFSET_COMMIT, FIND_COORDINATOR, API_VERSIONS = 3, 8, 10, 18


@dataclass(frozen=True, slots=True)
class Recorded:
    """One script in both runs; the run through the gateway is kept as bytes."""

    direct: Sequence[Conversation]
    clients: Sequence[Connection]
    broker: Sequence[Connection]


@pytest.fixture(scope="module")
def recorded(bench: Bench, java_44: JavaClients) -> Recorded:
    def script(bootstrap: str) -> None:
        java_44.run("classic-consumer", bootstrap, "eq-tampered")

    direct = bench.direct(script)
    clients, broker = bench.record_through(script)
    return Recorded(direct, clients, broker)


def inside(bench: Bench, clients: Sequence[Connection], broker: Sequence[Connection]) -> list[Difference]:
    return compare_inside(read(bench.oracle, clients), read(bench.oracle, broker), bench.seen_gateway)


def changed(connection: Connection, side: Side, change: Callable[[list[bytes]], list[bytes]]) -> Connection:
    """The same connection with other frames from one side."""
    was = frames(connection, side)
    chunks = [chunk for chunk in connection.chunks if chunk.side is not side or not chunk.data]
    chunks += [Chunk(was[-1].at, side, len(data).to_bytes(4) + data) for data in change([one.data for one in was])]
    return replace(connection, chunks=sorted(chunks, key=lambda chunk: (chunk.at, not chunk.data)))


def tampered(
    bench: Bench, connections: Sequence[Connection], side: Side, api_key: int, change: Callable[[bytes], bytes]
) -> list[Connection]:
    """The recording with the first frame of an api that can be changed, changed."""
    for index, conversation in enumerate(read(bench.oracle, connections)):
        for place, call in enumerate(conversation.calls):
            frame = frames(connections[index], side)[place].data if call.api_key == api_key else b""
            if frame and (new := change(frame)) != frame:
                was = [one.data for one in frames(connections[index], side)]
                was[place] = new
                other = changed(connections[index], side, lambda _, was=was: was)  # type: ignore[misc]
                return [*connections[:index], other, *connections[index + 1 :]]
    raise AssertionError(f"no frame of api key {api_key} could be changed")


def test_an_untouched_recording_has_no_difference(bench: Bench, recorded: Recorded) -> None:
    assert not inside(bench, recorded.clients, recorded.broker)
    assert not across(bench, recorded, read(bench.oracle, recorded.clients))


@pytest.mark.parametrize("api_key", [METADATA, FIND_COORDINATOR])
def test_an_address_that_leaks_is_found(bench: Bench, recorded: Recorded, api_key: int) -> None:
    ours, brokers = bench.seen_gateway.address(0), bench.brokers[0]

    def leak(frame: bytes) -> bytes:
        return frame.replace(
            ours.host.encode() + ours.port.to_bytes(4), brokers.host.encode() + brokers.port.to_bytes(4)
        )

    clients = tampered(bench, recorded.clients, Side.SERVER, api_key, leak)
    assert "127.0.0.2" in str(inside(bench, clients, recorded.broker)[0])
    assert addresses_seen(read(bench.oracle, clients)) == {ours, brokers}


# Behind the correlation id, and the header's tags where there are any, is the throttle time or the error code.
FLIP = ("answer", lambda frame: frame[:7] + bytes((frame[7] ^ 1,)) + frame[8:])
# An unknown tagged field, number 10000, empty, instead of no tagged field at the end of the message.
TAG = lambda frame: frame[:-1] + b"\x01\x90\x4e\x00"  # noqa: E731


@pytest.mark.parametrize(
    ("api_key", "word", "change"),
    [
        (OFFSET_COMMIT, *FLIP),
        (METADATA, *FLIP),
        (API_VERSIONS, *FLIP),
        (OFFSET_COMMIT, "the same tree in other bytes", TAG),
        (METADATA, "bytes that are in no field", TAG),
    ],
)
def test_a_changed_response_is_found(
    bench: Bench, recorded: Recorded, api_key: int, word: str, change: Callable[[bytes], bytes]
) -> None:
    clients = tampered(bench, recorded.clients, Side.SERVER, api_key, change)
    [difference] = inside(bench, clients, recorded.broker)
    assert word in f"{difference.where} {difference.what}"


def test_a_changed_request_is_found(bench: Bench, recorded: Recorded) -> None:
    def other_group(frame: bytes) -> bytes:
        return frame.replace(b"eq-tampered-group", b"eq-tampered-froup")

    broker = tampered(bench, recorded.broker, Side.CLIENT, OFFSET_COMMIT, other_group)
    [difference] = inside(bench, recorded.clients, broker)
    assert "request" in difference.where
    assert "froup" in difference.what


def test_a_lost_or_added_exchange_is_found(bench: Bench, recorded: Recorded) -> None:
    index = max(range(len(recorded.broker)), key=lambda place: len(recorded.broker[place].chunks))
    shorter = recorded.broker[index]
    for side in Side:
        shorter = changed(shorter, side, lambda data: data[:-1])
    assert inside(bench, recorded.clients, [*recorded.broker[:index], shorter, *recorded.broker[index + 1 :]])
    stranger = next(one for one in recorded.broker if frames(one, Side.CLIENT))
    [difference] = inside(bench, recorded.clients, [*recorded.broker, stranger])
    assert "asked by nobody" in difference.what


# Across runs.


def across(bench: Bench, recorded: Recorded, clients: Sequence[Conversation]) -> list[Difference]:
    return compare_across(Run(recorded.direct, bench.nodes_direct), Run(clients, bench.nodes_through))


def fields(change: Callable[[str, Any], Any]) -> Callable[[Call], Call]:
    """The exchange with every field of its response passed through `change`."""

    def walk(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: change(key, walk(value)) for key, value in tree.items()}
        return [walk(item) for item in tree] if isinstance(tree, list) else tree

    def apply(call: Call) -> Call:
        assert call.answer is not None
        return replace(call, answer=replace(call.answer, body=walk(call.answer.body)))

    return apply


@pytest.mark.parametrize(
    ("api_name", "words", "change"),
    [
        ("DeleteGroups", ("by admin", '"errorCode": 69'), fields(lambda name, was: 69 if name == "errorCode" else was)),
        ("Metadata", ("Metadata", '"errorCode": 5'), fields(lambda name, was: 5 if name == "errorCode" else was)),
        ("OffsetCommit", ("OffsetCommit",), lambda _: None),
        (
            "Fetch",
            ("versions used: Fetch",),
            lambda call: replace(call, request=replace(call.request, version=call.version - 1)),
        ),
        (
            "Fetch",
            ("records read", "dHJ1ZQ=="),
            fields(lambda name, was: "dHJ1ZQ==" if (name, was) == ("value", "djA=") else was),
        ),
        # A member id may be any member id, but it must be one.
        ("JoinGroup", ("JoinGroup", '"memberId": ""'), fields(lambda name, was: "" if name == "memberId" else was)),
        ("Metadata", ("Metadata", "192.0.2.7"), fields(lambda name, was: "192.0.2.7" if name == "host" else was)),
    ],
)
def test_a_run_that_differs_is_found(
    bench: Bench, recorded: Recorded, api_name: str, words: tuple[str, ...], change: Callable[[Call], Call | None]
) -> None:
    conversations = read(bench.oracle, recorded.clients)
    for index, conversation in enumerate(conversations):
        for place, call in enumerate(conversation.calls):
            if call.api_name == api_name and call.answer is not None and (new := change(call)) != call:
                calls = [*conversation.calls]
                calls[place : place + 1] = [] if new is None else [new]
                conversations[index] = replace(conversation, calls=tuple(calls))
                text = "\n".join(map(str, across(bench, recorded, conversations)))
                assert all(word in text for word in words), text
                return
    raise AssertionError(f"no exchange of {api_name} could be changed")
