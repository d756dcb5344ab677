"""Plans and replays through the REST interface: who may, what is answered, and what becomes of a process.

The process is a few lines that speak as the real one does; `tests/integration/dead_letters/test_web_replay.py` has the
real one.
"""

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog

from headgate.base.locations import Location, ObjectLocation
from headgate.config.addresses import Address
from headgate.dead_letters.model.plans import ReplayRules
from headgate.facts import EventHappened, ReplayStateChanged
from headgate.facts.plan_requests import PlanAnswered, PlanRequested
from headgate.facts.replays import ReplayProgressed, encode_progress
from headgate.kafka.connections import Credentials
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.plan_models import PlanDetailModel, PlanRequestModel, PlansModel, ReplayModel, ReplaysModel
from headgate.web.operations import GatewayAccess, OperationError
from headgate.web.record_view import MAX_SHORT, shown_bytes
from headgate.web.replay_runs import supervisor as supervisor_module
from headgate.web.replay_runs.job import ReplayCommand, ReplayJob, ReplayKind
from headgate.web.replay_runs.progress import ReplayRecords, replay_records
from headgate.web.replay_runs.replay_operations import ReplayOperations
from headgate.web.replay_runs.service import ReplayService
from headgate.web.tokens import TokenScope, add_token
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import TWO, write
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.replay_stage import replay_service
from tests.unit.web.stage import Answer

JSON = {"content-type": "application/json"}
LATER = datetime(2100, 1, 1, tzinfo=UTC)
GATEWAY = GatewayAccess(address=Address("127.0.0.1", 9092), has_tls=False, tls_ca=None, has_sasl=True)
REPORT = {"event": "ended", "state": "DONE", "written": 3, "parked": 0, "skipped": 0, "reasons": {}, "stopped_by": None}
WRONG: list[dict[str, Any]] = [
    *({"written": "1"}, {"state": "x"}, {"state": []}),
    *({"reasons": {"a": []}}, {"stopped_by": 1}, {"event": "other"}),
]
CREDENTIAL = {"user": "dora", "password": "correct horse", "mechanism": "PLAIN"}


def _plan(name: str, group: str, **more: Any) -> dict[str, Any]:
    known = {"plan": name, "group": group, "at": TWO, "by": "ops", "selection": '{"group":"billing","where":"x"}'}
    documents = {"targets": '{"orders":"id"}', "reasons": '{"boom":3}', "readers": '["streams totals"]'}
    return known | documents | {"to": "original", "records": 3, "parked": 1, "expired": 2} | more


ROWS: dict[str, list[dict[str, Any]]] = {
    "replay_plans": [
        _plan("p1", "billing"),
        _plan("p2", "billing", at=TWO + 1),
        _plan("broken", "billing", at=1),
        _plan("refused", "billing", at=1),
        _plan("hung", "billing", at=1),
        _plan("hidden", "other", at=TWO + 2),
        _plan("asked", "billing", at=1, selection='{"group":"billing","where":"partition = 1","request":"known"}'),
    ],
    "replay_plan_records": [
        {"plan": "p1", "position": position, "topic": "orders", "offset": 10 + position, "action": action}
        | {"reason": "secret of a record"}
        | {"target_topic": None if action == "leave_out" else "orders", "why": why, "dlq_topic": "dlq.orders"}
        for position, (action, why) in enumerate([("replay", None), ("leave_out", "expired"), ("replay", None)])
    ],
}


@dataclass
class Desk:
    """The application, with what was recorded of operations."""

    stage: ApiStage
    replays: ReplayService
    written: list[EventHappened] = field(default_factory=list)

    async def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        content = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
        headers = JSON | more.pop("headers", {})
        return await self.stage.request("POST", f"/api/v1/{path}", headers=headers, body=content, **more)

    async def until(self, plan: str, is_so: Callable[[ReplayModel], bool]) -> ReplayModel:
        async with asyncio.timeout(20):
            while not is_so(  # noqa: ASYNC110 - as a page does
                found := ReplayModel.model_validate(await self.stage.json(f"replays/{plan}"))
            ):
                await asyncio.sleep(0.01)
        return found


