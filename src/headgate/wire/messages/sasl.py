"""The two calls of a SASL exchange; its tokens are opaque here."""

from headgate.wire.schema import (
    STRING,
    Message,
    array,
    binary,
    int16,
    int64,
    message,
    string,
)


@message(api_key=17)
class SaslHandshakeRequest(Message):
    mechanism: str = string("0+")


@message(api_key=17)
class SaslHandshakeResponse(Message):
    error_code: int = int16("0+")
    mechanisms: tuple[str, ...] = array(STRING, "0+")


@message(api_key=36)
class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = binary("0+")


@message(api_key=36)
class SaslAuthenticateResponse(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = binary("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
