"""Who a connection has proved to be: only what the broker accepted, and never a secret."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.ids import ApiKey, ApiVersion, CorrelationId
from headgate.proxy.interceptor import Forward, RequestFrame
from headgate.proxy.principals import ANONYMOUS, ClientSoftware, Principals
from headgate.wire.codec import encode
from headgate.wire.messages.cluster import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from headgate.wire.schema import Message
from tests.support.fake_upstream import answer, request
from tests.unit.proxy.stage import stage, until

HANDSHAKE, AUTHENTICATE, API_VERSIONS = 17, 36, 18
PLAIN = b"\0alice\0secret"
SCRAM = b"n,,n=alice,r=nonce"
FINAL = b"c=biws,r=nonce2,p=proof"


class Connection:
    number = 7


class Exchange:
    """A client and a broker, seen by the watcher alone; answers come in pieces of `piece` bytes."""

    def __init__(self, *, version: int = 2, piece: int = 1000) -> None:
        self.principals = Principals()
        self.session: Any = Connection()
        self.version = version
        self.piece = piece

    def ask(self, key: int, version: int, body: bytes) -> Any:
        frame = RequestFrame(
            api_key=ApiKey(key),
            api_version=ApiVersion(version),
            correlation_id=CorrelationId(1),
            client_id="c",
            body=memoryview(body),
            size=len(body),
        )
        outcome = self.principals.on_request(frame, self.session)
        assert isinstance(outcome, Forward)
        return outcome.context

    def told(self, context: Any, key: int, version: int, body: Message) -> None:
        frame = memoryview(answer(key, version, 1, body))
        for at in range(0, len(frame), self.piece):
            self.principals.on_chunk(frame[at : at + self.piece], context, self.session)
        self.principals.on_chunk(memoryview(b""), context, self.session)

    def handshake(self, mechanism: str, code: int = 0) -> None:
        context = self.ask(HANDSHAKE, 1, encode(SaslHandshakeRequest(mechanism=mechanism), 1))
        self.told(context, HANDSHAKE, 1, SaslHandshakeResponse(error_code=code))

    def token(self, token: bytes) -> object:
        return self.ask(AUTHENTICATE, self.version, encode(SaslAuthenticateRequest(auth_bytes=token), self.version))

    def accept(self, context: object, code: int = 0) -> None:
        self.told(context, AUTHENTICATE, self.version, SaslAuthenticateResponse(error_code=code, auth_bytes=b"x" * 50))

    def authenticate(self, token: bytes, code: int = 0) -> None:
        self.accept(self.token(token), code)

    @property
    def principal(self) -> str | None:
        return self.principals.principal_of(self.session)


def test_a_connection_that_never_logs_in_is_anonymous_as_at_the_broker() -> None:
    assert Exchange().principal == ANONYMOUS


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("piece", [1, 8, 11, 1000])
def test_plain_is_proved_by_the_brokers_first_answer(version: int, piece: int) -> None:
    exchange = Exchange(version=version, piece=piece)
    exchange.handshake("PLAIN")
    assert exchange.principal is None
    exchange.authenticate(PLAIN)
    assert exchange.principal == "User:alice"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_is_proved_by_the_second_answer_only(mechanism: str) -> None:
    exchange = Exchange()
    exchange.handshake(mechanism)
    exchange.authenticate(SCRAM)
    assert exchange.principal is None
    exchange.authenticate(FINAL)
    assert exchange.principal == "User:alice"


@pytest.mark.parametrize(
    ("mechanism", "token", "name"),
    [
        ("PLAIN", b"alice\0alice\0secret", "User:alice"),
        ("PLAIN", "\0zoë\0secret".encode(), "User:zoë"),
        ("PLAIN", b"\0" + b"a" * 255 + b"\0secret", "User:" + "a" * 255),
        ("PLAIN", b"\0" + b"a" * 256 + b"\0secret", None),
        ("PLAIN", b"\0\0secret", None),
        ("PLAIN", b"\0alice", None),
        ("PLAIN", b"", None),
        ("PLAIN", b"\0\xff\0secret", None),
        ("SCRAM-SHA-256", b"n,a=alice,n=alice,r=nonce", "User:alice"),
        ("SCRAM-SHA-256", b"n,,n=a=2Cb=3Dc,r=nonce", "User:a,b=c"),
        ("SCRAM-SHA-256", b"n,,n=token-id,r=nonce,tokenauth=true", None),
        ("SCRAM-SHA-256", b"n,,n=alice,r=nonce,k=v", "User:alice"),
        ("SCRAM-SHA-256", b"n,,x=alice,r=nonce", None),
        ("SCRAM-SHA-256", b"n,,n=alice,r=" + b"r" * 2000, None),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer secret\x01\x01", None),
        ("GSSAPI", b"\x60\x82", None),
        ("NONE-SUCH", PLAIN, None),
    ],
)
def test_the_name_in_a_token(mechanism: str, token: bytes, name: str | None) -> None:
    exchange = Exchange()
    exchange.handshake(mechanism)
    exchange.authenticate(token)
    exchange.authenticate(FINAL)
    assert exchange.principal == name


def test_a_refused_log_in_proves_nothing() -> None:
    exchange = Exchange()
    exchange.handshake("PLAIN")
    exchange.authenticate(PLAIN, code=58)
    assert exchange.principal is None


def test_a_refused_mechanism_proves_nothing() -> None:
    exchange = Exchange()
    exchange.handshake("PLAIN", code=33)
    exchange.authenticate(PLAIN)
    assert exchange.principal is None


def test_another_name_pushed_in_before_the_answer_is_not_proved_by_it() -> None:
    exchange = Exchange()
    exchange.handshake("PLAIN")
    first = exchange.token(PLAIN)
    second = exchange.token(b"\0admin\0guess")
    exchange.accept(first)
    assert exchange.principal is None
    exchange.accept(second)
    assert exchange.principal is None


def test_what_was_proved_stays_while_the_client_logs_in_again() -> None:
    exchange = Exchange()
    exchange.handshake("PLAIN")
    exchange.authenticate(PLAIN)
    exchange.handshake("SCRAM-SHA-512")
    assert exchange.principal == "User:alice"
    exchange.authenticate(SCRAM)
    exchange.authenticate(FINAL)
    assert exchange.principal == "User:alice"
    exchange.handshake("PLAIN")
    exchange.authenticate(b"\0bob\0secret", code=58)
    assert exchange.principal is None


def test_where_there_is_no_sasl_a_handshake_changes_nothing() -> None:
    exchange = Exchange()
    exchange.handshake("PLAIN", code=34)
    assert exchange.principal == ANONYMOUS
    exchange = Exchange()
    exchange.handshake("PLAIN")
    exchange.authenticate(PLAIN)
    exchange.handshake("PLAIN", code=34)
    assert exchange.principal == "User:alice"


@given(st.sampled_from([HANDSHAKE, AUTHENTICATE, API_VERSIONS]), st.integers(0, 3), st.binary(max_size=80))
def test_whatever_is_sent_nobody_is_proved_by_it_alone(key: int, version: int, body: bytes) -> None:
    exchange = Exchange()
    exchange.handshake("PLAIN")
    exchange.ask(key, version, body)
    assert exchange.principal is None


@given(st.integers(0, len(encode(SaslAuthenticateRequest(auth_bytes=PLAIN), 2))))
def test_of_a_request_that_is_only_partly_here_a_whole_name_is_taken_or_none(cut: int) -> None:
    exchange = Exchange()
    exchange.handshake("PLAIN")
    exchange.accept(exchange.ask(AUTHENTICATE, 2, encode(SaslAuthenticateRequest(auth_bytes=PLAIN), 2)[:cut]))
    assert exchange.principal in ("User:alice", None)


def test_no_secret_is_kept() -> None:
    exchange = Exchange()
    exchange.handshake("PLAIN")
    exchange.authenticate(PLAIN)
    [log_in] = exchange.principals._log_ins.values()
    assert "secret" not in str([getattr(log_in, name) for name in log_in.__slots__])


def test_a_connection_that_has_ended_is_forgotten() -> None:
    exchange = Exchange()
    exchange.handshake("PLAIN")
    exchange.ask(API_VERSIONS, 3, encode(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3))
    exchange.principals.on_close(exchange.session)
    assert not exchange.principals.known_sessions


@pytest.mark.parametrize(
    ("version", "name", "release", "expected"),
    [
        (3, "apache-kafka-java", "4.3.1", ClientSoftware("apache-kafka-java", "4.3.1")),
        (4, "librdkafka", "2.11.0", ClientSoftware("librdkafka", "2.11.0")),
        (3, "bad name", "1", None),
        (3, "a" * 127, "1", ClientSoftware("a" * 127, "1")),
        (3, "a" * 128, "1", None),
        (3, "", "", None),
    ],
)
def test_what_a_client_calls_itself(version: int, name: str, release: str, expected: ClientSoftware | None) -> None:
    exchange = Exchange()
    body = encode(ApiVersionsRequest(client_software_name=name, client_software_version=release), version)
    exchange.ask(API_VERSIONS, version, body)
    assert exchange.principals.software_of(exchange.session) == expected


async def test_through_the_gateway_the_calls_pass_as_they_came() -> None:
    principals = Principals()
    async with stage(principals) as on:
        client, broker = await on.pair()
        connection = await on.connection()
        hello = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.11")
        await client.send(request(API_VERSIONS, 3, hello))
        await broker.request()
        assert principals.software_of(connection) == ClientSoftware("librdkafka", "2.11")
    async with stage(principals) as on:
        client, broker = await on.pair()
        connection = await on.connection()
        for key, version, sent, said in (
            (HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse()),
            (AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=PLAIN), SaslAuthenticateResponse()),
        ):
            frame = request(key, version, sent)
            await client.send(frame)
            asked = await broker.reply(said)
            assert asked.frame == frame
            assert await client.frame() == asked.answer(said)
        await until(lambda: principals.principal_of(connection) == "User:alice")
