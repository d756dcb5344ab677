"""The status pages: `/metrics`, `/healthz` and `/readyz`, over HTTP/1.1 with h11.

`/healthz` says that the process runs; `/readyz` says whether a client that comes now is served, and if not, why. Its
details name what else an operator should know: they never change whether the process is ready.
One connection is answered at a time, and each within a deadline: these pages are for one collector, not for the world.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import h11
import structlog

from headgate.base.errors import PlatformError
from headgate.config.addresses import Address

log = structlog.get_logger()

_DEADLINE_SECONDS = 5.0
_LARGEST_REQUEST = 16 * 1024
LARGEST_CROWD = 32

Page = tuple[int, str, bytes]  # status, content type, body


class StatusPages:
    """Serves the pages; `metrics`, `problems` and `details` are asked at each request."""

    def __init__(
        self,
        metrics: Callable[[], bytes],
        problems: Callable[[], Mapping[str, str]],
        details: Callable[[], Mapping[str, str]] = dict,
        *,
        deadline_s: float = _DEADLINE_SECONDS,
    ) -> None:
        self._deadline_s = deadline_s
        self._metrics = metrics
        self._problems = problems
        self._details = details
        self._visits: set[asyncio.Task[None]] = set()

    @property
    def visits(self) -> int:
        """Connections that are being answered."""
        return len(self._visits)

    @asynccontextmanager
    async def serving(self, listen: Address, *, named: str = "metrics.listen") -> AsyncIterator[None]:
        """The pages, as long as the block runs; `named` is where the operator said the address."""
        try:
            server = await asyncio.start_server(self._receive, listen.host, listen.port, limit=_LARGEST_REQUEST)
        except OSError as failure:
            raise PlatformError(
                f"cannot listen on {listen} for the status pages: {failure.strerror}. Choose another {named}"
            ) from None
        try:
            yield
        finally:
            server.close()
            for visit in self._visits:
                visit.cancel()
            await asyncio.gather(*self._visits, return_exceptions=True)

    def page(self, path: str) -> Page:
        match path.partition("?")[0]:
            case "/metrics":
                return 200, "text/plain; version=0.0.4; charset=utf-8", self._metrics()
            case "/healthz":
                return 200, "text/plain", b"ok\n"
            case "/readyz":
                problems = self._problems()
                report = {"ready": not problems, "problems": dict(problems), "details": dict(self._details())}
                return (503 if problems else 200), "application/json", json.dumps(report).encode() + b"\n"
            case _:
                return 404, "text/plain", b"there are /metrics, /healthz and /readyz\n"

    def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.visits >= LARGEST_CROWD:
            writer.transport.abort()
            return
        visit = asyncio.get_running_loop().create_task(self._serve_one(reader, writer))
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)  # so that a page that is not taken counts for the deadline
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._answer(reader, writer)
            writer.close()
        except (TimeoutError, OSError, h11.RemoteProtocolError):
            pass  # a visitor that is slow, gone or no HTTP client is no event
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_LARGEST_REQUEST)
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                break
            if event is not h11.NEED_DATA:
                return
            connection.receive_data(await reader.read(4096))
        if event.method in {b"GET", b"HEAD"}:
            status, content_type, body = self.page(event.target.decode("ascii", "replace"))
        else:
            status, content_type, body = 405, "text/plain", b"only GET\n"
        headers = [
            ("content-type", content_type),
            ("content-length", str(len(body))),
            ("cache-control", "no-store"),
            ("connection", "close"),
        ]
        writer.write(connection.send(h11.Response(status_code=status, headers=headers)) or b"")
        if event.method != b"HEAD":
            writer.write(connection.send(h11.Data(data=body)) or b"")
        await writer.drain()
