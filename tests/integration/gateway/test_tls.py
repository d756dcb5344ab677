"""TLS on either side of the gateway, with real clients, a real broker, and certificates that change under way."""

import shutil
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from headgate.embedded import SecurityProtocol
from tests.integration.gateway.exercise import assert_whole, new_topic, round_trip, until
from tests.support.certificates import Certificates, make_certificates
from tests.support.cluster import Cluster
from tests.support.gateway import GatewayProcess
from tests.support.raw_client import RawClient, is_served
from tests.support.traffic import Traffic

Start = Callable[..., GatewayProcess]

PLAINTEXT, SSL, SASL_SSL = SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL, SecurityProtocol.SASL_SSL


def listener_keys(certificates: Certificates) -> dict[str, object]:
    return {
        "gateway__tls_cert": str(certificates.server_cert),
        "gateway__tls_key": str(certificates.server_key),
    }


def upstream_keys(certificates: Certificates) -> dict[str, object]:
    return {"upstream__tls": True, "upstream__tls_ca": str(certificates.ca)}


def trusting(certificates: Certificates, *, with_certificate: bool = False) -> ssl.SSLContext:
    """What a client knows that trusts this authority."""
    context = ssl.create_default_context(cafile=certificates.ca)
    if with_certificate:
        context.load_cert_chain(certificates.client_cert, certificates.client_key)
    return context


