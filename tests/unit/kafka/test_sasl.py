"""The service account proves who it is, has the broker prove the same, and shows its password to nobody."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from scramp import ScramMechanism  # type: ignore[import-untyped]

from headgate.base.errors import ClusterError
from headgate.kafka.connections import BrokerConnection, Credentials, authenticate
from headgate.wire.messages.cluster import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

USER, PASSWORD = "svc,=user", "not-for-anybody"
SCRAM = ["SCRAM-SHA-256", "SCRAM-SHA-512"]

Step = Callable[[bytes], SaslAuthenticateResponse]


def credentials(mechanism: str, password: str = PASSWORD) -> Credentials:
    return Credentials(user=USER, password=password, mechanism=mechanism)


class FakeBroker:
    """Answers the calls of an authentication, step by step."""

    def __init__(self, *steps: Step, offered: tuple[str, ...] = ("PLAIN", *SCRAM)) -> None:
        self._steps = list(steps)
        self._offered = offered
        self.asked: list[Any] = []

    async def call(self, request: Any, version: int) -> Any:
        self.asked.append((request.api_key, version, request))
        if isinstance(request, SaslHandshakeRequest):
            code = 0 if request.mechanism in self._offered else 33
            return SaslHandshakeResponse(error_code=code, mechanisms=self._offered)
        assert isinstance(request, SaslAuthenticateRequest)
        return self._steps.pop(0)(request.auth_bytes)

    def log_in(self, who: Credentials) -> None:
        asyncio.run(authenticate(cast(BrokerConnection, self), who))
        assert not self._steps


def says(token: bytes) -> Step:
    return lambda _: SaslAuthenticateResponse(auth_bytes=token)


def refuses(text: str | None) -> Step:
    return lambda _: SaslAuthenticateResponse(error_code=58, error_message=text)


def scram_broker(mechanism: str, password: str = PASSWORD) -> FakeBroker:
    """A broker that knows the user."""
    method = ScramMechanism(mechanism)
    secrets = method.make_auth_info(password)
    server = method.make_server(lambda _: secrets)

    def first(token: bytes) -> SaslAuthenticateResponse:
        server.set_client_first(token.decode())
        return SaslAuthenticateResponse(auth_bytes=server.get_server_first().encode())

    def final(token: bytes) -> SaslAuthenticateResponse:
        server.set_client_final(token.decode())
        return SaslAuthenticateResponse(auth_bytes=server.get_server_final().encode())

    return FakeBroker(first, final)


def test_plain_sends_user_and_password_as_rfc_4616_says() -> None:
    broker = FakeBroker(says(b""))
    broker.log_in(credentials("PLAIN"))
    [handshake, login] = broker.asked
    assert handshake == (17, 1, SaslHandshakeRequest(mechanism="PLAIN"))
    assert login == (36, 2, SaslAuthenticateRequest(auth_bytes=b"\0svc,=user\0not-for-anybody"))


@pytest.mark.parametrize("mechanism", SCRAM)
def test_scram_proves_the_password_without_sending_it(mechanism: str) -> None:
    broker = scram_broker(mechanism)
    broker.log_in(credentials(mechanism))
    sent = b"".join(request.auth_bytes for _, _, request in broker.asked[1:])
    assert b"n=svc=2C=3Duser" in sent
    assert PASSWORD.encode() not in sent


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_broker_that_does_not_know_the_password_either_is_not_believed(mechanism: str) -> None:
    honest = scram_broker(mechanism)
    [first, _] = honest._steps
    liar = FakeBroker(first, says(b"v=" + b"A" * 43 + b"="))
    with pytest.raises(ClusterError, match=f"SASL {mechanism} as 'svc,=user' failed"):
        liar.log_in(credentials(mechanism))


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_a_refusal_is_told_in_the_brokers_words(mechanism: str) -> None:
    text = "Authentication failed: Invalid username or password"
    with pytest.raises(ClusterError, match=f"the broker rejected the login: {text}"):
        FakeBroker(refuses(text)).log_in(credentials(mechanism))


def test_a_refusal_without_words_is_told_by_its_code() -> None:
    with pytest.raises(ClusterError, match="the broker rejected the login: 58"):
        FakeBroker(refuses(None)).log_in(credentials("PLAIN"))


def test_a_mechanism_that_is_not_offered_is_told_with_those_that_are() -> None:
    broker = FakeBroker(offered=("PLAIN", "OAUTHBEARER"))
    with pytest.raises(ClusterError, match="does not offer SASL SCRAM-SHA-512, but: PLAIN, OAUTHBEARER"):
        broker.log_in(credentials("SCRAM-SHA-512"))


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"garbage",
        b"\xff\xfe",
        b"r=other,s=c2FsdHNhbHRzYWx0,i=4096",
        b"r=other,s=!,i=4096",
        b"e=other-error",
        b"i=99999999999",
    ],
)
@pytest.mark.parametrize("mechanism", SCRAM)
def test_what_is_no_scram_is_an_error_of_the_cluster(mechanism: str, first: bytes) -> None:
    with pytest.raises(ClusterError):
        FakeBroker(says(first)).log_in(credentials(mechanism))


@pytest.mark.parametrize("iterations", [1, 4095, 1_000_000_000])
def test_a_broker_that_asks_for_a_senseless_number_of_hashes_is_refused(iterations: int) -> None:
    def first(token: bytes) -> SaslAuthenticateResponse:
        nonce = token.decode().rpartition("r=")[2]
        return SaslAuthenticateResponse(auth_bytes=f"r={nonce}more,s=c2FsdHNhbHRzYWx0,i={iterations}".encode())

    with pytest.raises(ClusterError, match="failed: "):
        FakeBroker(first).log_in(credentials("SCRAM-SHA-512"))


def test_a_password_that_scram_cannot_carry_is_an_error_and_not_shown() -> None:
    with pytest.raises(ClusterError) as failure:
        FakeBroker().log_in(credentials("SCRAM-SHA-256", "tab\tin-the-password"))
    assert "in-the-password" not in str(failure.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_the_password_is_not_in_the_representation(mechanism: str) -> None:
    shown = repr(credentials(mechanism)) + str(credentials(mechanism)) + f"{[credentials(mechanism)]}"
    assert PASSWORD not in shown
    assert USER in shown


def test_the_password_is_in_no_error() -> None:
    for broker in (FakeBroker(refuses("no")), FakeBroker(says(b"garbage")), FakeBroker(offered=())):
        with pytest.raises(ClusterError) as failure:
            broker.log_in(credentials("SCRAM-SHA-256"))
        assert PASSWORD not in repr(failure.value)
        assert failure.value.__cause__ is None
