"""Small responses without addresses are known by a mask of their bytes; one with addresses never passes for them."""

from dataclasses import replace

from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.cut_through import MOST_PLAIN_LENGTHS, with_own_addresses
from headgate.proxy.routes import Route
from headgate.wire.codec import encode
from headgate.wire.messages.data import (
    NodeEndpoint,
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
)
from headgate.wire.splice import EncodedAddress
from tests.support.fake_upstream import answer
from tests.unit.proxy.stage import stage
from tests.unit.proxy.test_split import ENDPOINTS, TOPIC_ID, Call, ask, moved, produce

OWN = EncodedAddress.of("gateway", 1)


def response(
    message: str | None = None, *, offset: int = 0, node_endpoints: tuple[NodeEndpoint, ...] = ()
) -> ProduceResponse:
    partition = ProducePartitionResponse(index=1, base_offset=offset, error_message=message)
    topic = ProduceTopicResponse(topic_id=TOPIC_ID, partition_responses=(partition,))
    return ProduceResponse(responses=(topic,), node_endpoints=node_endpoints)


def changed(route: Route, message: ProduceResponse, correlation_id: int = 1) -> bytes | None:
    return with_own_addresses(memoryview(answer(0, 13, correlation_id, message)), route, lambda _: OWN)


async def test_an_answer_with_addresses_as_long_as_a_known_one_gets_the_gateways_addresses() -> None:
    with_addresses = response("m", node_endpoints=ENDPOINTS)
    size = len(encode(with_addresses, 13))
    text = "m" * (size - len(encode(response("m"), 13)) + 1)
    plain = Call(0, 13, produce().asked, response(text))
    assert len(encode(plain.answered, 13)) == size
    other = Call(0, 13, produce().asked, with_addresses)
    async with stage() as on:
        client, broker = await on.pair()
        route = on.gateway.routes.route(ApiKey.PRODUCE, ApiVersion(13))
        for number, call in enumerate((plain, plain, other, plain, other, plain)):
            await broker.send(await ask(client, broker, call, number))
            assert await client.frame() == answer(0, 13, number, moved(call) if call is other else call.answered)
        assert len(route.plain_responses) == 1
        assert route.spliced_calls == 2


def test_offsets_and_errors_may_differ_between_known_responses() -> None:
    route = Route(ApiKey.PRODUCE, ApiVersion(13), ())
    assert changed(route, response(offset=1)) is None
    [(mask, value)] = route.plain_responses.values()
    for number, message in enumerate((response(offset=2**60), replace(response(), throttle_time_ms=7))):
        frame = answer(0, 13, number, message)
        assert int.from_bytes(frame) & mask == value


def test_the_lengths_that_are_kept_are_bounded() -> None:
    route = Route(ApiKey.PRODUCE, ApiVersion(13), ())
    for size in range(3 * MOST_PLAIN_LENGTHS):
        assert changed(route, response("m" * size)) is None
    assert len(route.plain_responses) == MOST_PLAIN_LENGTHS
    assert changed(route, response()) is None
    [*_, newest] = route.plain_responses
    assert newest == len(answer(0, 13, 1, response())), "responses of hostile lengths do not keep the others out"
    route = Route(ApiKey.PRODUCE, ApiVersion(13), ())
    assert changed(route, response("m" * 1000)) is None
    assert not route.plain_responses
