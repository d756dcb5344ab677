"""The application without a server: fakes of what it reads, and requests as a server passes them on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message

from headgate.activity.model.connect_records import ActiveTopics, TopicReset
from headgate.base.errors import ClusterError
from headgate.web.access import AccessControl
from headgate.web.application import make_application
from headgate.web.connectors import ConnectCluster
from headgate.web.live_sources import LiveSources
from tests.support.clock import FakeClock

NOW_MS = 1_800_000_000_000


@dataclass
class FakeTopics:
    """Active topics in memory; `failing` is the error of a reset."""

    topics: ActiveTopics = field(default_factory=ActiveTopics)
    is_ready: bool = True
    problem: str | None = None
    failing: str | None = None

    def use(self, connector: str, *topics: str) -> None:
        for topic in topics:
            self.topics.add(topic, connector)

    async def reset(self, connector: str) -> None:
        if self.failing is not None:
            raise ClusterError(self.failing)
        for topic in self.topics.of(connector):
            self.topics.apply(TopicReset(topic=topic, connector=connector))


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

    main: Any = field(default_factory=FakeTopics)
    other: Any = field(default_factory=FakeTopics)
    wire: Any = field(default_factory=FakeTopics)
    tracking: bool = True
    allow_reset: bool = True
    has_clusters: bool = True
    tokens_file: Path | None = None
    is_read_open: bool = True
    clock: FakeClock = field(default_factory=lambda: FakeClock(NOW_MS))
    tables: Any = None
    share_port: Any = None
    operations: Any = None
    statuses: Any = None

    made: ASGIApp | None = None  # the application, where a test makes it once

    def application(self) -> ASGIApp:
        if self.made is not None:
            return self.made
        clusters = {
            "main": ConnectCluster(status=self.main if self.tracking else None, allow_reset=self.allow_reset),
            "other": ConnectCluster(status=self.other, allow_reset=True),
        }
        access = AccessControl(tokens_file=self.tokens_file, is_read_open=self.is_read_open, clock=self.clock)
        return make_application(
            clusters=clusters if self.has_clusters else {},
            wire=self.wire,
            access=access,
            allowed_hosts=("localhost", "127.0.0.1", "::1"),
            tables=self.tables,
            share_port=self.share_port,
            feed=LiveSources(port=self.share_port, tables=None, clock=self.clock).feed,
            leader=None,
            operations=self.operations,
            statuses=self.statuses,
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
        """`path` is decoded, as a server passes it on."""
        lines = [("host", one) for one in host] + [(name.lower(), text) for name, text in (headers or {}).items()]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), text.encode()) for name, text in lines],
            "client": (client, 50_000),
        }
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.application()(scope, receive, send)
        found = {name.decode(): text.decode() for name, text in sent[0]["headers"]}
        return Answer(sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]), found)
