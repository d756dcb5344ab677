"""The machine: ports, a gateway that already runs, the advertised host, file descriptors."""

import asyncio
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from headgate.base.ids import NodeId
from headgate.config import Address, Config
from headgate.config.model import GatewayConfig, MetricsConfig
from headgate.doctor import machine
from headgate.doctor.findings import FindingVerdict
from headgate.proxy.metrics import Metrics as Counters
from headgate.proxy.metrics import MetricsPage
from headgate.proxy.status import StatusPages
from tests.support.ports import port_block

T = TypeVar("T")


def config_at(port: int, **gateway: object) -> Config:
    changed = GatewayConfig(listen=Address("127.0.0.1", port), nodes=(NodeId(0),), **gateway)  # type: ignore[arg-type]
    return Config(gateway=changed, metrics=MetricsConfig(listen=Address("127.0.0.1", port + 8)))


@contextmanager
def listening(port: int) -> Iterator[None]:
    with socket.create_server(("127.0.0.1", port)):
        yield


def beside_status_pages(port: int, problems: dict[str, str], ask: Callable[[], Awaitable[T]]) -> T:
    """Ask while the gateway's own status pages are served at `port`."""

    async def run() -> T:
        snapshot = Counters().snapshot(open_connections=0, connections_limit=10, routes=(), certificate_expires_at=None)
        pages = StatusPages(lambda: MetricsPage().render(snapshot, ready=not problems), lambda: problems)
        async with pages.serving(Address("127.0.0.1", port)):
            return await ask()

    return asyncio.run(run())


def test_free_ports_are_one_line() -> None:
    port = port_block()
    (finding,) = machine.ports(config_at(port), is_ours=False)
    assert (finding.verdict, finding.text.count("127.0.0.1")) == (FindingVerdict.OK, 3)


def test_a_taken_port_is_a_problem_that_says_whose_port_it_would_be() -> None:
    port = port_block()
    with listening(port + 1):
        findings = {one.subject: one for one in machine.ports(config_at(port), is_ours=False)}
    taken = findings[f"127.0.0.1:{port + 1}"]
    assert (taken.verdict, taken.text.startswith("node 0: ")) == (FindingVerdict.PROBLEM, True)
    assert f"sport = :{port + 1}" in taken.mend
    assert "gateway.listen" in taken.mend


def test_a_port_that_a_headgate_has_is_in_order() -> None:
    port = port_block()
    with listening(port):
        findings = {one.subject: one for one in machine.ports(config_at(port), is_ours=True)}
    assert findings[f"127.0.0.1:{port}"].verdict is FindingVerdict.OK


def test_an_address_of_another_machine_is_a_problem() -> None:
    # RFC 5737: no machine has this address.
    config = Config(gateway=GatewayConfig(listen=Address("192.0.2.1", 9092), nodes=(NodeId(0),)))
    findings = {one.subject: one for one in machine.ports(config, is_ours=True)}
    assert findings["192.0.2.1:9092"].verdict is FindingVerdict.PROBLEM
    assert "ip address" in findings["192.0.2.1:9092"].mend


def test_a_running_headgate_is_known_by_its_status_pages() -> None:
    port = port_block()
    address = Address("127.0.0.1", port)
    found = beside_status_pages(port, {"upstream": "away"}, lambda: machine.find_running(address, deadline_s=5))
    assert found == machine.Running(problems={"upstream": "away"})
    wildcard = Address("0.0.0.0", port)
    assert beside_status_pages(port, {}, lambda: machine.find_running(wildcard, deadline_s=5)) is not None


def test_the_page_of_another_program_is_no_headgate() -> None:
    port = port_block()

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello")
        writer.close()

    async def ask() -> machine.Running | None:
        server = await asyncio.start_server(answer, "127.0.0.1", port)
        async with server:
            return await machine.find_running(Address("127.0.0.1", port), deadline_s=5)

    assert asyncio.run(ask()) is None


def test_a_silent_program_is_no_headgate() -> None:
    port = port_block()
    with listening(port):
        assert asyncio.run(machine.find_running(Address("127.0.0.1", port), deadline_s=0.2)) is None


def test_a_running_headgate_that_is_not_ready_is_a_problem_with_its_reasons() -> None:
    port = port_block()
    config = config_at(port)

    async def all_findings() -> list[tuple[str, FindingVerdict, str]]:
        found = machine.examine(config, deadline_s=5)
        return [(one.subject, one.verdict, one.text) async for one in found]

    found = beside_status_pages(port + 8, {"upstream": "no broker"}, all_findings)
    texts = [text for subject, verdict, text in found if verdict is FindingVerdict.PROBLEM]
    assert texts == ["a Headgate runs here and is not ready: upstream: no broker"]


def test_an_advertised_name_that_does_not_resolve_is_a_problem() -> None:
    config = config_at(9092, advertised_host="no.such.host.invalid")
    finding = asyncio.run(machine.advertised(config, deadline_s=10))
    assert (finding.verdict, "no.such.host.invalid" in finding.text) == (FindingVerdict.PROBLEM, True)


def test_a_loopback_name_on_a_listener_for_all_is_a_warning() -> None:
    gateway = GatewayConfig(listen=Address("0.0.0.0", 9092), advertised_host="127.0.0.1")
    assert asyncio.run(machine.advertised(Config(gateway=gateway), deadline_s=10)).verdict is FindingVerdict.WARNING
    finding = asyncio.run(machine.advertised(config_at(9092), deadline_s=10))
    assert finding.verdict is FindingVerdict.OK


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [(1024, "warning"), (2 * 500 + 1 + 64, "ok"), (resource.RLIM_INFINITY, "ok")],
)
def test_two_descriptors_a_connection_are_needed(limit: int, verdict: str) -> None:
    assert machine.descriptors(config_at(9092, max_connections=500), limit).verdict.value == verdict


def test_the_suggested_number_of_descriptors_is_enough() -> None:
    finding = machine.descriptors(config_at(9092, max_connections=500), 1024)
    assert "LimitNOFILE=1065" in finding.mend
    assert machine.descriptors(config_at(9092, max_connections=479), 1024).verdict is FindingVerdict.OK
    assert "gateway.max_connections = 479" in finding.mend
