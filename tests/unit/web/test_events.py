"""`GET /api/v1/events`: what listeners get, in which order, what they may see, and the bounds."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from starlette.types import Message

from headgate.facts import EventHappened, GroupPaused, JsonText
from headgate.web.api.estate_tables import EstateTables
from headgate.web.live_feed import FeedLimits, LiveFeed, NoticeKind, TooManyListenersError, bounded_detail
from headgate.web.live_sources import MOST_AT_ONCE, LiveSources
from headgate.web.tokens import TokenScope, add_token
from headgate.web.visible_names import ALL_NAMES, VisibleNames
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import TWO
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.share_port import FakeShares
from tests.unit.web.stage import NOW_MS

WAIT_S = 30.0


@dataclass
class EventReading:
    """A client of the stream: the events so far, the status, and the raw text."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""
    came: asyncio.Event = field(default_factory=asyncio.Event)
    is_ended: bool = False

    @property
    def events(self) -> list[tuple[str, Any]]:
        found = []
        for block in self.text.split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
            if "event" in lines:
                found.append((lines["event"], json.loads(lines["data"])))
        return found

    @property
    def last_id(self) -> str:
        return [line for line in self.text.split("\n") if line.startswith("id: ")][-1].removeprefix("id: ")

    async def until(self, is_there: Callable[["EventReading"], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not is_there(self):
                self.came.clear()
                await self.came.wait()

    async def kinds(self, *wanted: str) -> None:
        await self.until(lambda now: [kind for kind, _ in now.events][: len(wanted)] == list(wanted))


@asynccontextmanager
async def reading(stage: ApiStage, *, token: str = "", last_id: str = "") -> AsyncIterator[EventReading]:
    """A request as a server passes it on; the client is gone at the end of the block."""
    found, gone = EventReading(), asyncio.Event()
    headers = {"host": "localhost"}
    headers |= {"authorization": f"Bearer {token}"} if token else {}
    headers |= {"last-event-id": last_id} if last_id else {}
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/v1/events",
        "raw_path": b"/api/v1/events",
        "query_string": b"",
        "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
        "client": ("127.0.0.1", 50_000),
    }
    is_sent = False

    async def receive() -> Message:
        nonlocal is_sent
        if not is_sent:
            is_sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            found.status = message["status"]
            found.headers = {name.decode(): text.decode() for name, text in message["headers"]}
        else:
            found.text += message.get("body", b"").decode()
            found.is_ended = not message.get("more_body", False)
        found.came.set()

    serving = asyncio.ensure_future(stage.app(scope, receive, send))
    try:
        yield found
    finally:
        gone.set()
        await asyncio.wait_for(serving, WAIT_S)


@pytest.fixture
def stage(shop_tables: tuple[EstateTables, FakeClock]) -> ApiStage:
    return ApiStage(*shop_tables, share_port=FakeShares.of_the_shop())


def shares(stage: ApiStage) -> FakeShares:
    assert isinstance(stage.share_port, FakeShares)
    return stage.share_port


def paused(group: str, reason: str = "deploy") -> GroupPaused:
    return GroupPaused(group=group, reason=reason, by="User:ops", at=TWO)


def happened(subject: str, **detail: Any) -> EventHappened:
    return EventHappened(
        subject_kind="share_group",
        subject=subject,
        id="e",
        event="paused",
        by="User:ops",
        at=TWO,
        detail=JsonText.of(detail),
    )


async def test_a_listener_gets_the_current_state_and_then_each_change(stage: ApiStage) -> None:
    async with stage.live.running(), reading(stage) as client:
        await client.kinds("snapshot")
        assert client.status == 200
        assert client.headers["content-type"].startswith("text/event-stream")
        assert client.headers["cache-control"] == "no-store"
        _, first = client.events[0]
        assert [row["name"] for row in first["paused"]] == ["billing", "refunds"]
        assert first["problem"] is None
        shares(stage).apply(paused("picking\n\nevent: forged"))
        await client.until(lambda now: any(kind == "share_group" for kind, _ in now.events))
        (row,) = [data for kind, data in client.events if kind == "share_group"]
        assert (row["name"], row["paused"]) == ("picking\n\nevent: forged", True)
        assert [kind for kind, _ in client.events if kind == "forged"] == []


async def test_tables_are_named_when_their_versions_change(stage: ApiStage) -> None:
    async with stage.live.running(), reading(stage) as client:
        await client.until(lambda now: any(kind == "tables" for kind, _ in now.events))
        data = next(data for kind, data in client.events if kind == "tables")
        assert data["tables"]["lineage_edges"] >= 0


class FailingVersions:
    """Versions that cannot be read, each time for the next of `failures`; None is a look that succeeds."""

    def __init__(self, *failures: Exception | None) -> None:
        self._failures = list(failures)
        self.is_over = asyncio.Event()

    async def versions(self) -> dict[str, int]:
        if not self._failures:
            self.is_over.set()
            return {}
        failure = self._failures.pop(0)
        if failure is not None:
            raise failure
        return {}


async def test_versions_that_cannot_be_read_are_logged_once_and_when_they_can_be_read_again() -> None:
    away, other = OSError("the store is away"), RuntimeError("a defect")
    tables = FailingVersions(away, away, other, away, other, None, None)
    live = LiveSources(port=None, tables=tables, clock=FakeClock(NOW_MS), look_s=0.001)
    with structlog.testing.capture_logs() as logs:
        async with live.running():
            with live.feed.listening("one", None):
                await asyncio.wait_for(tables.is_over.wait(), WAIT_S)
    assert [(one["log_level"], one["event"], one.get("error")) for one in logs] == [
        ("warning", "versions of tables cannot be read", repr(away)),
        ("warning", "versions of tables cannot be read", repr(other)),
        ("info", "versions of tables can be read again", None),
    ]


async def test_what_was_missed_is_sent_after_the_last_event_id_and_an_unknown_id_gets_a_snapshot(
    stage: ApiStage,
) -> None:
    async with stage.live.running():
        async with reading(stage) as client:
            shares(stage).apply(paused("one"))
            await client.until(lambda now: any(data.get("name") == "one" for _, data in now.events))
            last_id = client.last_id
        shares(stage).apply(paused("two"))
        async with reading(stage, last_id=last_id) as client:
            await client.until(lambda now: any(data.get("name") == "two" for _, data in now.events))
            assert "snapshot" not in [kind for kind, _ in client.events]
            assert "one" not in [data.get("name") for _, data in client.events]
        for strange in ("other-1", f"{last_id.partition('-')[0]}-99999", "-", "\u0661-\u0661"):
            async with reading(stage, last_id=strange.encode().decode("latin-1")) as client:
                await client.kinds("snapshot")


async def test_a_token_with_names_gets_only_these(shop_tables: tuple[EstateTables, FakeClock], tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    token = add_token(
        file, name="team", scope=TokenScope.READ, expires=datetime(2100, 1, 1, tzinfo=UTC), names=["refund*"]
    )
    stage = ApiStage(*shop_tables, tokens_file=file, is_read_open=False, share_port=FakeShares.of_the_shop())
    async with stage.live.running(), reading(stage, token=token) as client:
        await client.kinds("snapshot")
        shares(stage).apply(paused("billing"), paused("refunds", "again"))
        stage.live.take_events([happened("billing"), happened("refunds", other="billing")])
        await client.until(lambda now: {"share_group", "happened"} <= {kind for kind, _ in now.events})
        assert "billing" not in client.text
        assert "dlq.orders" not in client.text, "a dead-letter topic that the token may not see"
        row = next(data for kind, data in client.events if kind == "share_group")
        assert (row["name"], row["dlq_topic_hidden"]) == ("refunds", True)


async def test_without_a_token_the_stream_is_refused_and_a_removed_token_ends_it(
    shop_tables: tuple[EstateTables, FakeClock], tmp_path: Path
) -> None:
    file = tmp_path / "tokens.toml"
    token = add_token(file, name="team", scope=TokenScope.READ, expires=datetime(2100, 1, 1, tzinfo=UTC))
    shares, limits = FakeShares.of_the_shop(), FeedLimits(heartbeat_s=0.01)
    stage = ApiStage(*shop_tables, tokens_file=file, is_read_open=False, share_port=shares, limits=limits)
    async with reading(stage) as refused:
        await refused.until(lambda now: now.is_ended)
        assert refused.status == 401
    async with reading(stage, token=token) as client:
        await client.until(lambda now: ": heartbeat" in now.text)
        file.write_text("")
        await client.until(lambda now: now.is_ended)
        assert client.events[-1] == ("closed", {"reason": "Invalid or expired bearer token"})


LATER = datetime.fromtimestamp(NOW_MS / 1000 + 1_800, UTC)
NARROWED = 'names = ["picking"]\n'


def hourly(tables: EstateTables, clock: FakeClock, tokens: Path) -> ApiStage:
    """Checks tokens once an hour, by the clock of the test."""
    return ApiStage(
        tables,
        clock,
        tokens_file=tokens,
        is_read_open=False,
        share_port=FakeShares.of_the_shop(),
        limits=FeedLimits(heartbeat_s=3_600.0),
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda _: "", "Invalid or expired bearer token"),
        (lambda text: text, "Invalid or expired bearer token"),  # its time is over
        (
            lambda text: text.replace("expires = 2027", "expires = 2099") + NARROWED,
            "The names of the token are others now: connect again",
        ),
    ],
    ids=["removed", "expired", "narrowed"],
)
async def test_a_token_that_ended_gets_nothing_more_although_events_come_all_the_time(
    shop_tables: tuple[EstateTables, FakeClock],
    tmp_path: Path,
    change: Callable[[str], str],
    reason: str,
) -> None:
    file, clock = tmp_path / "tokens.toml", FakeClock(NOW_MS)
    token = add_token(file, name="team", scope=TokenScope.READ, expires=LATER)
    stage = hourly(shop_tables[0], clock, file)
    async with stage.live.running(), reading(stage, token=token) as client:
        await client.kinds("snapshot")
        file.write_text(change(file.read_text()))
        clock.now_ms += 3_599_000
        shares(stage).apply(paused("picking", "before"))
        await client.until(lambda now: "before" in now.text)
        clock.now_ms += 1_000
        shares(stage).apply(paused("picking", "after"))
        await client.until(lambda now: now.is_ended)
        assert client.events[-1] == ("closed", {"reason": reason})
        assert "after" not in client.text


