"""The comparisons themselves: a recording that was tampered with is found out, whatever was changed in it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.integration.equivalence.bench import Bench
from tests.support.clients.jvm import JavaClients
from tests.support.compare_across import Run, compare_across
from tests.support.compare_calls import Call, Conversation, Message, frames, read
from tests.support.compare_diff import Difference
from tests.support.compare_inside import addresses_seen, compare_inside
from tests.support.recorder import Chunk, Connection, Endpoint, Side

API_VERSIONS, METADATA, OFFSET_COMMIT, FETCH, FIND_COORDINATOR = 18, 3, 8, 1, 10
FETCHED = "Fetch"


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


Change = Callable[[list[bytes]], list[bytes]]


def changed(connection: Connection, side: Side, change: Change) -> Connection:
    """The same connection with other frames from one side."""
    was = frames(connection, side)
    new = change([frame.data for frame in was])
    at = was[-1].at
    chunks = [chunk for chunk in connection.chunks if chunk.side is not side or not chunk.data]
    chunks += [Chunk(at, side, len(data).to_bytes(4) + data) for data in new]
    return replace(connection, chunks=sorted(chunks, key=lambda chunk: (chunk.at, not chunk.data)))


def tampered(
    bench: Bench, connections: Sequence[Connection], side: Side, api_key: int, change: Callable[[bytes], bytes | None]
) -> list[Connection]:
    """The recording with the first frame of a call changed or, for None, taken out."""
    for index, conversation in enumerate(read(bench.oracle, connections)):
        for place, call in enumerate(conversation.calls):
            if call.api_key != api_key:
                continue
            frame = frames(connections[index], side)[place].data
            new = change(frame)
            if new == frame:
                continue

            def put(data: list[bytes], place: int = place, new: bytes | None = new) -> list[bytes]:
                return [*data[:place], *([] if new is None else [new]), *data[place + 1 :]]

            return [*connections[:index], changed(connections[index], side, put), *connections[index + 1 :]]
    raise AssertionError(f"no frame of call {api_key} could be changed")


def test_an_untouched_recording_has_no_difference(bench: Bench, recorded: Recorded) -> None:
    assert not inside(bench, recorded.clients, recorded.broker)
    calls = {call.api_key for one in read(bench.oracle, recorded.clients) for call in one.calls}
    assert {API_VERSIONS, METADATA, OFFSET_COMMIT, FETCH, FIND_COORDINATOR} <= calls


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


@pytest.mark.parametrize("api_key", [OFFSET_COMMIT, METADATA, API_VERSIONS])
def test_one_changed_bit_in_an_answer_is_found(bench: Bench, recorded: Recorded, api_key: int) -> None:
    def flip(frame: bytes) -> bytes:
        # Behind the correlation id, and the header's tags where there are any, come throttle time or error code.
        return frame[:7] + bytes((frame[7] ^ 1,)) + frame[8:]

    clients = tampered(bench, recorded.clients, Side.SERVER, api_key, flip)
    [difference] = inside(bench, clients, recorded.broker)
    assert "answer" in difference.where


def test_one_changed_bit_in_a_request_is_found(bench: Bench, recorded: Recorded) -> None:
    def other_group(frame: bytes) -> bytes:
        return frame.replace(b"eq-tampered-group", b"eq-tampered-froup")

    broker = tampered(bench, recorded.broker, Side.CLIENT, OFFSET_COMMIT, other_group)
    [difference] = inside(bench, recorded.clients, broker)
    assert "request" in difference.where
    assert "froup" in difference.what


def test_bytes_that_are_in_no_field_are_found(bench: Bench, recorded: Recorded) -> None:
    def tag(frame: bytes) -> bytes:
        # One unknown tagged field, number 10000, empty, instead of no tagged field at the end of the message.
        return frame[:-1] + b"\x01\x90\x4e\x00"

    clients = tampered(bench, recorded.clients, Side.SERVER, OFFSET_COMMIT, tag)
    [difference] = inside(bench, clients, recorded.broker)
    assert "the same tree in other bytes" in difference.what
    clients = tampered(bench, recorded.clients, Side.SERVER, METADATA, tag)
    [difference] = inside(bench, clients, recorded.broker)
    assert "bytes that are in no field" in difference.what


@pytest.mark.parametrize("lost_by", [Side.CLIENT, Side.SERVER])
def test_a_call_that_is_lost_on_the_way_is_found(bench: Bench, recorded: Recorded, lost_by: Side) -> None:
    """Once from the broker's recording as a request, once from the clients' as their last answer."""
    if lost_by is Side.CLIENT:
        broker = _without_last_call(recorded.broker)
        assert inside(bench, recorded.clients, broker)
        return
    clients = [
        replace(changed(one, Side.SERVER, lambda data: data[:-1]), reset_by=Side.SERVER)
        if frames(one, Side.SERVER)
        else one
        for one in recorded.clients
    ]
    for one in clients:
        one.chunks = [chunk for chunk in one.chunks if chunk.data]
    found = inside(bench, clients, recorded.broker)
    assert found
    assert all("the client got none" in difference.what for difference in found)


def _without_last_call(connections: Sequence[Connection]) -> list[Connection]:
    index = max(range(len(connections)), key=lambda place: len(connections[place].chunks))
    shorter = connections[index]
    for side in Side:
        shorter = changed(shorter, side, lambda data: data[:-1])
    return [*connections[:index], shorter, *connections[index + 1 :]]


def test_a_call_of_nobody_is_found(bench: Bench, recorded: Recorded) -> None:
    """A whole connection to the broker without a client: somebody went past the gateway, or it acts for itself."""
    stranger = next(one for one in recorded.broker if frames(one, Side.CLIENT))
    [difference] = inside(bench, recorded.clients, [*recorded.broker, stranger])
    assert "asked by nobody" in difference.what


# Across runs.


def across(bench: Bench, recorded: Recorded, clients: Sequence[Conversation]) -> list[Difference]:
    return compare_across(Run(recorded.direct, bench.nodes_direct), Run(clients, bench.nodes_through))


def with_calls(
    conversations: Sequence[Conversation], api_name: str, change: Callable[[Call], Call | None]
) -> list[Conversation]:
    """The run with the first call of a name that can be changed, changed or taken out."""
    for index, conversation in enumerate(conversations):
        for place, call in enumerate(conversation.calls):
            if call.api_name == api_name and call.answer is not None and (new := change(call)) != call:
                calls = [*conversation.calls]
                calls[place : place + 1] = [] if new is None else [new]
                return [*conversations[:index], replace(conversation, calls=tuple(calls)), *conversations[index + 1 :]]
    raise AssertionError(f"no call {api_name} could be changed")


def answering(call: Call, body: Any) -> Call:
    assert call.answer is not None
    answer: Message = replace(call.answer, body=body)
    return replace(call, answer=answer)


@contextmanager
def found(bench: Bench, recorded: Recorded, *words: str) -> Iterator[Callable[[list[Conversation]], None]]:
    """What is handed over must differ from the direct run, and the report must say where."""
    texts: list[str] = []

    def look(conversations: list[Conversation]) -> None:
        texts.append("\n".join(str(one) for one in across(bench, recorded, conversations)))

    yield look
    assert texts
    assert all(word in text for word in words for text in texts), texts


def test_equal_runs_have_no_difference(bench: Bench, recorded: Recorded) -> None:
    assert not across(bench, recorded, read(bench.oracle, recorded.clients))


def test_an_error_code_in_one_run_is_found(bench: Bench, recorded: Recorded) -> None:
    clients = read(bench.oracle, recorded.clients)
    with found(bench, recorded, "DeleteGroups by admin", '"errorCode": 69') as look:
        look(
            with_calls(
                clients,
                "DeleteGroups",
                lambda call: answering(
                    call, _deep(call.answer, lambda name, value: 69 if name == "errorCode" else value)
                ),
            )
        )


def test_an_error_code_in_a_polled_answer_is_found(bench: Bench, recorded: Recorded) -> None:
    clients = read(bench.oracle, recorded.clients)
    with found(bench, recorded, "Metadata", '"errorCode": 5') as look:
        look(
            with_calls(
                clients,
                "Metadata",
                lambda call: answering(
                    call, _deep(call.answer, lambda name, value: 5 if name == "errorCode" else value)
                ),
            )
        )


def test_a_call_more_or_less_is_found(bench: Bench, recorded: Recorded) -> None:
    clients = read(bench.oracle, recorded.clients)
    with found(bench, recorded, "OffsetCommit") as look:
        look(with_calls(clients, "OffsetCommit", lambda _: None))
    twice = next(one for one in clients if any(call.api_name == "OffsetCommit" for call in one.calls))
    with found(bench, recorded, "OffsetCommit") as look:
        look([*clients, twice])


def test_a_version_that_only_one_run_used_is_found(bench: Bench, recorded: Recorded) -> None:
    clients = read(bench.oracle, recorded.clients)
    with found(bench, recorded, "versions used: Fetch") as look:
        look(
            with_calls(
                clients, FETCHED, lambda call: replace(call, request=replace(call.request, version=call.version - 1))
            )
        )


def test_a_record_that_differs_is_found(bench: Bench, recorded: Recorded) -> None:
    clients = read(bench.oracle, recorded.clients)
    with found(bench, recorded, "records read", "dHJ1ZQ==") as look:
        look(
            with_calls(
                clients,
                FETCHED,
                lambda call: answering(
                    call,
                    _deep(call.answer, lambda name, value: "dHJ1ZQ==" if (name, value) == ("value", "djA=") else value),
                ),
            )
        )


def test_a_volatile_value_of_another_type_is_found(bench: Bench, recorded: Recorded) -> None:
    """A member id may be any member id, but it must be one."""
    clients = read(bench.oracle, recorded.clients)
    with found(bench, recorded, "JoinGroup", '"memberId": ""') as look:
        look(
            with_calls(
                clients,
                "JoinGroup",
                lambda call: answering(
                    call, _deep(call.answer, lambda name, value: "" if name == "memberId" else value)
                ),
            )
        )


def test_an_address_that_is_not_the_runs_own_is_found(bench: Bench, recorded: Recorded) -> None:
    clients = read(bench.oracle, recorded.clients)
    with found(bench, recorded, "Metadata", bench.brokers[0].host) as look:
        look(
            with_calls(
                clients,
                "Metadata",
                lambda call: answering(call, _moved(call.answer, bench.brokers[0])),
            )
        )


def _deep(message: Message | None, change: Callable[[str, Any], Any]) -> Any:
    """The body with every field passed through `change`."""
    assert message is not None

    def walk(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: change(key, walk(value)) for key, value in tree.items()}
        return [walk(item) for item in tree] if isinstance(tree, list) else tree

    return walk(message.body)


def _moved(message: Message | None, endpoint: Endpoint) -> Any:
    def at(name: str, value: Any) -> Any:
        return {"host": endpoint.host, "port": endpoint.port}.get(name, value)

    return _deep(message, at)
