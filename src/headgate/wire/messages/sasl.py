"""The two calls of a SASL exchange; its tokens are opaque here."""

from headgate.base.ids import ApiKey
from headgate.wire.schema import (
    STRING,
    Message,
    Request,
    array,
    binary,
    int16,
    int64,
    request,
    response,
    string,
)


@request(ApiKey.SASL_HANDSHAKE)
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    mechanism: str = string("0+")


@response(SaslHandshakeRequest)
class SaslHandshakeResponse(Message):
    error_code: int = int16("0+")
    mechanisms: tuple[str, ...] = array(STRING, "0+")


@request(ApiKey.SASL_AUTHENTICATE)
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    auth_bytes: bytes = binary("0+")


@response(SaslAuthenticateRequest)
class SaslAuthenticateResponse(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = binary("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
