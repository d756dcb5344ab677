"""An application without a server: a fake cluster behind it, and calls as a server would hand them over."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message

from headgate.activity.model.connect_records import ActiveTopics, TopicReset, TopicUsed
from headgate.base.errors import ClusterError
from headgate.web.access import Access
from headgate.web.application import make_application
from headgate.web.connectors import ConnectCluster

NOW_MS = 1_800_000_000_000


@dataclass
class FakeClock:
    now_ms: int = NOW_MS

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def epoch_ms(self) -> int:
        return self.now_ms


@dataclass
class FakeStatus:
    """A cluster's active topics in memory; `failing` is what a reset says."""

    topics: ActiveTopics = field(default_factory=ActiveTopics)
    is_ready: bool = True
    problem: str | None = None
    failing: str | None = None

    def use(self, connector: str, *topics: str) -> None:
        for topic in topics:
            self.topics.apply(TopicUsed(topic=topic, connector=connector, task=0, discover_timestamp_ms=1))

    async def reset(self, connector: str) -> tuple[str, ...]:
        if self.failing is not None:
            raise ClusterError(self.failing)
        known = self.topics.of(connector)
        for topic in known:
            self.topics.apply(TopicReset(topic=topic, connector=connector))
        return known


@dataclass
class FakeWire:
    topics: ActiveTopics = field(default_factory=ActiveTopics)
    problem: str | None = None


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Stage:
    """Two clusters: `main`, the first, and `other`."""

    main: Any = field(default_factory=FakeStatus)
    other: Any = field(default_factory=FakeStatus)
    wire: Any = field(default_factory=FakeWire)
    tracking: bool = True
    allow_reset: bool = True
    has_clusters: bool = True
    tokens_file: Path | None = None
    is_read_open: bool = True
    clock: FakeClock = field(default_factory=FakeClock)

    def application(self) -> ASGIApp:
        clusters = {
            "main": ConnectCluster(status=self.main if self.tracking else None, allow_reset=self.allow_reset),
            "other": ConnectCluster(status=self.other, allow_reset=True),
        }
        access = Access(tokens_file=self.tokens_file, is_read_open=self.is_read_open, clock=self.clock)
        return make_application(
            clusters=clusters if self.has_clusters else {},
            wire=self.wire,
            access=access,
            allowed_hosts=("localhost", "127.0.0.1", "::1"),
        )

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        client: str = "127.0.0.1",
        headers: Mapping[str, str] | None = None,
        host: tuple[str, ...] = ("127.0.0.1:8080",),
    ) -> Answer:
        """`path` as it is behind the server: percent signs are gone."""
        lines = [("host", one) for one in host] + [(name.lower(), text) for name, text in (headers or {}).items()]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), text.encode()) for name, text in lines],
            "client": (client, 50_000),
            "server": ("127.0.0.1", 8080),
        }
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.application()(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return Answer(sent[0]["status"], body, dict(_decoded(sent[0]["headers"])))


def _decoded(headers: list[tuple[bytes, bytes]]) -> Iterator[tuple[str, str]]:
    for name, text in headers:
        yield name.decode(), text.decode()
