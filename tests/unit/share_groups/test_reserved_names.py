"""Requests for the names of Headgate's own workers: refused to every client, whatever form they have."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.decoding import run_off_loop
from headgate.proxy.interceptor import CloseCause
from headgate.share_groups import reserved_names
from headgate.share_groups.feature import ReservedNames
from headgate.share_groups.reserved_names import API_KEYS, LARGEST_DECODED, begins_with
from headgate.wire.apis import has_flexible_request
from headgate.wire.codec import decode, encode
from headgate.wire.messages.data import ProducePartition, ProduceRequest, ProduceTopic
from headgate.wire.messages.groups import (
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from headgate.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from headgate.wire.schema import Message
from tests.support.fake_upstream import BROKER_VERSIONS, Broker, Client, body_of, request
from tests.support.messages import REQUESTS
from tests.unit.proxy.stage import Stage, stage, turns

GROUP, LAGS_GROUP, TRANSACTIONAL_ID = "headgate.leader", "headgate.lags-leader", "headgate.trips"
GROUP_DENIED, TRANSACTION_DENIED = 30, 53
BOTH = (ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT)
OF_TRANSACTION = (
    ApiKey.PRODUCE,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.END_TXN,
    *BOTH,
)
every_key = pytest.mark.parametrize("key", API_KEYS, ids=lambda key: key.name)


def versions(key: int) -> range:
    low, high = BROKER_VERSIONS[key]
    return range(max(low, 3 if key == ApiKey.PRODUCE else 0), high + 1)


def asking(key: int, version: int, group: str = "g", transactional_id: str = "t") -> Message:
    """A request with these names, and with one partition where it has partitions."""
    match key:
        case ApiKey.DELETE_GROUPS:
            return DeleteGroupsRequest(groups_names=(group,))
        case ApiKey.ADD_PARTITIONS_TO_TXN:
            topics = (AddPartitionsToTxnTopic(name="orders", partitions=(1,)),)
            if version < 4:
                return AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=transactional_id, v3_and_below_topics=topics
                )
            one = AddPartitionsToTxnTransaction(transactional_id=transactional_id, topics=topics)
            return AddPartitionsToTxnRequest(transactions=(one,))
        case ApiKey.PRODUCE:
            partition = ProducePartition(index=1, records=b"x" * 9)
            topic = ProduceTopic(name="orders", topic_id=b"t" * 16, partition_data=(partition,))
            return ProduceRequest(transactional_id=transactional_id, acks=-1, topic_data=(topic,))
        case ApiKey.OFFSET_COMMIT:
            committed = OffsetCommitPartition(partition_index=1)
            return OffsetCommitRequest(
                group_id=group, topics=(OffsetCommitTopic(name="orders", topic_id=b"t" * 16, partitions=(committed,)),)
            )
        case ApiKey.TXN_OFFSET_COMMIT:
            in_transaction = TxnOffsetCommitPartition(partition_index=1)
            return TxnOffsetCommitRequest(
                transactional_id=transactional_id,
                group_id=group,
                topics=(TxnOffsetCommitTopic(name="orders", topic_id=b"t" * 16, partitions=(in_transaction,)),),
            )
    cls: Any = REQUESTS[key]
    names = {"group_id": group, "transactional_id": transactional_id}
    return cls(**{name: value for name, value in names.items() if name in {one.name for one in fields(cls)}})  # type: ignore[no-any-return]


def reserved(key: int, version: int) -> list[tuple[Message, int]]:
    """The requests with a reserved name, and the error that each gets."""
    found = []
    if key in OF_TRANSACTION:
        found.append((asking(key, version, transactional_id=TRANSACTIONAL_ID), TRANSACTION_DENIED))
    if key not in OF_TRANSACTION or key in BOTH:
        found += [(asking(key, version, group=name), GROUP_DENIED) for name in (GROUP, LAGS_GROUP)]
    if key in BOTH:
        found.append((asking(key, version, GROUP, TRANSACTIONAL_ID), TRANSACTION_DENIED))
    return found


def codes(value: Any) -> set[int]:
    """All error codes in a response that are not 0."""
    if isinstance(value, tuple):
        return {code for one in value for code in codes(one)}
    if not is_dataclass(value):
        return set()
    found: set[int] = set()
    for one in fields(value):
        inside = getattr(value, one.name)
        found |= {inside} if one.name.endswith("error_code") and inside else codes(inside)
    return found


def answer_of(frame: bytes, key: int, version: int) -> Message:
    answer: Message = decode(REQUESTS[key].response_class(), version, body_of(frame, key, version))
    return answer


@asynccontextmanager
async def gateway(**settings: Any) -> AsyncIterator[tuple[Stage, Client, Broker]]:
    async with stage(*ReservedNames("headgate.").interceptors, **settings) as on:
        client, broker = await on.pair()
        # The broker's own versions decide the routes; the connection is proved.
        await client.send(request(ApiKey.LIST_GROUPS, 0))
        await broker.reply()
        await client.frame()
        yield on, client, broker


@every_key
async def test_reserved_names_are_refused_in_every_version(key: ApiKey) -> None:
    async with gateway() as (_, client, broker):
        for version in versions(key):
            for message, code in reserved(key, version):
                await client.send(request(key, version, message))
                answer = answer_of(await client.frame(), key, version)
                assert codes(answer) == {code}, (version, message)
        assert await broker.is_quiet(), "the broker never hears of them"


@every_key
async def test_other_names_pass_byte_for_byte(key: ApiKey) -> None:
    async with gateway() as (on, client, broker):
        for version in versions(key):
            for name in (
                "",
                "g",
                "headgate.",
                "headgate.leader2",
                "headgate.lags-leade",
                "headgate.trip",
                "x" * 15,
                "x" * 200,
            ):
                sent = request(key, version, asking(key, version, name, name))
                await client.send(sent)
                assert (await broker.reply()).frame == sent
                await client.frame()
        opened = sum(route.opened_calls for route in on.gateway.routes.used() if route.api_key == key)
        has_several = key in (ApiKey.DELETE_GROUPS, ApiKey.ADD_PARTITIONS_TO_TXN)
        assert opened == 0 or has_several, "they are not even gathered"


@every_key
async def test_a_request_that_arrives_byte_by_byte_is_refused_too(key: ApiKey) -> None:
    version = versions(key)[-1]
    async with gateway() as (_, client, broker):
        for message, code in reserved(key, version):
            for byte in request(key, version, message):
                await client.send(bytes((byte,)))
            assert codes(answer_of(await client.frame(), key, version)) == {code}
        assert await broker.is_quiet()


@every_key
async def test_other_forms_of_the_same_name_are_refused(key: ApiKey) -> None:
    """A broker reads sizes that are longer than they have to be, and header tags."""
    version = versions(key)[-1]
    if not has_flexible_request(key, version):
        return
    async with gateway() as (_, client, broker):
        for message, code in reserved(key, version):
            body = encode(message, version)
            for name in (GROUP.encode(), LAGS_GROUP.encode(), TRANSACTIONAL_ID.encode()):
                size = len(name) + 1
                body = body.replace(bytes((size,)) + name, bytes((size | 0x80, 0x80, 0x00)) + name)
            assert body != encode(message, version)
            for tags in (b"\x00", b"\x01\x07\x02ab"):
                await client.send(request(key, version, body, tags=tags))
                assert codes(answer_of(await client.frame(), key, version)) == {code}
        assert await broker.is_quiet()


async def test_of_several_groups_only_the_reserved_ones_are_refused() -> None:
    key = ApiKey.DELETE_GROUPS
    async with gateway() as (_, client, broker):
        for version in versions(key):
            await client.send(request(key, version, DeleteGroupsRequest(groups_names=("a", LAGS_GROUP, GROUP, "b"))))
            asked = await broker.request()
            assert decode(DeleteGroupsRequest, version, asked.body).groups_names == ("a", "b")
            deleted = (DeletedGroup(group_id="b"), DeletedGroup(group_id="a", error_code=69))
            await broker.send(asked.answer(DeleteGroupsResponse(throttle_time_ms=5, results=deleted)))
            answer = answer_of(await client.frame(), key, version)
            assert isinstance(answer, DeleteGroupsResponse)
            assert answer.throttle_time_ms == 5
            refused = tuple(DeletedGroup(group_id=name, error_code=GROUP_DENIED) for name in (GROUP, LAGS_GROUP))
            assert answer.results == (*deleted, *refused)


async def test_of_several_transactions_only_the_reserved_one_is_refused() -> None:
    key = ApiKey.ADD_PARTITIONS_TO_TXN
    topics = (AddPartitionsToTxnTopic(name="orders", partitions=(1, 2)),)
    async with gateway() as (_, client, broker):
        for version in (4, 5):
            transactions = tuple(
                AddPartitionsToTxnTransaction(transactional_id=name, topics=topics)
                for name in ("a", TRANSACTIONAL_ID, "b")
            )
            await client.send(request(key, version, AddPartitionsToTxnRequest(transactions=transactions)))
            asked = await broker.request()
            assert decode(AddPartitionsToTxnRequest, version, asked.body).transactions == transactions[::2]
            added = tuple(AddPartitionsToTxnResult(transactional_id=name) for name in ("a", "b"))
            await broker.send(asked.answer(AddPartitionsToTxnResponse(results_by_transaction=added)))
            answer = answer_of(await client.frame(), key, version)
            assert isinstance(answer, AddPartitionsToTxnResponse)
            assert answer.results_by_transaction[:2] == added
            [refused] = answer.results_by_transaction[2:]
            assert (refused.transactional_id, codes(refused)) == (TRANSACTIONAL_ID, {TRANSACTION_DENIED})
            [topic] = refused.topic_results
            assert (topic.name, [one.partition_index for one in topic.results_by_partition]) == ("orders", [1, 2])


async def test_thousands_of_transactions_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of 1 MiB with the reserved id and other ids in turns kept the thread for large messages for minutes."""
    compared = 0
    equals = AddPartitionsToTxnTransaction.__eq__

    def counted(self: AddPartitionsToTxnTransaction, other: object) -> bool:
        nonlocal compared
        compared += 1
        return equals(self, other)

    monkeypatch.setattr(AddPartitionsToTxnTransaction, "__eq__", counted)
    key, version, count = ApiKey.ADD_PARTITIONS_TO_TXN, 5, 200
    names = [TRANSACTIONAL_ID, "a"] * count
    message = AddPartitionsToTxnRequest(
        transactions=tuple(AddPartitionsToTxnTransaction(transactional_id=name) for name in names)
    )
    async with gateway() as (_, client, broker):
        await client.send(request(key, version, message))
        asked = await broker.request()
        assert len(decode(AddPartitionsToTxnRequest, version, asked.body).transactions) == count
    assert compared <= len(names)