def shown_certificate(gateway: GatewayProcess) -> bytes:
    """What a new connection is shown, trusted or not."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with RawClient(gateway.bootstrap, tls=context) as client:
        assert isinstance(client.sock, ssl.SSLSocket)
        return client.sock.getpeercert(binary_form=True) or b""


def pem(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


@pytest.mark.parametrize(
    ("listener", "upstream"), [(SSL, PLAINTEXT), (PLAINTEXT, SSL), (SSL, SSL)], ids=["listener", "upstream", "both"]
)
def test_records_pass_with_tls_on_either_side(
    cluster: Cluster, start: Start, listener: SecurityProtocol, upstream: SecurityProtocol
) -> None:
    keys = listener_keys(cluster.certificates) if listener is SSL else {}
    keys |= upstream_keys(cluster.certificates) if upstream is SSL else {}
    gateway = start(cluster.kafka.bootstrap_of(upstream), **keys)
    round_trip(cluster.client_config(listener, bootstrap=gateway.bootstrap), new_topic(cluster), size=100_000)


def test_sasl_passes_with_tls_on_both_sides(cluster: Cluster, start: Start, password_file: Path) -> None:
    gateway = start(
        cluster.kafka.bootstrap_of(SASL_SSL),
        upstream__service_user="admin",
        upstream__service_mechanism="SCRAM-SHA-256",
        upstream__service_password_file=str(password_file),
        **listener_keys(cluster.certificates),
        **upstream_keys(cluster.certificates),
    )
    config = cluster.client_config(SASL_SSL, mechanism="SCRAM-SHA-512", bootstrap=gateway.bootstrap)
    round_trip(config, new_topic(cluster))


def test_a_required_client_certificate_opens_the_listener_and_nothing_else_does(
    cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    ours, others = cluster.certificates, make_certificates(tmp_path / "others")
    gateway = start(cluster.bootstrap, gateway__tls_client_ca=str(ours.ca), **listener_keys(ours))
    config = {
        **cluster.client_config(SSL, bootstrap=gateway.bootstrap),
        "ssl.certificate.location": str(ours.client_cert),
        "ssl.key.location": str(ours.client_key),
    }
    round_trip(config, new_topic(cluster))
    assert not is_served(gateway.bootstrap, tls=trusting(ours))
    foreign = ssl.create_default_context(cafile=ours.ca)
    foreign.load_cert_chain(others.client_cert, others.client_key)
    assert not is_served(gateway.bootstrap, tls=foreign)
    until(lambda: gateway.metric("headgate_connections_ended_total", cause="handshake_failed") == 2)


@pytest.fixture
def own(tmp_path: Path, cluster: Cluster) -> Certificates:
    """Certificates in files that a test may change."""
    folder = tmp_path / "own"
    shutil.copytree(cluster.certificates.ca.parent, folder)
    return Certificates(**{
        name: folder / getattr(cluster.certificates, name).name for name in Certificates.__dataclass_fields__
    })  # fmt: skip


def test_a_new_certificate_is_for_new_connections_and_open_ones_go_on(
    cluster: Cluster, start: Start, own: Certificates, tmp_path: Path
) -> None:
    gateway = start(cluster.bootstrap, **listener_keys(own))
    old = pem(own.server_cert)
    with RawClient(gateway.bootstrap, tls=trusting(cluster.certificates)) as client:
        client.api_versions()
        assert gateway.metric("headgate_certificate_expiry_seconds") == old.not_valid_after_utc.timestamp()
        renewed = make_certificates(tmp_path / "renewed", days=30)
        shutil.copy(renewed.server_cert, own.server_cert)
        shutil.copy(renewed.server_key, own.server_key)
        new = pem(own.server_cert)
        until(lambda: x509.load_der_x509_certificate(shown_certificate(gateway)) == new)
        client.api_versions()
    until(lambda: gateway.metric("headgate_certificate_expiry_seconds") == new.not_valid_after_utc.timestamp())
    assert gateway.metric("headgate_worker_restarts_total") == 0


def test_files_that_cannot_be_used_leave_the_old_certificate_in_place_and_are_shown(
    cluster: Cluster, start: Start, own: Certificates
) -> None:
    gateway = start(cluster.bootstrap, **listener_keys(own))
    before, key = shown_certificate(gateway), own.server_key.read_text()
    own.server_key.write_text("this is no key\n")
    until(lambda: "gateway.tls_cert" in gateway.problems())
    assert str(own.server_key) in gateway.problems()["gateway.tls_cert"]
    assert gateway.metric("headgate_ready") == 0
    assert shown_certificate(gateway) == before
    assert is_served(gateway.bootstrap, tls=trusting(cluster.certificates))
    [said] = [line for line in gateway.log_lines() if "certificates cannot be used" in line]
    assert str(own.server_key) in said
    own.server_key.write_text(key)
    until(lambda: not gateway.problems())


def test_workers_are_replaced_under_load_and_nothing_is_lost_or_doubled(cluster: Cluster, start: Start) -> None:
    gateway = start(
        cluster.kafka.bootstrap_of(SSL), **listener_keys(cluster.certificates), **upstream_keys(cluster.certificates)
    )
    topic, workers = new_topic(cluster), gateway.workers()
    with Traffic(cluster.client_config(SSL, bootstrap=gateway.bootstrap), topic) as traffic:
        gateway.replace_workers()
        until(lambda: len(gateway.workers()) == 1 and gateway.workers() != workers, 60)
        time.sleep(0.5)
        report = traffic.finish()
    assert_whole(cluster, topic, report)


def test_workers_are_not_replaced_while_their_certificates_cannot_be_used(
    cluster: Cluster, start: Start, own: Certificates
) -> None:
    gateway = start(cluster.bootstrap, **listener_keys(own))
    workers = gateway.workers()
    own.server_cert.write_text("this is no certificate\n")
    gateway.replace_workers()
    until(lambda: any("the old worker stays" in line for line in gateway.log_lines()))
    assert gateway.workers() == workers
    assert is_served(gateway.bootstrap, tls=trusting(cluster.certificates))


def test_serve_refuses_to_start_with_a_certificate_that_cannot_be_used(
    cluster: Cluster, start: Start, own: Certificates
) -> None:
    own.server_key.write_text("this is no key\n")
    gateway = start(cluster.bootstrap, wait=False, **listener_keys(own))
    assert gateway.wait() == 2
    [said] = gateway.log_lines()
    assert said.startswith("headgate: gateway.tls_cert: these files cannot be used: ")
    assert str(own.server_key) in said


def test_a_new_authority_of_the_brokers_is_used_without_a_restart(
    cluster: Cluster, start: Start, own: Certificates, tmp_path: Path
) -> None:
    right = own.ca.read_text()
    shutil.copy(make_certificates(tmp_path / "wrong").ca, own.ca)
    gateway = start(cluster.kafka.bootstrap_of(SSL), wait=False, **upstream_keys(own))
    until(lambda: "certificate verify failed" in gateway.problems().get("upstream", ""))
    own.ca.write_text(right)
    until(lambda: not gateway.problems())
    round_trip(cluster.client_config(bootstrap=gateway.bootstrap), new_topic(cluster))