@pytest.fixture(scope="module")
def plan_tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EstateTables]:
    root: Path = tmp_path_factory.mktemp("plans")
    for name, rows in ROWS.items():
        write(root, name, rows)
    tables = EstateTables(root, FakeClock(TWO))
    yield tables
    asyncio.run(tables.close())


@pytest.fixture
def desk(plan_tables: EstateTables, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return make_desk(plan_tables, monkeypatch)


def make_desk(
    tables: EstateTables, monkeypatch: pytest.MonkeyPatch, tokens_file: Path | None = None, **limits: Any
) -> Desk:
    written: list[EventHappened] = []

    async def audit(fact: EventHappened) -> None:
        written.append(fact)

    async def reach(*_: Any) -> None:
        """The gateway lets everyone in."""

    monkeypatch.setattr(GatewayAccess, "reach", reach)
    monkeypatch.setattr(ReplayOperations, "_write", lambda *_: None)
    clock = FakeClock(TWO)
    replays = replay_service(tables, GATEWAY, audit, clock, **limits)
    stage = ApiStage(tables, clock, tokens_file=tokens_file, replays=replays)
    return Desk(stage=stage, replays=replays, written=written)


# --- plans ------------------------------------------------------------------------------------------------------------


async def test_plans_with_what_their_replays_have_done(desk: Desk) -> None:
    desk.replays.view.records.take([changed("p1", "RUNNING"), progressed("p1", 2), progressed("p1", 1, "skipped")])
    found = PlansModel.model_validate(await desk.stage.json("plans", group="billing", limit=2))
    assert ([one.plan for one in found.plans], found.truncated) == (["p2", "p1"], True)
    assert [(one.state, one.written, one.skipped) for one in found.plans] == [("PLANNED", 0, 0), ("RUNNING", 2, 1)]
    assert (found.plans[0].records, found.plans[0].to_park, found.plans[0].reasons) == (3, 1, {"boom": 3})
    page = PlanDetailModel.model_validate(await desk.stage.json("plans/p1", limit=2))
    assert ([(row.offset, row.why) for row in page.rows], page.next) == ([(10, None), (11, "expired")], 1)
    assert page.selection == {"group": "billing", "where": "x"}
    rest = await desk.stage.json("plans/p1", after=1)
    assert ([row["offset"] for row in rest["rows"]], rest["next"]) == ([12], None)
    assert (await desk.stage.get("plans/nothing")).status == 404


async def test_a_token_with_names_gets_no_reasons_of_hidden_topics(
    plan_tables: EstateTables, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "tokens.toml"
    token = add_token(file, name="team", scope=TokenScope.READ, expires=LATER, names=["billing"])
    desk = make_desk(plan_tables, monkeypatch, tokens_file=file)
    found = PlanDetailModel.model_validate((await desk.stage.get("plans/p1", token=token)).json)
    assert (found.reasons, found.readers, found.selection) == ({}, None, None)
    assert {(row.topic, row.reason) for row in found.rows} == {(None, None)}


async def test_without_tables_there_are_no_plans(shop: ApiStage) -> None:
    assert (await shop.json("plans"))["plans"] == []


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"group": "billing", "to": "original", "where": "resaon = 'x'"}, 400, "\n    resaon = 'x'\n    ^"),
        ({"group": "billing", "to": "original", "where": "x" * 7000}, 400, "where"),
        ({"to": "original"}, 400, "either group or topic"),
        ({"group": "billing", "topic": "dlq.orders", "to": "original"}, 400, "either group or topic"),
        ({"group": "billing"}, 400, "The body must be"),
        ({"group": "billing", "to": "original", "since": "never"}, 400, "since"),
        ({"group": "billing", "to": "original", "since": 2, "until": 1}, 400, "before"),
        (b" " * 20_000, 413, "bytes"),
        (b"[" * 10_000, 400, "The body must be"),
    ],
)
async def test_a_request_that_is_no_plan_is_refused_before_it_is_written(
    desk: Desk, body: Any, status: int, text: str
) -> None:
    answer = await desk.post("plans", body)
    assert (answer.status, text in answer.json["message"]) == (status, True), answer.body
    assert desk.written == []


