"""SASL passes through as it is: the broker knows the client, and the gateway only its own service account."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.embedded import SecurityProtocol
from headgate.wire.codec import encode
from headgate.wire.messages.cluster import SaslHandshakeRequest
from tests.integration.gateway.exercise import new_topic, round_trip, until
from tests.support.cluster import MECHANISMS, USERS, Cluster
from tests.support.gateway import GatewayProcess
from tests.support.raw_client import SASL_HANDSHAKE, RawClient

Start = Callable[..., GatewayProcess]

SASL_PLAINTEXT = SecurityProtocol.SASL_PLAINTEXT


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_logs_in_with_every_mechanism_of_the_broker(
    cluster: Cluster, sasl: GatewayProcess, mechanism: str
) -> None:
    round_trip(cluster.client_config(SASL_PLAINTEXT, mechanism=mechanism, bootstrap=sasl.bootstrap), new_topic(cluster))


def test_the_broker_names_the_same_mechanisms_through_the_gateway(cluster: Cluster, sasl: GatewayProcess) -> None:
    with RawClient(cluster.kafka.bootstrap_of(SASL_PLAINTEXT)) as direct, RawClient(sasl.bootstrap) as client:
        assert client.handshake("NONE-SUCH") == direct.handshake("NONE-SUCH")


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_wrong_password_gets_the_brokers_own_answer(cluster: Cluster, sasl: GatewayProcess, user: str) -> None:
    with RawClient(cluster.kafka.bootstrap_of(SASL_PLAINTEXT)) as direct, RawClient(sasl.bootstrap) as client:
        refused = client.log_in(user, "wrong")
        assert refused == direct.log_in(user, "wrong")
        assert refused.error_code == 58
        assert client.has_ended()


def test_a_call_before_the_log_in_ends_the_connection_as_the_broker_ends_it(
    cluster: Cluster, sasl: GatewayProcess
) -> None:
    for address in (cluster.kafka.bootstrap_of(SASL_PLAINTEXT), sasl.bootstrap):
        with RawClient(address) as client:
            client.send(16, 0, b"")  # ListGroups
            assert client.has_ended()


def test_sasl_handshake_0_is_not_announced(cluster: Cluster, sasl: GatewayProcess) -> None:
    with RawClient(cluster.kafka.bootstrap_of(SASL_PLAINTEXT)) as direct, RawClient(sasl.bootstrap) as client:
        assert direct.api_versions()[SASL_HANDSHAKE] == (0, 1)
        assert client.api_versions()[SASL_HANDSHAKE] == (1, 1)


def test_sasl_handshake_0_is_refused_because_tokens_without_headers_come_behind_it(sasl: GatewayProcess) -> None:
    before = sasl.metric("headgate_connections_ended_total", cause="unsupported_call")
    with RawClient(sasl.bootstrap) as client:
        client.send(SASL_HANDSHAKE, 0, encode(SaslHandshakeRequest(mechanism="PLAIN"), 0))
        assert client.has_ended()
    until(lambda: sasl.metric("headgate_connections_ended_total", cause="unsupported_call") == before + 1)


def test_no_password_stands_in_the_log(sasl: GatewayProcess) -> None:
    with RawClient(sasl.bootstrap) as client:
        client.log_in("alice", USERS["alice"])
    log = "\n".join(sasl.log_lines())
    assert not [secret for secret in USERS.values() if secret in log]


# The service account.


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_service_account_logs_in_with(cluster: Cluster, start: Start, password_file: Path, mechanism: str) -> None:
    gateway = start(
        cluster.kafka.bootstrap_of(SASL_PLAINTEXT),
        upstream__service_user="admin",
        upstream__service_mechanism=mechanism,
        upstream__service_password_file=str(password_file),
    )
    assert gateway.problems() == {}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_of_the_service_account_is_shown_in_the_brokers_words_and_never_itself(
    cluster: Cluster, start: Start, tmp_path: Path, mechanism: str
) -> None:
    secret = tmp_path / "wrong"
    secret.write_text("not-the-Secret-7\n")
    gateway = start(
        cluster.kafka.bootstrap_of(SASL_PLAINTEXT),
        wait=False,
        upstream__service_user="admin",
        upstream__service_mechanism=mechanism,
        upstream__service_password_file=str(secret),
    )
    until(lambda: "rejected the login" in gateway.problems().get("upstream", ""))
    said = gateway.problems()["upstream"]
    assert "Authentication failed" in said
    assert mechanism in said or mechanism == "PLAIN"
    assert "not-the-Secret-7" not in said + "\n".join(gateway.log_lines())


def test_a_cluster_that_needs_sasl_says_what_is_missing_when_there_is_no_service_account(
    cluster: Cluster, start: Start
) -> None:
    gateway = start(cluster.kafka.bootstrap_of(SASL_PLAINTEXT), wait=False)
    until(lambda: "upstream" in gateway.problems() and "not been asked" not in gateway.problems()["upstream"])
    assert "upstream.service_user" in gateway.problems()["upstream"]
