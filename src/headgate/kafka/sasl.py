"""Authenticating Headgate's own connections: SaslHandshake and SaslAuthenticate with PLAIN or SCRAM.

Only for calls that Headgate makes for itself. A client's authentication passes through untouched and is never ours.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scramp import ScramClient, ScramException  # type: ignore[import-untyped]

from headgate.base.errors import ClusterError
from headgate.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from headgate.kafka.caller import Caller

_HANDSHAKE, _AUTHENTICATE = 17, 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The service account; its password is shown nowhere."""

    user: str
    password: str
    mechanism: str

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r}, mechanism={self.mechanism!r})"


async def authenticate(caller: "Caller", credentials: Credentials) -> None:
    """Prove who we are on a fresh connection; a refusal is a `ClusterError` with the broker's own text."""
    request = SaslHandshakeRequest(mechanism=credentials.mechanism)
    answer = await caller.call(_HANDSHAKE, request, SaslHandshakeResponse, 1)
    if answer.error_code:
        offered = ", ".join(answer.mechanisms)
        raise ClusterError(f"the broker does not offer SASL {credentials.mechanism}, but: {offered}")
    if credentials.mechanism == "PLAIN":
        await _exchange(caller, f"\0{credentials.user}\0{credentials.password}".encode())
        return
    try:
        client = ScramClient([credentials.mechanism], credentials.user, credentials.password)
        first = await _exchange(caller, client.get_client_first().encode())
        client.set_server_first(first.decode())
        # The broker says how often to hash, up to millions of times: not on the event loop.
        proof: str = await asyncio.to_thread(client.get_client_final)
        final = await _exchange(caller, proof.encode())
        client.set_server_final(final.decode())
    except (ScramException, UnicodeDecodeError) as problem:
        raise ClusterError(f"SASL {credentials.mechanism} as {credentials.user!r} cannot go on: {problem}") from None


async def _exchange(caller: "Caller", token: bytes) -> bytes:
    request = SaslAuthenticateRequest(auth_bytes=token)
    answer = await caller.call(_AUTHENTICATE, request, SaslAuthenticateResponse, 2)
    if answer.error_code:
        raise ClusterError(f"the broker refuses the service account: {answer.error_message or answer.error_code}")
    return answer.auth_bytes