async def test_a_request_for_a_plan_is_followed_to_its_answer(desk: Desk) -> None:
    answer = await desk.post("plans", {"group": "billing", "to": "original", "accept_fanout": True, "since": TWO - 9})
    assert answer.status == 202, answer.body
    request = answer.json["request"]
    assert [fact.detail.value()["operation"] for fact in desk.written] == ["plan"]

    async def status() -> PlanRequestModel:
        return PlanRequestModel.model_validate(await desk.stage.json(f"plan-requests/{request}"))

    found = await status()
    assert (found.state, found.text, found.by) == ("WAITING", None, "address 127.0.0.1")
    desk.stage.clock.now_ms += 31_000
    assert "is `headgate pipeline run` running" in str((await status()).text)
    asked = desk.replays.view.records.request(request)
    assert asked is not None
    assert (asked.request.options, asked.request.since) == (("accept_fanout",), TWO - 9)
    take = desk.replays.view.records.take
    take([PlanAnswered(at=1, request=request, state="RUNNING", text="scanning")])
    assert ((await status()).state, (await status()).text) == ("RUNNING", "scanning")
    take([PlanAnswered(at=2, request=request, state="REFUSED", text="others read orders\n  streams totals")])
    take([PlanAnswered(at=3, request=request, state="DONE", plan="forged")])
    assert ((await status()).state, (await status()).plan) == ("REFUSED", None)
    assert (await desk.stage.get("plan-requests/nothing")).status == 404


KNOWN = PlanRequested(at=TWO, request="known", by="ops", group="billing", where="partition  = 1", to="original")


@pytest.mark.parametrize(
    ("request_", "plan", "text"),
    [
        (KNOWN, "asked", None),
        (replace(KNOWN, request="another"), "asked", "was made for another request"),
        (replace(KNOWN, where="partition = 2"), "asked", "was made for another request"),
        (replace(KNOWN, options=("include_superseded",)), "asked", "was made for another request"),
        (replace(KNOWN, to="orders"), "asked", "was made for another request"),
        (KNOWN, "p1", "was made for another request"),
        (replace(KNOWN, where="no expression"), "asked", "was made for another request"),
        (KNOWN, "nothing", "the tables here do not have"),
        (KNOWN, "\udcff", "the answer names a plan, which the tables here do not have"),
    ],
)
async def test_an_answer_counts_only_with_the_plan_that_was_asked_for(
    desk: Desk, request_: PlanRequested, plan: str, text: str | None
) -> None:
    name = request_.request
    desk.replays.view.records.take([request_, PlanAnswered(at=1, request=name, state="DONE", plan=plan)])
    found = PlanRequestModel.model_validate(await desk.stage.json(f"plan-requests/{name}"))
    if text is None:
        assert (found.state, found.plan, found.text) == ("DONE", plan, None)
    else:
        assert (found.state, found.plan, text in str(found.text)) == ("FAILED", None, True)


