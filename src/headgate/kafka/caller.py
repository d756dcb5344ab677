"""One connection to a broker on which Headgate asks for itself: a call, its answer, nothing pipelined.

For the few calls about the cluster itself. Producers and consumers are confluent-kafka's business, and calls for a
client go on the client's own connection.
"""

import asyncio
import ssl
from typing import Self, TypeVar

from headgate.base.errors import ClusterError, WireError
from headgate.wire import frames
from headgate.wire.codec import decode, encode
from headgate.wire.registry import request_header_version, response_header_version
from headgate.wire.schema import Message

M = TypeVar("M", bound=Message)

_CLIENT_ID = b"headgate"
_LARGEST_ANSWER = 64 * 1024 * 1024


class Caller:
    """A connection to `host:port`; every failure is a `ClusterError`, after which it is closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout: float) -> None:
        self._reader = reader
        self._writer = writer
        self._timeout = timeout
        self._correlation_id = 0

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        timeout: float,  # noqa: ASYNC109 - one deadline for this and for each call
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        except TimeoutError:
            raise ClusterError(f"no connection to {host}:{port} within {timeout:g} s") from None
        except OSError as failure:
            raise ClusterError(f"no connection to {host}:{port}: {failure.strerror or failure}") from None
        except (ValueError, OverflowError) as failure:  # a name that no resolver takes, a port that is none
            raise ClusterError(f"no connection to {host!r}:{port}: {failure}") from None
        return cls(reader, writer, timeout)

    async def call(self, key: int, request: Message, answer_class: type[M], version: int) -> M:
        self._correlation_id += 1
        header = frames.RequestHeader(
            api_key=key,
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=_CLIENT_ID,
            tags=b"\x00" if request_header_version(key, version) == 2 else b"",
        )
        flexible = response_header_version(key, version) == 1
        try:
            async with asyncio.timeout(self._timeout):
                self._writer.write(frames.frame(header.encode(), encode(request, version)))
                await self._writer.drain()
                size = int.from_bytes(await self._reader.readexactly(4), "big", signed=True)
                content = await self._reader.readexactly(_bounded(size))
            (correlation_id,) = frames.CORRELATION_ID.unpack_from(content, 0)
            if correlation_id != self._correlation_id:
                raise WireError(f"correlation id {correlation_id} instead of {self._correlation_id}")  # noqa: TRY301
            return decode(answer_class, version, content, frames.answer_body(content, flexible=flexible))
        except TimeoutError:
            self.close()
            raise ClusterError(f"no answer to {answer_class.__name__} within {self._timeout:g} s") from None
        except (OSError, asyncio.IncompleteReadError) as failure:
            self.close()
            raise ClusterError(f"the connection ended before {answer_class.__name__}: {failure}") from None
        except WireError as problem:
            self.close()
            raise ClusterError(f"not a Kafka broker's answer: {problem}") from None

    def close(self) -> None:
        self._writer.close()


def _bounded(size: int) -> int:
    if not frames.SMALLEST_ANSWER <= size <= _LARGEST_ANSWER:
        raise WireError(f"an answer of {size} bytes")
    return size
