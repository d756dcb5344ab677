"""The application on real tables, without a server: requests as a server passes them on."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from starlette.types import ASGIApp, Message

from headgate.web.access import AccessControl
from headgate.web.api.estate_tables import EstateTables
from headgate.web.application import make_application
from headgate.web.breaker_statuses import BreakerStatuses
from headgate.web.gateway_leader import LeaderStatus
from headgate.web.live_feed import FeedLimits
from headgate.web.live_sources import LiveSources
from headgate.web.operations import ShareGroupOperations
from headgate.web.replay_runs.service import ReplayService
from headgate.web.share_states import SharePort
from tests.support.clock import FakeClock
from tests.unit.web.stage import Answer


@dataclass
class ApiStage:
    """One application; reading needs no token unless `is_read_open` is False."""

    tables: EstateTables
    clock: FakeClock
    tokens_file: Path | None = None
    is_read_open: bool = True
    share_port: SharePort | None = None
    operations: ShareGroupOperations | None = None
    statuses: BreakerStatuses | None = None
    leader: LeaderStatus | None = None
    replays: ReplayService | None = None
    limits: FeedLimits | None = None
    app: ASGIApp = field(init=False)
    live: LiveSources = field(init=False)

    def __post_init__(self) -> None:
        self.live = LiveSources(port=self.share_port, tables=self.tables, clock=self.clock, limits=self.limits)
        self.app = make_application(
            clusters={},
            wire=None,
            access=AccessControl(tokens_file=self.tokens_file, is_read_open=self.is_read_open, clock=self.clock),
            allowed_hosts=("localhost",),
            tables=self.tables,
            share_port=self.share_port,
            feed=self.live.feed,
            leader=self.leader,
            operations=self.operations,
            statuses=self.statuses,
            replays=self.replays,
        )

    async def get(self, path: str, *, token: str = "", headers: dict[str, str] | None = None, **query: Any) -> Answer:
        """`path` is under /api/v1, encoded as clients send it; so are the values of `query` by this method."""
        sent = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items())
        return await self.request("GET", f"/api/v1/{path}", sent, token=token, headers=headers)

    async def json(self, path: str, **query: Any) -> Any:
        answer = await self.get(path, **query)
        assert answer.status == 200, answer.body
        return answer.json

    async def request(
        self,
        method: str,
        path: str,
        query: str = "",
        *,
        token: str = "",
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        given = {"host": "localhost"} | (headers or {}) | ({"authorization": f"Bearer {token}"} if token else {})
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), text.encode()) for name, text in given.items()],
            "client": ("127.0.0.1", 50_000),
        }
        pieces = [body[at : at + 50_000] for at in range(0, len(body), 50_000)] or [b""]
        sent: list[Message] = []

        async def receive() -> Message:
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        found = {name.decode(): text.decode() for name, text in sent[0]["headers"]}
        answer = Answer(sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:]), found)
        if answer.status >= 400:
            assert set(json.loads(answer.body)) == {"error_code", "message"}, "the form of an error"
            assert answer.json["error_code"] == answer.status
        return answer