async def test_a_token_with_names_plans_and_counts_records_of_its_topics_alone(
    plan_tables: EstateTables, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "tokens.toml"
    names = ["billing", "shop-*"]
    token = add_token(file, name="team", scope=TokenScope.OPERATE, expires=LATER, names=names)
    desk = make_desk(plan_tables, monkeypatch, tokens_file=file)
    body = {"group": "billing", "to": "original", "where": "topic like 'sec%'"}
    answer = await desk.post("plans", body, token=token)
    asked = desk.replays.view.records.request(answer.json["request"])
    assert asked is not None
    assert asked.request.topics == tuple(names)


# --- replays ----------------------------------------------------------------------------------------------------------


async def test_a_replay_is_started_paused_resumed_and_stopped_and_its_password_is_nowhere(desk: Desk) -> None:
    with structlog.testing.capture_logs() as logged:
        answer = await desk.post("replays", {"plan": "p1", "rate": 50, "credential": CREDENTIAL})
        assert answer.status == 202, answer.body
        assert answer.json["state"] == "STARTING"
        await desk.until("p1", lambda one: one.state == "RUNNING")
        assert (await desk.post("replays", {"plan": "p1", "credential": CREDENTIAL})).status == 409
        assert (await desk.post("replays/p1/pause")).status == 200
        await desk.until("p1", lambda one: one.state == "PAUSED")
        assert (await desk.post("replays/p1/resume")).status == 200
        found = await desk.until("p1", lambda one: one.state == "RUNNING")
        assert (found.here, found.written, found.records, found.rate, found.go_on) == (True, 2, 4, 50, None)
        assert found.notes == ["seen False by User:dora at 50.0"]
        listed = ReplaysModel.model_validate(await desk.stage.json("replays"))
        assert ([one.plan for one in listed.replays], listed.running) == (["p1"], 1)
        assert (await desk.post("replays/p1/stop")).status == 200
        found = await desk.until("p1", lambda one: not one.here)
    assert (found.state, found.stopped_by) == ("PAUSED", "stopped by address 127.0.0.1")
    assert "headgate dlq replay p1" in str(found.go_on)
    assert (await desk.post("replays/p1/pause")).status == 409
    operations = [(fact.by, fact.detail.value()["operation"], fact.detail.value()["outcome"]) for fact in desk.written]
    assert operations[:3] == [
        ("User:dora", "replay", "done"),
        ("User:dora", "replay", "refused"),
        ("User:ANONYMOUS", "pause_replay", "done"),
    ]
    assert CREDENTIAL["password"] not in repr(logged) + repr(desk.written) + repr(found)


async def test_the_end_of_the_server_stops_its_replays(
    plan_tables: EstateTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk(plan_tables, monkeypatch)
    async with desk.replays.running():
        await desk.post("replays", {"plan": "p1", "credential": CREDENTIAL})
        await desk.until("p1", lambda one: one.state == "RUNNING")
    found = await desk.until("p1", lambda one: not one.here)
    assert (found.state, found.stopped_by) == ("PAUSED", "the web server ended")
    assert (await desk.post("replays", {"plan": "p2", "credential": CREDENTIAL})).status == 503


async def test_an_abort_ends_the_replay_that_runs_here_and_the_plan(desk: Desk) -> None:
    async with desk.replays.running():
        assert (await desk.post("replays", {"plan": "p1", "credential": CREDENTIAL})).status == 202
        await desk.until("p1", lambda one: one.state == "RUNNING")
        assert (await desk.post("replays/p1/abort", {"credential": CREDENTIAL})).status == 202
        found = await desk.until("p1", lambda one: one.state == "ABORTED" and not one.here)
        assert (found.written, found.go_on) == (2, None)
    assert [fact.detail.value()["operation"] for fact in desk.written] == ["replay", "abort"]


async def test_an_abort_kills_a_process_that_does_not_end(
    plan_tables: EstateTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk(plan_tables, monkeypatch, end_s=0.2)
    async with desk.replays.running():
        await desk.post("replays", {"plan": "hung", "credential": CREDENTIAL})
        await desk.until("hung", lambda one: one.state == "RUNNING")
        assert (await desk.post("replays/hung/abort", {"credential": CREDENTIAL})).status == 202
        await desk.until("hung", lambda one: one.state == "ABORTED" and not one.here)


async def test_a_paused_replay_goes_on_only_for_its_own_operator(
    plan_tables: EstateTables, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "tokens.toml"
    alice, bob = (
        add_token(file, name=name, scope=TokenScope.OPERATE, expires=LATER, names=[]) for name in ("alice", "bob")
    )
    desk = make_desk(plan_tables, monkeypatch, tokens_file=file)
    async with desk.replays.running():
        await desk.post("replays", {"plan": "p1", "credential": CREDENTIAL}, token=alice)
        await desk.until("p1", lambda one: one.state == "RUNNING")
        assert (await desk.post("replays/p1/pause", token=bob)).status == 200
        await desk.until("p1", lambda one: one.state == "PAUSED")
        refused = await desk.post("replays/p1/resume", token=bob)
        assert (refused.status, "writes as User:dora, for token alice" in refused.json["message"]) == (403, True)
        assert (await desk.post("replays/p1/resume", token=alice)).status == 200
        assert (await desk.post("replays/p1/stop", token=bob)).status == 200
    resumed = [fact.detail.value() for fact in desk.written if fact.detail.value()["operation"] == "resume_replay"]
    assert [(one["caller"], one["outcome"]) for one in resumed] == [("token bob", "refused"), ("token alice", "done")]


async def test_commands_to_a_process_that_has_just_ended_are_no_error(desk: Desk) -> None:
    async with desk.replays.running():
        await desk.post("replays", {"plan": "p1", "credential": CREDENTIAL})
        await desk.until("p1", lambda one: one.state == "RUNNING")
        supervisor = desk.replays.supervisor
        await supervisor.command("p1", ReplayCommand.STOP)
        while supervisor.is_running("p1"):
            with suppress(OperationError):
                await supervisor.command("p1", ReplayCommand.PAUSE)
            await asyncio.sleep(0)
        assert [one.state for one in supervisor.runs()] == ["PAUSED"]


async def test_a_long_replay_is_not_forgotten_for_later_ones(
    plan_tables: EstateTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk(plan_tables, monkeypatch, most_kept=1)
    async with desk.replays.running():
        await desk.post("replays", {"plan": "p1", "credential": CREDENTIAL})
        for plan in ("broken", "refused"):
            await desk.post("replays", {"plan": plan, "credential": CREDENTIAL})
            await desk.until("p1", lambda one: desk.replays.supervisor.running == 1 and one.state == "RUNNING")
        assert (await desk.post("replays/p1/pause")).status == 200
        assert [one.plan for one in desk.replays.supervisor.runs()] == ["p1", "refused"]


async def test_an_answer_is_not_kept_for_a_later_state_than_it_shows(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = EstateTables.stamps

    async def stamps(tables: EstateTables, names: tuple[str, ...]) -> Any:
        found = await asked(tables, names)
        if "replay_plan_records" in names:
            desk.replays.view.records.take([changed("p1", "DONE")])
        return found

    monkeypatch.setattr(EstateTables, "stamps", stamps)
    assert (await desk.stage.json("plans/p1"))["state"] == "DONE"


def test_the_process_imports_nothing_from_the_folder_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "headgate").mkdir()
    (tmp_path / "headgate" / "__init__.py").write_text("raise SystemExit(7)")
    ended = subprocess.run(supervisor_module.COMMAND, cwd=tmp_path, input=b"", check=False, timeout=60)
    assert ended.returncode == 1  # it was given no job


async def test_only_so_many_replays_run_at_once(plan_tables: EstateTables, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = make_desk(plan_tables, monkeypatch, most_running=1)
    async with desk.replays.running():
        assert (await desk.post("replays", {"plan": "p1", "credential": CREDENTIAL})).status == 202
        answer = await desk.post("replays", {"plan": "p2", "credential": CREDENTIAL})
        assert (answer.status, "run here already" in answer.json["message"]) == (503, True)


async def test_a_process_that_refuses_or_breaks_is_a_failed_replay(desk: Desk) -> None:
    for plan, error in (("refused", "shop.x does not exist"), ("broken", "code 3")):
        await desk.post("replays", {"plan": plan, "credential": CREDENTIAL, "dry_run": plan == "broken"})
        found = await desk.until(plan, lambda one: not one.here and "STARTING" not in repr(one))
        failed = found.dry_run or found
        assert (failed.state, error in str(failed.error)) == ("FAILED", True)


@pytest.mark.parametrize(
    "line",
    [
        *(b"a warning of a library\n", b"\xff", b"[]", b"7", b"{}", b"[" * 100_000, b'{"event":"note"}'),
        *(b'{"event":"note","text":7}', b'{"event":"failed"}', b'{"event":"ended"}', b'{"event":["progress"]}'),
        *(json.dumps(REPORT | wrong).encode() for wrong in WRONG),
    ],
)
def test_a_line_that_is_no_report_changes_nothing(line: bytes) -> None:
    run = supervisor_module.ReplayRun(
        plan="p", group="g", kind=ReplayKind.REPLAY, rate=None, timestamps="now", by="User:dora", caller="c", at=1
    )
    before = asdict(run)
    assert not supervisor_module.take_report(run, line)
    assert asdict(run) == before
    assert supervisor_module.take_report(run, json.dumps(REPORT).encode())
    assert (run.state, run.written) == ("DONE", 3)


async def test_a_plan_that_is_done_or_unknown_is_not_replayed(desk: Desk) -> None:
    desk.replays.view.records.take([changed("p2", "ABORTED")])
    answer = await desk.post("replays", {"plan": "p2", "credential": CREDENTIAL})
    assert (answer.status, "make a new plan" in answer.json["message"]) == (409, True)
    assert (await desk.post("replays", {"plan": "nothing", "credential": CREDENTIAL})).status == 404
    for body in ({"plan": "p1", "rate": 0}, {"plan": "p1", "rate": float("nan")}, {"plan": "p1", "timestamp": "then"}):
        assert (await desk.post("replays", body)).status == 400
    assert desk.replays.supervisor.running == 0


async def test_without_a_user_or_from_another_page_nothing_is_started(
    plan_tables: EstateTables, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "tokens.toml"
    tokens = {
        name: add_token(file, name=name, scope=scope, expires=LATER, names=names)
        for name, scope, names in (
            ("reader", TokenScope.READ, []),
            ("ops", TokenScope.OPERATE, []),
            ("team", TokenScope.OPERATE, ["refunds"]),
        )
    }
    desk = make_desk(plan_tables, monkeypatch, tokens_file=file)
    paths = ("plans", "replays", "replays/p1/pause", "replays/p1/abort", "dead-letters/record")
    for path in paths:
        assert (await desk.post(path)).status == 401
        assert (await desk.post(path, token=tokens["reader"])).status == 403
        foreign = await desk.post(path, token=tokens["ops"], headers={"origin": "https://evil.example"})
        assert (foreign.status, "another site" in foreign.json["message"]) == (403, True)
        assert (await desk.post(path, token=tokens["ops"], headers={"content-type": "text/plain"})).status == 415
    answer = await desk.post("replays", {"plan": "p1"}, token=tokens["ops"], headers={"via": "x"})
    assert (answer.status, "No user of the cluster" in answer.json["message"]) == (403, True)
    body = {"plan": "p1", "credential": CREDENTIAL}
    assert (await desk.post("replays", body, token=tokens["ops"], headers={"via": "x"})).status == 403
    # A token with names acts on its groups alone, and sees no others.
    assert (await desk.post("replays", {"plan": "p1", "credential": CREDENTIAL}, token=tokens["team"])).status == 404
    asked = await desk.post("plans", {"topic": "dlq.orders", "to": "original"}, token=tokens["team"])
    assert asked.status == 403
    assert (await desk.stage.get("plans", token=tokens["team"])).json["plans"] == []
    assert desk.replays.supervisor.running == 0


async def test_what_another_process_does_is_seen_with_how_to_go_on(desk: Desk) -> None:
    desk.replays.view.records.take([changed("p1", "RUNNING"), progressed("p1", 2)])
    found = ReplayModel.model_validate(await desk.stage.json("replays/p1"))
    assert (found.state, found.written, found.here, found.by) == ("RUNNING", 2, False, "User:ops")
    assert "it was killed" in str(found.go_on)
    desk.replays.view.records.take([changed("p1", "DONE"), changed("p;reboot", "FAILED")])
    assert (await desk.stage.json("replays/p1"))["go_on"] is None
    assert "replay 'p;reboot' --config" in str((await desk.stage.json("replays"))["replays"])
    assert (await desk.stage.get("replays/p2")).status == 404


async def test_names_that_are_not_utf8_fail_no_list(desk: Desk) -> None:
    desk.replays.view.records.take([changed("p\udcff", "RUNNING"), replace(changed("p1", "RUNNING"), by="\ud800")])
    assert {one["plan"] for one in (await desk.stage.json("replays"))["replays"]} >= {"p\udcff", "p1"}


def changed(plan: str, state: Any) -> ReplayStateChanged:
    return ReplayStateChanged(at=TWO, plan=plan, state=state, by="User:ops")


def progressed(plan: str, number: int, outcome: Any = "replayed") -> ReplayProgressed:
    places = tuple(range(number))
    written = () if outcome == "skipped" else places
    return ReplayProgressed(
        at=TWO,
        plan=plan,
        by="User:ops",
        group="billing",
        outcome=outcome,
        why=None,
        topic="orders",
        topic_id="t",
        target=None if outcome == "skipped" else "orders",
        target_id=None if outcome == "skipped" else "t",
        positions=places,
        partitions=places,
        offsets=places,
        to_partitions=written,
        to_offsets=written,
    )


# --- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tables", [Path("/tables"), ObjectLocation("lake", ("a", "b"), (("AWS_REGION", "x"),))])
def test_a_job_is_read_as_it_was_written(tables: Location) -> None:
    job = ReplayJob(
        plan="p",
        kind=ReplayKind.ABORT,
        rate=None,
        timestamps="now",
        by="User:dora",
        tables=tables,
        rules=ReplayRules(topics=("a-*", "b"), dlq_prefix="dlq.", facts_prefix="headgate.", parking_topic="p"),
        gateway=GATEWAY,
        credentials=Credentials(user="dora", password='"\u2028ü', mechanism="PLAIN"),
    )
    line = job.encode()
    assert line.count(b"\n") == 1
    read = ReplayJob.decode(line)
    assert read.rules.topics == job.rules.topics
    assert (read.gateway, read.credentials, read.tables, read.kind) == (
        job.gateway,
        job.credentials,
        job.tables,
        job.kind,
    )


@pytest.mark.parametrize(
    ("content", "text", "truncated"),
    [
        (b"", "", False),
        (b"<b>", "<b>", False),
        (b"\xff", None, False),
        ("ü".encode() * MAX_SHORT, "ü" * (MAX_SHORT // 2), True),
        (b"a" + "ü".encode() * MAX_SHORT, "a" + "ü" * (MAX_SHORT // 2 - 1), True),
        (b"a" * (MAX_SHORT - 1) + b"\xc3", None, False),
    ],
)
def test_bytes_are_shown_bounded_and_as_text_only_where_they_are(
    content: bytes, text: str | None, truncated: bool
) -> None:
    shown = shown_bytes(content, MAX_SHORT)
    assert shown is not None
    assert (shown["text"], shown["truncated"], shown["size"]) == (text, truncated, len(content))
    assert shown["hex"] == content[:MAX_SHORT].hex()
    assert shown_bytes(None, 1) is None


async def test_memory_of_plans_and_requests_is_bounded(desk: Desk) -> None:
    records = desk.replays.view.records
    request = PlanRequested(at=1, request="r", by="ops", group="billing", to="original")
    for number in range(1_200):
        records.add_request(PlanRequested(at=1, request=f"r{number}", by="ops", group="g", to="original"))
    records.take([request, *(changed(f"plan {number}", "DONE") for number in range(10_050))])
    assert records.request("r0") is None
    assert records.request("r") is not None
    assert len(records.all_totals()) == 10_000


def test_names_without_end_are_not_kept() -> None:
    long, one = "x" * 5_000, progressed("p1", 1)
    given = (replace(one, plan=long), replace(one, group=long), replace(one, by=long))
    written = map(encode_progress, given)
    kept = ReplayRecords()
    kept.take(replay_records([ConsumedRecord(0, key, value) for key, value in written]))
    assert [(one.plan, len(one.by or "")) for one in kept.all_totals()] == [("p1", 4_096)]