async def test_a_token_that_holds_reads_on_after_it_was_checked(
    shop_tables: tuple[EstateTables, FakeClock], tmp_path: Path
) -> None:
    file, clock = tmp_path / "tokens.toml", FakeClock(NOW_MS)
    token = add_token(file, name="team", scope=TokenScope.READ, expires=datetime(2100, 1, 1, tzinfo=UTC))
    stage = hourly(shop_tables[0], clock, file)
    async with stage.live.running(), reading(stage, token=token) as client:
        for number in range(3):
            clock.now_ms += 3_600_000
            shares(stage).apply(paused("picking", f"check {number}"))
            await client.until(lambda now, wanted=f"check {number}": wanted in now.text)  # type: ignore[misc]


async def test_a_slow_reader_is_dropped_and_told() -> None:
    feed = LiveFeed(lambda _: {}, FeedLimits(queue=3))
    with feed.listening("one", None) as listener:
        for number in range(5):
            feed.publish(NoticeKind.SHARE_GROUP, {"name": str(number), "dlq_topic": None}, subject=str(number))
        assert listener.closed is not None
        assert "connect again" in listener.closed
        assert not feed.has_listeners, "its place is free"
        assert await listener.next(0) is None


async def test_listeners_are_bounded_in_all_and_for_each_caller() -> None:
    feed = LiveFeed(lambda _: {}, FeedLimits(listeners=3, of_one_caller=2))
    with feed.listening("one", None), feed.listening("one", None):
        with pytest.raises(TooManyListenersError), feed.listening("one", None):
            pass
        with feed.listening("two", None), pytest.raises(TooManyListenersError), feed.listening("three", None):
            pass
        with feed.listening("three", None):
            pass


