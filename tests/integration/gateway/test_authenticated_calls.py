"""OAUTHBEARER, re-authentication, and our own calls on a client's connection that authenticates again under way.

The brokers announce 127.0.0.2, where a recorder stands: what reaches the broker is seen byte by byte.
"""

import asyncio
import base64
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headgate.base.errors import ClusterError
from headgate.base.ids import ApiKey, NodeId
from headgate.config.addresses import Address
from headgate.config.model import Config, GatewayConfig, MetricsConfig, UpstreamConfig
from headgate.embedded import EmbeddedKafka, SecurityProtocol
from headgate.embedded.java import class_path, find_java
from headgate.proxy.interceptor import Forward, Hold, Interceptor, OnRequest, Outcome, RequestFrame, Session
from headgate.wire.codec import encode
from headgate.wire.messages.cluster import SaslAuthenticateRequest
from headgate.wire.messages.groups import HeartbeatRequest
from tests.integration.gateway.exercise import new_topic, round_trip, until
from tests.support.certificates import make_certificates
from tests.support.cluster import USERS, Cluster, full_spec
from tests.support.compare_calls import frames
from tests.support.gateway_thread import GatewayThread
from tests.support.ports import port_block
from tests.support.raw_client import SASL_AUTHENTICATE, SASL_HANDSHAKE, RawClient
from tests.support.recorder import Connection, Endpoint, Recorder, Side
from tests.support.traffic import Traffic, contents

SASL_PLAINTEXT = SecurityProtocol.SASL_PLAINTEXT
BROKER_HOST = "127.0.0.2"
LIFETIME_MS = 4000  # of a session, for PLAIN and SCRAM-SHA-256; clients log in again when a tenth of it is left
HEARTBEAT, HEARTBEAT_VERSION = 12, 4
# Every other answer says that the user may, whether the group's coordinator is there or not (KAFKA-FACTS 9).
DENIED, ILLEGAL_SASL_STATE = 30, 34
OURS, API_VERSIONS = b"headgate", 18

_LISTENER = "listener.name.sasl_plaintext"
SETTINGS = {
    f"{_LISTENER}.plain.connections.max.reauth.ms": str(LIFETIME_MS),
    f"{_LISTENER}.scram-sha-256.connections.max.reauth.ms": str(LIFETIME_MS),
    f"{_LISTENER}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    f"{_LISTENER}.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="admin";'
    ),
}


@dataclass
class Prober(Interceptor[Any]):
    """Asks the broker for a right on the client's connection: with each FindCoordinator, and by a clock."""

    api_keys = frozenset((ApiKey(10),))
    active: bool = False
    answers: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def on_open(self, session: Session) -> None:
        if self.active:
            task = asyncio.get_running_loop().create_task(self._probe_on(session))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[Any]:  # noqa: ARG002
        return Hold(self._asked(session), deadline=10.0) if self.active else Forward()

    async def _asked(self, session: Session) -> Outcome[Any]:
        await self._probe(session)
        return Forward()

    async def _probe_on(self, session: Session) -> None:
        while self.active:
            try:
                await self._probe(session)
            except ClusterError as failure:
                self.failures.append(str(failure))
                return
            await asyncio.sleep(0.002)

    async def _probe(self, session: Session) -> None:
        probe = HeartbeatRequest(group_id="probe", generation_id=-1, member_id="headgate-probe")
        self.answers.append((await session.call(probe, HEARTBEAT_VERSION, deadline=30.0)).error_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    cluster: Cluster
    gateway: GatewayThread
    recorder: Recorder
    prober: Prober


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, password_file: Path) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("sessions")
    certificates = make_certificates(folder / "certificates")
    spec = full_spec(folder / "data", certificates, advertised_host=BROKER_HOST, settings=SETTINGS)
    [broker] = [one.ports(NodeId(0))[0] for one in spec.client_listeners if one.protocol is SASL_PLAINTEXT]
    port = port_block()
    config = Config(
        gateway=GatewayConfig(listen=Address("127.0.0.1", port), nodes=(NodeId(0),)),
        upstream=UpstreamConfig(
            bootstrap=(Address(BROKER_HOST, broker),),
            service_user="admin",
            service_password_file=password_file,
            service_mechanism="SCRAM-SHA-512",
        ),
        metrics=MetricsConfig(listen=Address("127.0.0.1", port + 15)),
    )
    prober = Prober()
    seen_by_broker = Recorder({
        Endpoint(BROKER_HOST, broker): Endpoint("127.0.0.1", broker),
        Endpoint(BROKER_HOST, spec.port): Endpoint("127.0.0.1", spec.port),
    })  # fmt: skip
    with (
        EmbeddedKafka(spec) as kafka,
        seen_by_broker as recorder,
        GatewayThread(config, [prober]) as gateway,
    ):
        cluster = Cluster(kafka=kafka, certificates=certificates)
        yield Lab(cluster=cluster, gateway=gateway, recorder=recorder, prober=prober)


