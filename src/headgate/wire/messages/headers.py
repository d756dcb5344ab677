"""What stands before every request and response.

Which version a call has is the registry's answer: flexible requests carry header 2, flexible responses header 1, and
ApiVersions responses header 0 whatever their version (KIP-511).
"""

from headgate.wire.schema import Message, header, int16, int32, string


@header(valid="1-2", flexible="2+")
class RequestHeader(Message):
    """The client id keeps its old form in version 2, so that a broker can read it from any version."""

    request_api_key: int = int16("0+")
    request_api_version: int = int16("0+")
    correlation_id: int = int32("0+")
    client_id: str | None = string("1+", nullable="1+", never_flexible=True)


@header(valid="0-1", flexible="1+")
class ResponseHeader(Message):
    correlation_id: int = int32("0+")
