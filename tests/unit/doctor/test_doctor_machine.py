"""The machine: ports, a gateway that already runs, the advertised host, certificates."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from cryptography import x509

from headgate.base.ids import NodeId
from headgate.config import Address, Config
from headgate.config.model import GatewayConfig, MetricsConfig, UpstreamConfig
from headgate.doctor import machine
from headgate.doctor.brokers import names_of
from headgate.proxy.gather_budget import GatherBudgets
from headgate.proxy.metrics import Metrics, MetricsPage
from headgate.proxy.pipes import PipePool
from headgate.proxy.status import StatusPages
from tests.support.certificates import Certificates, make_certificates
from tests.support.ports import port_block

T = TypeVar("T")
NOW = datetime.now(UTC) + timedelta(minutes=10)  # after the certificates have been made


def config_at(port: int, host: str = "127.0.0.1", **gateway: object) -> Config:
    changed = GatewayConfig(listen=Address(host, port), nodes=(NodeId(0),), **gateway)  # type: ignore[arg-type]
    return Config(gateway=changed, metrics=MetricsConfig(listen=Address("127.0.0.1", port + 8)))


def beside_status_pages(port: int, problems: dict[str, str], ask: Callable[[], Awaitable[T]]) -> T:
    """Ask while the gateway's own status pages are served at `port`."""

    async def run() -> T:
        snapshot = Metrics().snapshot(
            open_connections=0,
            connections_limit=10,
            routes=(),
            certificate_expires_at=None,
            budgets=GatherBudgets(lambda: 0.0),
            pipes=PipePool(0, lambda: 0.0),
        )
        pages = StatusPages(lambda: MetricsPage().render(snapshot, ready=not problems), lambda: problems)
        async with pages.serving(Address("127.0.0.1", port)):
            return await ask()

    return asyncio.run(run())


def test_free_ports_are_one_finding_and_a_used_one_is_a_problem_unless_a_headgate_has_it() -> None:
    port = port_block()
    (free,) = machine.ports(config_at(port), is_ours=False)
    assert (free.verdict.value, free.text.count("127.0.0.1")) == ("ok", 3)
    with socket.create_server(("127.0.0.1", port + 1)):
        (taken, _), (ours, _) = (machine.ports(config_at(port), is_ours=is_ours) for is_ours in (False, True))
    assert (taken.verdict.value, taken.text.startswith("node 0: ")) == ("problem", True)
    assert f"sport = :{port + 1}" in taken.mend
    assert ours.verdict.value == "ok"
    # RFC 5737: no machine has this address.
    other = {one.subject: one for one in machine.ports(config_at(9092, "192.0.2.1"), is_ours=True)}["192.0.2.1:9092"]
    assert (other.verdict.value, "ip address" in other.mend) == ("problem", True)


def test_a_running_headgate_is_recognised_by_its_status_pages() -> None:
    port = port_block()
    away, wildcard = {"upstream": "away"}, Address("0.0.0.0", port)
    found = beside_status_pages(port, away, lambda: machine.find_running(wildcard, deadline_s=5))
    assert found == machine.Running(problems=away)

    async def other_program() -> machine.Running | None:
        async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello")
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", port):
            return await machine.find_running(Address("127.0.0.1", port), deadline_s=5)

    assert asyncio.run(other_program()) is None
    with socket.create_server(("127.0.0.1", port)):  # silent
        assert asyncio.run(machine.find_running(Address("127.0.0.1", port), deadline_s=0.2)) is None


def test_a_running_headgate_that_is_not_ready_is_a_problem_with_its_reasons() -> None:
    port = port_block()

    async def problems() -> list[str]:
        found = machine.examine(config_at(port), deadline_s=5)
        return [one.text async for one in found if one.verdict.value == "problem"]

    texts = beside_status_pages(port + 8, {"upstream": "no broker"}, problems)
    assert texts == ["a Headgate runs here and is not ready: upstream: no broker"]


@pytest.mark.parametrize(
    ("listen", "advertised", "verdict"),
    [
        ("127.0.0.1", "127.0.0.1", "ok"),
        ("127.0.0.1", "no.such.host.invalid", "problem"),
        ("0.0.0.0", "127.0.0.1", "warning"),  # only clients on this machine can use it
    ],
)
def test_the_advertised_host_must_be_one_that_clients_can_use(listen: str, advertised: str, verdict: str) -> None:
    config = config_at(9092, listen, advertised_host=advertised)
    assert asyncio.run(machine.advertised(config, deadline_s=10)).verdict.value == verdict


# Certificates.


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates that are valid for two days."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def load(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


@pytest.mark.parametrize(
    ("names", "host", "covered"),
    [
        (["Kafka.Example.org"], "kafka.example.ORG.", True),
        (["*.example.org"], "kafka.example.org", True),
        (["*.example.org"], "a.kafka.example.org", False),
        (["*.example.org"], "example.org", False),
        (["127.0.0.1"], "127.0.0.1", True),
        (["::1"], "0:0:0:0:0:0:0:1", True),
        (["*.0.0.1"], "127.0.0.1", False),
        ([], "kafka.example.org", False),
    ],
)
def test_a_certificate_covers_the_names_that_clients_accept(names: list[str], host: str, *, covered: bool) -> None:
    assert machine.covers(names, host) is covered


@pytest.mark.parametrize(("days", "verdict"), [(-1, "problem"), (0, "warning"), (3, "problem")])
def test_a_certificate_is_judged_by_its_validity_period(files: Certificates, days: int, verdict: str) -> None:
    certificate = load(files.server_cert)
    assert set(names_of(certificate)) == {"localhost", "127.0.0.1", "127.0.0.2", "127.0.0.3"}
    now = NOW + timedelta(days=days)
    assert machine.lifetime("x", certificate, now, renew="renew it").verdict.value == verdict


def test_a_certificate_that_is_valid_for_long_is_ok(files: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SOON", timedelta(hours=1))
    assert machine.lifetime("x", load(files.server_cert), NOW, renew="renew it").verdict.value == "ok"


@pytest.mark.parametrize(
    ("host", "key", "verdicts", "mend"),
    [
        ("127.0.0.1", "server_key", ["warning", "ok"], ""),
        ("kafka.example.org", "server_key", ["warning", "problem"], "subjectAltName=DNS:kafka.example.org"),
        ("10.0.0.1", "server_key", ["warning", "problem"], "subjectAltName=IP:10.0.0.1"),
        ("127.0.0.1", "client_key", ["problem"], "openssl"),  # of another certificate
    ],
)
def test_the_listeners_certificate_must_be_for_the_advertised_host_and_its_key(
    files: Certificates, host: str, key: str, verdicts: list[str], mend: str
) -> None:
    config = config_at(9092, advertised_host=host, tls_cert=files.server_cert, tls_key=getattr(files, key))
    findings = list(machine.examine_certificates(config, NOW))
    assert [one.verdict.value for one in findings] == verdicts
    assert mend in findings[-1].mend


def test_an_authority_that_expired_or_cannot_be_read_is_a_problem(files: Certificates, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("nothing\n")
    for ca, now in ((files.ca, NOW + timedelta(days=3)), (tmp_path / "empty.pem", NOW)):
        config = Config(upstream=UpstreamConfig(tls=True, tls_ca=ca, service_mechanism="none"))
        (finding,) = machine.examine_certificates(config, now)
        assert (finding.subject, finding.verdict.value) == ("upstream.tls_ca", "problem")