def unsecured_token(user: str) -> bytes:
    """A JWT without a signature, which a broker takes that was given nothing to verify one with (KIP-255)."""
    now = int(time.time())
    parts: Sequence[dict[str, object]] = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + 600})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b"n,,\x01auth=Bearer " + b".".join(encoded) + b".\x01\x01"


# OAUTHBEARER.


def test_a_client_logs_in_with_oauthbearer(lab: Lab) -> None:
    config = {
        "bootstrap.servers": lab.gateway.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "sasl.oauthbearer.config": "principal=admin lifeSeconds=600",
    }
    round_trip(config, new_topic(lab.cluster))


def test_the_bytes_of_a_log_in_pass_untouched(lab: Lab) -> None:
    token = unsecured_token("alice")
    lab.recorder.take(quiet=lambda _: True)
    with RawClient(lab.gateway.bootstrap) as client:
        client.api_versions()
        assert client.handshake("OAUTHBEARER").error_code == 0
        sent = client.send(SASL_AUTHENTICATE, 2, encode(SaslAuthenticateRequest(auth_bytes=token), 2))
        received = client.frame()
    until(lambda: bool(_with_frame(lab.recorder, sent)))
    [connection] = _with_frame(lab.recorder, sent)
    assert [key_of(frame.data) for frame in frames(connection, Side.CLIENT)] == [18, SASL_HANDSHAKE, SASL_AUTHENTICATE]
    assert frames(connection, Side.SERVER)[-1].data == received
    assert received[4:7] == b"\x00\x00\x00"  # no tags, no error


def _with_frame(recorder: Recorder, sent: bytes) -> list[Connection]:
    return [one for one in recorder._connections if sent in one.sent_by(Side.CLIENT)]


def key_of(frame: bytes) -> int:
    return int.from_bytes(frame[:2])


# Re-authentication (KIP-368).


def test_librdkafka_authenticates_again_on_the_connections_that_it_has(lab: Lab) -> None:
    config = lab.cluster.client_config(SASL_PLAINTEXT, mechanism="PLAIN", bootstrap=lab.gateway.bootstrap)
    with Traffic(config, new_topic(lab.cluster), pace_ms=5) as traffic:
        connections = lab.gateway.metric("headgate_connections_accepted")
        logins = lab.gateway.metric("headgate_calls", "SaslHandshake")
        until(lambda: lab.gateway.metric("headgate_calls", "SaslHandshake") >= logins + 2)
        assert lab.gateway.metric("headgate_connections_accepted") == connections
        report = traffic.finish()
    assert report.errors == ()
    assert report.acked <= report.read