async def test_a_listener_that_is_refused_gets_503(shop_tables: tuple[EstateTables, FakeClock]) -> None:
    stage = ApiStage(*shop_tables, limits=FeedLimits(listeners=0))
    answer = await stage.get("events")
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")


async def test_many_changes_at_once_are_one_snapshot(stage: ApiStage) -> None:
    async with stage.live.running(), reading(stage) as client:
        await client.kinds("snapshot")
        shares(stage).apply(*(paused(f"g{number}") for number in range(MOST_AT_ONCE + 1)))
        await client.until(lambda now: [kind for kind, _ in now.events].count("snapshot") == 2)
        assert "share_group" not in [kind for kind, _ in client.events]


async def test_a_state_that_is_not_up_to_date_is_reported_and_a_snapshot_follows_when_it_is(stage: ApiStage) -> None:
    async with stage.live.running(), reading(stage) as client:
        await client.kinds("snapshot")
        shares(stage).problem = "the topic is away"
        await client.until(lambda now: ("problem", {"problem": "the topic is away"}) in now.events)
        shares(stage).apply(paused("late"))
        shares(stage).problem = None
        await client.until(lambda now: ("problem", {"problem": None}) in now.events)
        await client.until(lambda now: "late" in json.dumps(now.events))


async def test_the_end_of_the_server_ends_the_streams(stage: ApiStage) -> None:
    async with stage.live.running(), reading(stage) as client:
        await client.kinds("snapshot")
        stage.live.feed.close()
        await client.until(lambda now: now.is_ended)
        assert client.events[-1][0] == "closed"


def test_a_large_detail_is_left_out() -> None:
    assert bounded_detail({"detail": {"text": "x" * 9_000}}) == {"detail": None}
    assert bounded_detail({"detail": {"text": "x"}}) == {"detail": {"text": "x"}}


def test_an_event_that_may_not_be_seen_keeps_its_id() -> None:
    feed = LiveFeed(lambda _: {})
    feed.publish(NoticeKind.HAPPENED, {"detail": None}, subject="billing")
    (notice,) = feed._kept
    assert feed.text(notice, VisibleNames(("shop*",))).startswith("id: ")
    assert "event" not in feed.text(notice, VisibleNames(("shop*",)))
    assert "event: happened" in feed.text(notice, ALL_NAMES)
