"""Clients of the SASL listener that do not log in: they hold little, for a short time, and keep no other client out."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from headgate.embedded import SecurityProtocol
from headgate.wire.messages.groups import ListGroupsRequest
from tests.integration.gateway.exercise import new_topic, round_trip, until
from tests.support.cluster import USERS, Cluster
from tests.support.gateway import GatewayProcess
from tests.support.raw_client import RawClient

Start = Callable[..., GatewayProcess]

SILENT = 300


def sasl_gateway(cluster: Cluster, start: Start, password_file: Path, **settings: object) -> GatewayProcess:
    return start(
        cluster.kafka.bootstrap_of(SecurityProtocol.SASL_PLAINTEXT),
        upstream__service_user="admin",
        upstream__service_mechanism="SCRAM-SHA-512",
        upstream__service_password_file=str(password_file),
        **settings,
    )


def test_silent_sockets_dial_no_broker_and_free_their_slots_beside_a_healthy_client(
    cluster: Cluster, start: Start, password_file: Path
) -> None:
    gateway = sasl_gateway(
        cluster,
        start,
        password_file,
        gateway__first_request_ms=10_000,
        gateway__max_unproved_connections=SILENT + 10,
        gateway__max_unproved_connections_per_address=SILENT + 10,
    )
    with ExitStack() as stack:
        for _ in range(SILENT):
            stack.enter_context(RawClient(gateway.bootstrap))
        until(lambda: gateway.metric("headgate_connections_unproved") == SILENT)
        assert gateway.metric("headgate_connections") == 0  # none has a connection to a broker
        healthy = cluster.client_config(SecurityProtocol.SASL_PLAINTEXT, bootstrap=gateway.bootstrap)
        round_trip(healthy, new_topic(cluster))
        until(lambda: gateway.metric("headgate_connections_ended_total", cause="no_request") == SILENT)
        until(lambda: gateway.metric("headgate_connections_unproved") == 0)
        round_trip(healthy, new_topic(cluster))
    assert gateway.metric("headgate_connections_ended_total", cause="too_many_unproved") == 0


def test_clients_beyond_the_cap_of_an_address_are_refused_and_proved_ones_do_not_count(
    cluster: Cluster, start: Start, password_file: Path
) -> None:
    gateway = sasl_gateway(
        cluster, start, password_file, gateway__workers=2, gateway__max_unproved_connections_per_address=3
    )
    with ExitStack() as stack:
        for _ in range(6):
            client = stack.enter_context(RawClient(gateway.bootstrap))
            client.log_in("admin", USERS["admin"])
            assert client.call(ListGroupsRequest(), 4).error_code == 0
        for _ in range(3):
            stack.enter_context(RawClient(gateway.bootstrap))
        until(lambda: gateway.metric("headgate_connections_unproved") == 3)
        with RawClient(gateway.bootstrap) as refused:
            assert refused.has_ended()
        with RawClient(gateway.bootstrap, source="127.0.0.8") as elsewhere:
            elsewhere.api_versions()
    until(lambda: gateway.metric("headgate_connections_unproved") == 0)


def test_a_newcomer_logs_in_while_two_addresses_fill_the_limit(
    cluster: Cluster, start: Start, password_file: Path
) -> None:
    gateway = sasl_gateway(
        cluster,
        start,
        password_file,
        gateway__workers=2,
        gateway__first_request_ms=60_000,
        gateway__max_unproved_connections=20,
        gateway__max_unproved_connections_per_address=10,
    )
    with ExitStack() as stack:
        proved = stack.enter_context(RawClient(gateway.bootstrap))
        proved.log_in("admin", USERS["admin"])
        assert proved.call(ListGroupsRequest(), 4).error_code == 0
        # All at one worker's port: the newcomers of the other one are not refused either.
        flood = [
            stack.enter_context(RawClient(gateway.address(0), source=source))
            for source in ("127.0.0.6", "127.0.0.7")
            for _ in range(10)
        ]
        until(lambda: gateway.metric("headgate_connections_unproved") == 20)
        for _ in range(8):  # the bootstrap port is of both workers
            newcomer = stack.enter_context(RawClient(gateway.bootstrap, source="127.0.0.8"))
            newcomer.log_in("admin", USERS["admin"])
            assert newcomer.call(ListGroupsRequest(), 4).error_code == 0
        greeting = stack.enter_context(RawClient(gateway.address(0), source="127.0.0.8"))
        greeting.api_versions()
        assert flood[0].has_ended()
        assert proved.call(ListGroupsRequest(), 4).error_code == 0
        until(lambda: gateway.metric("headgate_connections_ended_total", cause="displaced") >= 1)
        assert gateway.metric("headgate_connections_ended_total", cause="too_many_unproved") == 0
    until(lambda: gateway.metric("headgate_connections_unproved") == 0)


def test_a_client_that_only_greets_is_closed_by_the_broker_and_one_that_logged_in_stays(
    cluster: Cluster, start: Start, password_file: Path
) -> None:
    gateway = sasl_gateway(cluster, start, password_file, gateway__first_request_ms=2000)
    with RawClient(gateway.bootstrap) as idle:
        idle.log_in("admin", USERS["admin"])
        with RawClient(gateway.bootstrap) as greeting:  # the younger one: its deadlines end later
            greeting.api_versions()
            assert greeting.has_ended()
        until(lambda: gateway.metric("headgate_connections_unproved") == 0)
        assert idle.call(ListGroupsRequest(), 4).error_code == 0
