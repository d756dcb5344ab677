"""Certificates: validity, names, and whether the files belong together."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from headgate.config import Address, Config
from headgate.config.model import GatewayConfig, UpstreamConfig
from headgate.doctor import machine
from headgate.doctor.brokers import names_of
from headgate.doctor.findings import DoctorFinding, FindingVerdict
from tests.support.certificates import Certificates, make_certificates

NOW = datetime.now(UTC) + timedelta(minutes=10)  # after they have been made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates that last two days."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def load(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def listener(files: Certificates, *, host: str = "127.0.0.1", key: Path | None = None) -> list[DoctorFinding]:
    gateway = GatewayConfig(
        listen=Address("127.0.0.1", 9092),
        advertised_host=host,
        tls_cert=files.server_cert,
        tls_key=key or files.server_key,
    )
    return list(machine.examine_certificates(Config(gateway=gateway), NOW))


@pytest.mark.parametrize(
    ("names", "host", "covered"),
    [
        (["kafka.example.org"], "kafka.example.org", True),
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
def test_a_certificate_covers_what_clients_accept(names: list[str], host: str, *, covered: bool) -> None:
    assert machine.covers(names, host) is covered


def test_the_names_are_those_of_the_alternative_names(files: Certificates) -> None:
    assert set(names_of(load(files.server_cert))) == {"localhost", "127.0.0.1", "127.0.0.2", "127.0.0.3"}
    assert names_of(load(files.ca)) == ()


@pytest.mark.parametrize(
    ("at", "verdict"),
    [
        (NOW - timedelta(days=1), FindingVerdict.PROBLEM),
        (NOW, FindingVerdict.WARNING),
        (NOW + timedelta(days=3), FindingVerdict.PROBLEM),
    ],
)
def test_a_certificate_is_judged_by_the_time_that_it_has_left(
    files: Certificates, at: datetime, verdict: FindingVerdict
) -> None:
    assert machine.lifetime("x", load(files.server_cert), at, renew="renew it").verdict is verdict


def test_the_listeners_certificate_must_be_for_the_advertised_host(files: Certificates) -> None:
    assert [one.verdict for one in listener(files)] == [FindingVerdict.WARNING, FindingVerdict.OK]
    (_, wrong) = listener(files, host="kafka.example.org")
    assert wrong.verdict is FindingVerdict.PROBLEM
    assert "subjectAltName=DNS:kafka.example.org" in wrong.mend
    (_, wrong) = listener(files, host="10.0.0.1")
    assert "subjectAltName=IP:10.0.0.1" in wrong.mend


def test_a_key_of_another_certificate_is_a_problem(files: Certificates) -> None:
    (finding,) = listener(files, key=files.client_key)
    assert (finding.verdict, "openssl" in finding.mend) == (FindingVerdict.PROBLEM, True)


def test_an_authority_is_judged_by_its_newest_certificate(files: Certificates, tmp_path: Path) -> None:
    upstream = UpstreamConfig(tls=True, tls_ca=files.ca, service_mechanism="none")
    (finding,) = machine.examine_certificates(Config(upstream=upstream), NOW + timedelta(days=3))
    assert (finding.subject, finding.verdict) == ("upstream.tls_ca", FindingVerdict.PROBLEM)
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    upstream = UpstreamConfig(tls=True, tls_ca=empty, service_mechanism="none")
    (finding,) = machine.examine_certificates(Config(upstream=upstream), NOW)
    assert finding.verdict is FindingVerdict.PROBLEM