async def test_a_large_response_is_completed_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may name 200,000 groups beside the reserved one; to decode the response took 0.3 s."""
    works: list[object] = []

    async def watched(work: Any) -> Any:
        works.append(work)
        return await run_off_loop(work)

    monkeypatch.setattr(reserved_names, "run_off_loop", watched)
    names = tuple(f"g{number}" for number in range(5_000))
    async with gateway() as (_, client, broker):
        await client.send(request(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=(GROUP, *names))))
        asked = await broker.request()
        assert len(works) == 1, "the request"
        deleted = tuple(DeletedGroup(group_id=name, error_code=69) for name in names)
        receiving = asyncio.create_task(client.frame())
        await broker.send(asked.answer(DeleteGroupsResponse(results=deleted)))
        answer = answer_of(await receiving, ApiKey.DELETE_GROUPS, 2)
        assert isinstance(answer, DeleteGroupsResponse)
        assert answer.results == (*deleted, DeletedGroup(group_id=GROUP, error_code=GROUP_DENIED))
        assert len(works) == 2


async def test_a_large_produce_that_is_split_at_any_byte_of_its_beginning_is_not_gathered() -> None:
    key, version = ApiKey.PRODUCE, 13
    partition = ProducePartition(index=0, records=b"r" * 300_000)
    topic = ProduceTopic(topic_id=b"t" * 16, partition_data=(partition,))
    async with gateway() as (on, client, broker):
        for transactional_id in (None, "headgate.trip", "headgate.trips2"):
            sent = request(
                key, version, ProduceRequest(transactional_id=transactional_id, acks=-1, topic_data=(topic,))
            )
            for split in range(10, 45, 3):
                await client.send(sent[:split])
                await turns()
                await client.send(sent[split:])
                assert (await broker.reply()).frame == sent
                await client.frame()
        assert on.gateway.routes.route(key, version).opened_calls == 0  # type: ignore[arg-type]


async def test_a_large_produce_with_the_reserved_id_is_refused_too() -> None:
    key, version = ApiKey.PRODUCE, 13
    topics = tuple(
        ProduceTopic(topic_id=bytes((number,)) * 16, partition_data=(ProducePartition(index=0, records=b"r" * 3000),))
        for number in range(1, 100)
    )
    message = ProduceRequest(transactional_id=TRANSACTIONAL_ID, acks=-1, topic_data=topics)
    async with gateway() as (_, client, broker):
        await client.send(request(key, version, message))
        answer: Any = answer_of(await client.frame(), key, version)
        assert [codes(one) for one in answer.responses] == [{TRANSACTION_DENIED}] * 99
        assert await broker.is_quiet()


@pytest.mark.parametrize("key", [ApiKey.JOIN_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.DELETE_GROUPS, ApiKey.PRODUCE])
async def test_a_request_with_a_reserved_name_that_is_too_large_to_decode_ends_the_connection(key: ApiKey) -> None:
    """The client need not have a right on the name, and 100 MiB of JoinGroup take minutes and gigabytes to decode."""
    version = versions(key)[-1]
    [(message, _), *_] = reserved(key, version)
    async with gateway() as (on, client, broker):
        await client.send(request(key, version, encode(message, version) + bytes(LARGEST_DECODED)))
        await on.ends_with(CloseCause.BAD_REQUEST)
        assert await broker.rest() == b""


async def test_a_request_with_a_reserved_name_that_is_not_decoded_in_time_does_not_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(_work: object) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(reserved_names, "run_off_loop", never)
    monkeypatch.setattr(reserved_names, "DECODE_SECONDS", 0.02)
    names = (GROUP, *(f"g{number}" for number in range(5_000)))
    async with gateway() as (on, client, broker):
        await client.send(request(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=names)))
        await on.ends_with(CloseCause.BAD_ANSWER)
        assert await broker.rest() == b""


async def test_a_produce_without_a_response_is_dropped() -> None:
    async with gateway() as (_, client, broker):
        topic = ProduceTopic(name="orders", partition_data=(ProducePartition(index=0, records=b"r"),))
        message = ProduceRequest(transactional_id=TRANSACTIONAL_ID, acks=0, topic_data=(topic,))
        await client.send(request(ApiKey.PRODUCE, 9, message), request(ApiKey.LIST_GROUPS, 0))
        assert (await broker.reply()).key == ApiKey.LIST_GROUPS
        await client.frame()


async def test_a_request_with_a_reserved_name_that_cannot_be_read_ends_the_connection() -> None:
    async with gateway() as (on, client, _):
        body = encode(asking(ApiKey.JOIN_GROUP, 9, GROUP), 9)
        await client.send(request(ApiKey.JOIN_GROUP, 9, body[:-3]))
        await on.ends_with(CloseCause.BAD_REQUEST)


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("name", ["headgate.leader", "p" * 200 + ".leader"])
def test_what_has_been_received_may_become_the_name(name: str, *, flexible: bool) -> None:
    test = begins_with("other", name, flexible=flexible)
    version = 9 if flexible else 5
    body = encode(asking(ApiKey.JOIN_GROUP, version, name), version)
    behind = body.index(name.encode()) + len(name)
    for end in range(len(body)):
        assert test(body, 0, end)
        assert test(body[:end], 0, end), "the buffer ends here"
        assert test(body[:end] + bytes(8), 0, end), "what is behind it was received earlier"
    for at in range(behind):
        damaged = bytearray(body)
        damaged[at] ^= 0x01
        assert not test(damaged, 0, behind)
    assert not test(bytes(len(body)), 0, len(body))


def test_a_size_that_is_written_longer_than_it_has_to_be_is_read_from_what_has_been_received() -> None:
    test = begins_with("other", GROUP, flexible=True)
    size = len(GROUP) + 1
    body = bytes((size | 0x80, 0x80, 0x00)) + GROUP.encode()
    for end in range(1, len(body) + 1):
        assert test(body[:end] + bytes(8), 0, end)
    assert not test(bytes((size | 0x80, 0x81, 0x00)) + GROUP.encode(), 0, len(body))


@every_key
def test_what_has_been_received_of_a_reserved_name_is_enough_to_open_the_request(key: int) -> None:
    [refusing] = [one for one in ReservedNames("headgate.").interceptors if key in one.api_keys]
    for version in versions(key):
        prefilter = refusing.prefilter(ApiVersion(version))
        if prefilter is None:
            continue
        body = encode(asking(key, version, GROUP, TRANSACTIONAL_ID), version)
        for end in range(len(body) + 1):
            assert prefilter(body[:end], 0, end)
            assert prefilter(body[:end] + bytes(8), 0, end)
