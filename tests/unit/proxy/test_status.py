"""The status pages: true, readable for a collector, and of no use to a visitor who means harm."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

import headgate
from headgate.base.errors import PlatformError
from headgate.config.addresses import Address
from headgate.proxy.interceptor import CloseCause
from headgate.proxy.metrics import Histogram
from headgate.proxy.status import LARGEST_CROWD, StatusPages
from headgate.wire.messages.data import FetchRequest
from headgate.wire.messages.groups import ListGroupsResponse
from tests.support.fake_upstream import Client, answer, request
from tests.unit.proxy.stage import GATEWAY_HOST, Stage, base_port, stage, turns, until
from tests.unit.proxy.test_order import heartbeat, metadata
from tests.unit.proxy.test_split import fetch

LISTEN = Address(GATEWAY_HOST, base_port() + 15)


@asynccontextmanager
async def pages(
    metrics: bytes = b"metrics\n", details: Mapping[str, str] = {}, deadline_s: float = 5.0
) -> AsyncIterator[dict[str, str]]:
    problems: dict[str, str] = {}
    async with StatusPages(lambda: metrics, lambda: problems, lambda: details, deadline_s=deadline_s).serving(LISTEN):
        yield problems


async def visit(data: bytes, *, end: bool = False) -> bytes:
    visitor = await Client.connect(*LISTEN)
    try:
        await visitor.send(data)
        if end:
            visitor.sock.shutdown(1)
        return await visitor.rest()
    finally:
        visitor.close()


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: gateway\r\n\r\n".encode()


async def test_the_process_is_healthy_whatever_the_cluster_is() -> None:
    async with pages() as problems:
        problems["upstream"] = "is away"
        answer = await visit(get("/healthz"))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"\r\n\r\nok\n")


async def test_readiness_names_every_reason() -> None:
    async with pages() as problems:
        head, _, body = (await visit(get("/readyz"))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert json.loads(body) == {"ready": True, "problems": {}, "details": {}}
        problems |= {"upstream": 'no "connection"', "node 7": "has no port"}
        head, _, body = (await visit(get("/readyz?verbose"))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert json.loads(body) == {"ready": False, "problems": problems, "details": {}}


async def test_details_do_not_change_readiness() -> None:
    details = {"worker 0: topology store": "2 cancelled calls have not ended"}
    async with pages(details=details):
        head, _, body = (await visit(get("/readyz"))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert json.loads(body) == {"ready": True, "problems": {}, "details": details}


@pytest.mark.parametrize(
    ("sent", "first"),
    [
        (get("/"), b"HTTP/1.1 404 "),
        (get("/metrics/../etc/passwd"), b"HTTP/1.1 404 "),
        (get("/healthz", "POST"), b"HTTP/1.1 405 "),
        (get("/healthz", "DELETE"), b"HTTP/1.1 405 "),
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 "),
        (get("/healthz") * 3, b"HTTP/1.1 200 "),
        (b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc", b"HTTP/1.1 405 "),
    ],
)
async def test_a_visitor_gets_one_answer(sent: bytes, first: bytes) -> None:
    async with pages():
        answer = await visit(sent)
        assert answer.startswith(first)
        assert answer.count(b"HTTP/1.1") == 1


async def test_a_visitor_may_ask_for_the_head_alone() -> None:
    async with pages(b"x" * 100) as _:
        answer = await visit(get("/metrics", "HEAD"))
        assert b"content-length: 100\r\n" in answer
        assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x16\x03\x01\x00\xf1\x01\x00\x00\xed\x03\x03",
        b"\x00\x00\x00\x10\x00\x12\x00\x03" + bytes(20),
        b"GET\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",  # no Host
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100_000,
        b"GET /healthz HTTP/1.1\r\nContent-Length: -1\r\nHost: x\r\n\r\n",
        b"\n" * 50_000,
    ],
)
async def test_a_visitor_who_speaks_no_http_gets_no_page(sent: bytes) -> None:
    async with pages():
        assert b" 200 " not in await visit(sent, end=True)
        assert (await visit(get("/healthz"))).endswith(b"ok\n")


async def test_a_visitor_who_stays_silent_is_sent_away() -> None:
    async with pages(deadline_s=0.05):
        assert await visit(b"GET /healthz HTTP/1.1\r\nHost:") == b""


async def test_a_visitor_who_does_not_take_the_page_is_sent_away() -> None:
    served = StatusPages(lambda: bytes(20_000_000), dict, deadline_s=0.05)
    async with served.serving(LISTEN):
        visitor = await Client.connect(*LISTEN, receive_buffer=4096)
        await visitor.send(get("/metrics"))
        await until(lambda: served.visits > 0)
        await until(lambda: not served.visits)
        assert len(await visitor.rest()) < 20_000_000
        visitor.close()


async def test_a_crowd_of_visitors_is_bounded_and_leaves_with_the_gateway() -> None:
    served = StatusPages(lambda: b"", dict)
    async with served.serving(LISTEN):
        crowd = [await Client.connect(*LISTEN) for _ in range(60)]
        await until(lambda: served.visits == LARGEST_CROWD)
        await turns(20)
        assert served.visits == LARGEST_CROWD
    assert not served.visits
    for visitor in crowd:
        assert await visitor.rest() == b""
        visitor.close()


async def test_a_port_that_is_taken_is_said_in_a_sentence() -> None:
    async with pages():
        with pytest.raises(PlatformError, match=rf"cannot listen on {LISTEN} for the status pages: .+ metrics\.listen"):
            async with pages():
                pass


# /metrics of a gateway.

FAMILIES = {
    "headgate_build": "info",
    "headgate_ready": "gauge",
    "headgate_connections": "gauge",
    "headgate_connections_accepted": "counter",
    "headgate_connections_ended": "counter",
    "headgate_bytes": "counter",
    "headgate_reads_paused": "counter",
    "headgate_calls": "counter",
    "headgate_calls_spliced": "counter",
    "headgate_added_seconds": "histogram",
    "headgate_interceptor_failures": "counter",
    "headgate_certificate_expiry_seconds": "gauge",
    "headgate_worker_restarts": "counter",
}


async def samples(on: Stage) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The page, as a collector reads it."""
    code, text = await on.page("/metrics")
    assert code == 200
    families = list(text_string_to_metric_families(text.decode()))
    # The classic text format has no type for an info: it is a gauge.
    kinds = {family.name: family.type for family in families}
    for name, kind in FAMILIES.items():
        found = kinds.get(name) or kinds.get(f"{name}_info")
        assert found == kind or (kind == "info" and found == "gauge"), name
    assert all(family.documentation for family in families)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def label(**labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


async def test_the_metrics_say_what_happened() -> None:
    async with stage() as on:
        client, broker = await on.pair()
        spliced = fetch()
        await client.send(heartbeat(1), metadata(2), request(1, 18, FetchRequest(), correlation_id=3))
        await broker.reply()
        await broker.reply(on.upstream.metadata())
        await broker.reply(spliced.answered)
        received = sum([len(await client.frame()) for _ in range(3)]) + len(answer(16, 4, 1, ListGroupsResponse()))
        found = await samples(on)
        assert found["headgate_build_info", label(version=headgate.__version__)] == 1
        assert found["headgate_ready", ()] == 1
        assert found["headgate_connections", ()] == 1
        assert found["headgate_connections_unproved", ()] == 0
        assert found["headgate_connections_accepted_total", ()] == 1
        assert found["headgate_calls_total", label(api="Heartbeat", version="4", way="passed")] == 1
        assert found["headgate_calls_total", label(api="Metadata", version="12", way="opened")] == 1
        assert found["headgate_calls_total", label(api="Metadata", version="12", way="passed")] == 0
        assert found["headgate_calls_spliced_total", label(api="Fetch", version="18")] == 1
        assert found["headgate_bytes_total", label(side="client", direction="sent")] == received
        assert found["headgate_bytes_total", label(side="upstream", direction="sent")] > 0
        assert found["headgate_interceptor_failures_total", ()] == 0
        client.close()
        await until(lambda: not on.gateway.connections)
        found = await samples(on)
        assert found["headgate_connections", ()] == 0
        ended = {key[1][0][1]: value for key, value in found.items() if key[0] == "headgate_connections_ended_total"}
        assert ended == {cause.value: float(cause is CloseCause.CLIENT_CLOSED) for cause in CloseCause}


def test_only_a_short_wake_up_stands_for_those_that_are_not_timed() -> None:
    histogram = Histogram()
    histogram.record(0.0004, 16)
    assert sum(histogram.counts) == 16
    histogram.record(0.004, 16)
    assert sum(histogram.counts) == 17
    assert histogram.total == pytest.approx(16 * 0.0004 + 0.004)


async def test_the_time_that_is_added_is_a_histogram() -> None:
    async with stage() as on:
        client, broker = await on.pair()
        for number in range(20):
            await client.send(heartbeat(number))
            await broker.reply()
            await client.frame()
        found = await samples(on)
        for direction in ("request", "answer"):
            buckets = [
                value
                for (name, labels), value in found.items()
                if name == "headgate_added_seconds_bucket" and ("direction", direction) in labels
            ]
            assert buckets == sorted(buckets)
            count = found["headgate_added_seconds_count", label(direction=direction)]
            # Two of the wake-ups are timed, the first and the 17th; each stands for 16 of them, unless it was long.
            assert buckets[-1] == count
            assert count in {32, 17, 2}
            assert 0 < found["headgate_added_seconds_sum", label(direction=direction)] < 20


async def test_nothing_that_a_client_chooses_becomes_a_label() -> None:
    async with stage() as on:
        client, broker = await on.pair()
        await client.send(request(12, 4, b"\x00", client_id=b'evil"\n'))
        await broker.request()
        _, text = await on.page("/metrics")
        assert b"evil" not in text