def test_a_java_producer_authenticates_again_on_the_connections_that_it_has(lab: Lab, tmp_path: Path) -> None:
    settings = lab.cluster.java_config(SASL_PLAINTEXT, mechanism="PLAIN", bootstrap=lab.gateway.bootstrap)
    file = tmp_path / "producer.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    before = lab.gateway.metric("headgate_calls", "SaslHandshake")
    opened = lab.gateway.metric("headgate_connections_accepted")
    topic = new_topic(lab.cluster)
    words = ["--topic", topic, "--num-records", "60000", "--record-size", "100", "--throughput", "100"]

    def has_logged_in_again() -> bool:
        logins = lab.gateway.metric("headgate_calls", "SaslHandshake") - before
        return logins > lab.gateway.metric("headgate_connections_accepted") - opened

    with subprocess.Popen(
        [
            find_java().command,
            "-Xmx128m",
            "-XX:TieredStopAtLevel=1",
            *("-cp", class_path("broker"), "org.apache.kafka.tools.ProducerPerformance"),
            *words,
            *("--command-config", file, "--command-property", "acks=all", "enable.idempotence=true"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as producing:
        try:
            until(has_logged_in_again)
            assert producing.poll() is None
        finally:
            producing.terminate()
            said, _ = producing.communicate(timeout=60)
    assert "ERROR" not in said, said
    assert contents(lab.cluster.client_config(), topic)[0]


# Our own calls on the clients' connections.


def test_our_calls_never_stand_inside_an_authentication_and_work_before_and_behind_it(lab: Lab) -> None:
    config = lab.cluster.client_config(SASL_PLAINTEXT, mechanism="SCRAM-SHA-256", bootstrap=lab.gateway.bootstrap)
    lab.recorder.take(quiet=lambda _: True)
    lab.prober.active = True
    try:
        with Traffic(config, new_topic(lab.cluster), pace_ms=5) as traffic:
            until(lambda: any(map(_has_calls_around_a_login, map(_sent_to_broker, list(lab.recorder._connections)))))
            report = traffic.finish()
    finally:
        lab.prober.active = False
    assert report.errors == ()
    assert report.acked <= report.read
    assert set(lab.prober.answers).isdisjoint({DENIED, ILLEGAL_SASL_STATE})
    conversations = [_sent_to_broker(one) for one in lab.recorder.take(quiet=lambda _: True)]
    assert not any(map(_inside_authentication, conversations))
    assert any(map(_has_calls_around_a_login, conversations))


def test_our_calls_are_answered_while_the_client_waits_for_its_own(lab: Lab) -> None:
    lab.recorder.take(quiet=lambda _: True)
    lab.prober.active = True
    lab.prober.answers.clear()
    try:
        with RawClient(lab.gateway.bootstrap) as client:
            assert client.log_in("admin", USERS["admin"]).error_code == 0
            calls = [(10, 4, b"\x00\x02\x02g\x00"), (16, 0, b"")] * 20  # FindCoordinator is held, ListGroups passes
            for key, version, body in calls:
                client.send(key, version, body)
            for key, version, _ in calls:
                assert client.receive(key, version)
    finally:
        lab.prober.active = False
    assert len(lab.prober.answers) >= 20
    assert set(lab.prober.answers).isdisjoint({DENIED, ILLEGAL_SASL_STATE})


def _sent_to_broker(connection: Connection) -> list[tuple[int, bool]]:
    """The calls of a connection in the order in which the broker got them: key, and whether it was our own."""
    sent = []
    for frame in frames(connection, Side.CLIENT):
        size = int.from_bytes(frame.data[8:10], signed=True)
        sent.append((key_of(frame.data), frame.data[10 : 10 + max(0, size)] == OURS))
    return sent


def _has_calls_around_a_login(sent: Sequence[tuple[int, bool]]) -> bool:
    """Whether the client logged in again on this connection, with calls of our own before and behind that."""
    logins = [place for place, call in enumerate(sent) if call == (SASL_HANDSHAKE, False)]
    own = [place for place, call in enumerate(sent) if call == (HEARTBEAT, True)]
    return any(own[0] < login < own[-1] for login in logins[1:]) if own else False


def _inside_authentication(sent: Sequence[tuple[int, bool]]) -> list[int]:
    """Places of our calls between two calls of the client that belong to one log-in.

    A call behind the last SaslAuthenticate is not inside: the client's next call may be held for it.
    """
    inside, found, open_places = False, [], []
    for place, (key, is_ours) in enumerate(sent):
        if is_ours:
            open_places += [place] if inside else []
            continue
        if key == SASL_AUTHENTICATE:
            found += open_places
        inside, open_places = key in {SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS}, []
    return found
