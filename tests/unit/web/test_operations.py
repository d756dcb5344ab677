"""Pausing and resuming through the REST interface: who may, what is refused before anything is sent, and the audit.

What would be sent to the gateway is recorded here instead, so that every case of it can be had at once;
`tests/integration/breaker/test_web_operations.py` has a real one.
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog

from headgate.base.errors import ClusterError
from headgate.config.addresses import Address
from headgate.config.model import Config, GatewayConfig, UpstreamConfig, WebConfig
from headgate.dead_letters.model.plans import PlanRecord
from headgate.facts import EventHappened, GroupPaused, GroupPauseEnded
from headgate.kafka.connections import Connections, Credentials, LoginError
from headgate.share_groups.admin import ActionRefusedError
from headgate.web import operations as operations_module
from headgate.web.api.estate_tables import EstateTables
from headgate.web.operations import (
    Act,
    Audit,
    GatewayAccess,
    GroupOperation,
    LoginRate,
    OperationError,
    OperationTrail,
    Operator,
    ShareGroupOperations,
)
from headgate.web.record_view import RecordViewer
from headgate.web.share_states import SharePort
from headgate.web.tokens import TokenScope, add_token, read_tokens
from headgate.wire.errors import ErrorCode
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import TWO
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.share_port import FakeShares
from tests.unit.web.stage import NOW_MS, Answer

JSON = {"content-type": "application/json"}
LATER = datetime(2100, 1, 1, tzinfo=UTC)
GATEWAY = GatewayAccess(address=Address("127.0.0.1", 9092), has_tls=False, tls_ca=None, has_sasl=True)
PASSWORD = "correct horse"


@dataclass
class OperationScene:
    """`failing` is what the gateway raises. The state follows at once."""

    stage: ApiStage
    shares: FakeShares
    sent: list[tuple[str, str, str, str, str]] = field(default_factory=list)
    written: list[EventHappened] = field(default_factory=list)
    failing: Exception | None = None

    async def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        given = {"reason": "deploy"} if body is None else body
        content = given if isinstance(given, bytes) else json.dumps(given).encode()
        headers = JSON | more.pop("headers", {})
        return await self.stage.request("POST", f"/api/v1/share-groups/{path}", headers=headers, body=content, **more)

    async def act(self, operation: GroupOperation, group: str, reason: str, operator: Operator) -> None:
        self.sent.append((operation.value, group, reason, operator.principal, operator.source))
        if self.failing is not None:
            raise self.failing
        is_pause = operation is GroupOperation.PAUSE
        self.shares.apply(
            GroupPaused(group=group, reason=reason, by=operator.principal, at=TWO)
            if is_pause
            else GroupPauseEnded(group=group)
        )


def new_operations(
    audit: Audit, port: SharePort | None = None, logins: LoginRate | None = None, act: Act | None = None
) -> ShareGroupOperations:
    clock = FakeClock(NOW_MS)
    return ShareGroupOperations(
        GATEWAY, audit=audit, port=port, clock=clock, logins=logins or LoginRate(clock), act=act
    )


@pytest.fixture
def scene(shop_tables: tuple[EstateTables, FakeClock]) -> OperationScene:
    return make_scene(shop_tables)


def make_scene(
    shop_tables: tuple[EstateTables, FakeClock], *, tokens_file: Path | None = None, audit: Audit | None = None
) -> OperationScene:
    shares = FakeShares.of_the_shop()
    written: list[EventHappened] = []

    async def write(fact: EventHappened) -> None:
        written.append(fact)

    async def act(*asked: Any) -> None:
        await made.act(*asked)

    operations = new_operations(audit or write, shares, act=act)
    stage = ApiStage(*shop_tables, tokens_file=tokens_file, share_port=shares, operations=operations)
    made = OperationScene(stage=stage, shares=shares, written=written)
    return made


async def test_a_group_is_paused_and_resumed_with_a_reason_and_both_are_audited(scene: OperationScene) -> None:
    answer = await scene.post("picking/pause", {"reason": "deploy of v5"})
    assert answer.status == 200, answer.body
    assert answer.json["paused"] is True
    assert [one["text"] for one in answer.json["remaining_reasons"]] == ["deploy of v5"]
    assert answer.headers["cache-control"] == "no-store"
    answer = await scene.post("picking/resume", {"reason": "done"})
    assert answer.json == {"group": "picking", "paused": False, "reason": "done", "remaining_reasons": []}
    assert [one[:3] for one in scene.sent] == [("pause", "picking", "deploy of v5"), ("resume", "picking", "done")]
    assert [(fact.event, fact.subject, fact.by) for fact in scene.written] == [
        ("operation", "picking", "User:ANONYMOUS")
    ] * 2
    assert scene.written[0].detail.value() == {
        "operation": "pause",
        "reason": "deploy of v5",
        "outcome": "done",
        "error": None,
        "caller": "address 127.0.0.1",
        "credential": "none",
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[1]",
        b"[" * 10_000,
        {},
        {"reason": ""},
        {"reason": "  "},
        {"reason": "a\nb"},
        {"reason": "a\u202eb"},
        {"reason": 5},
        {"reason": "x" * 1_001},
        {"reason": "x", "other": 1},
        {"reason": "x", "credential": {"user": "a"}},
        {"reason": "x", "credential": {"user": "a", "password": "b", "mechanism": "GSSAPI"}},
        {"reason": "x", "credential": {"user": "a\0b", "password": PASSWORD, "mechanism": "PLAIN"}},
    ],
)
async def test_a_body_that_is_not_valid_is_refused_and_not_repeated(scene: OperationScene, body: Any) -> None:
    answer = await scene.post("billing/pause", body)
    assert answer.status == 400
    assert PASSWORD not in answer.body.decode()
    assert scene.sent == []


async def test_a_large_body_is_refused(scene: OperationScene) -> None:
    assert (await scene.post("billing/pause", b" " * 20_000)).status == 413
    assert scene.sent == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://localhost:3000"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "http://localhost", "sec-fetch-site": "same-origin"}, 200),
        ({"content-type": "application/json; charset=utf-8"}, 200),
    ],
)
async def test_a_page_of_another_site_cannot_act_through_a_browser(
    scene: OperationScene, headers: dict[str, str], status: int
) -> None:
    assert (await scene.post("billing/pause", headers=headers)).status == status
    assert len(scene.sent) == (status == 200)


async def test_get_changes_nothing(scene: OperationScene) -> None:
    for path in ("billing/pause", "billing/resume"):
        assert (await scene.stage.get(f"share-groups/{path}")).status in {404, 405}
    assert scene.sent == []


async def test_a_token_needs_the_scope_and_the_name_and_acts_as_its_own_user(
    shop_tables: tuple[EstateTables, FakeClock], tmp_path: Path
) -> None:
    file = tmp_path / "tokens.toml"
    reader = add_token(file, name="reader", scope=TokenScope.READ, expires=LATER)
    team = add_token(file, name="team", scope=TokenScope.OPERATE, expires=LATER, names=["refund*"])
    with file.open("a") as opened:
        opened.write('[tokens.team.kafka]\nuser = "carol"\nmechanism = "PLAIN"\npassword_file = "/nowhere"\n')
    scene = make_scene(shop_tables, tokens_file=file)
    assert (await scene.post("refunds/resume")).status == 401
    assert (await scene.post("refunds/resume", token=reader)).status == 403
    assert (await scene.post("billing/resume", token=team)).status == 404
    assert scene.sent == []
    answer = await scene.post("refunds/resume", token=team)
    assert answer.status == 200, answer.body
    assert scene.sent == [("resume", "refunds", "deploy", "User:carol", "token")]
    assert (scene.written[0].by, scene.written[0].detail.value()["caller"]) == ("User:carol", "token team")
    told = (await scene.stage.get("operator", token=team)).json
    assert told == {
        "may_operate": True,
        "problem": None,
        "credential": "bound",
        "principal": "User:carol",
        "may_type": True,
        "gateway": "127.0.0.1:9092",
    }
    told = (await scene.stage.get("operator", token=reader)).json
    assert (told["may_operate"], "operate" in told["problem"]) == (False, True)


async def test_a_typed_user_is_used_before_all_others_and_never_repeated(scene: OperationScene) -> None:
    credential = {"user": "dora", "password": PASSWORD, "mechanism": "PLAIN"}
    with structlog.testing.capture_logs() as logged:
        answer = await scene.post("billing/resume", {"reason": "x", "credential": credential})
    assert answer.status == 200, answer.body
    assert scene.sent[0][3:] == ("User:dora", "typed")
    assert PASSWORD not in answer.body.decode() + repr(logged) + repr(scene.written)


async def test_a_password_is_accepted_over_tls_or_from_this_machine_only(
    shop_tables: tuple[EstateTables, FakeClock], tmp_path: Path
) -> None:
    """A request that a proxy forwarded does not count as one of this machine."""
    file = tmp_path / "tokens.toml"
    token = add_token(file, name="team", scope=TokenScope.OPERATE, expires=LATER)
    scene = make_scene(shop_tables, tokens_file=file)
    body = {"reason": "x", "credential": {"user": "dora", "password": PASSWORD, "mechanism": "PLAIN"}}
    for forwarded in ("x-forwarded-for", "via"):
        answer = await scene.post("billing/resume", body, token=token, headers={forwarded: "1.2.3.4"})
        assert (answer.status, "over TLS" in answer.json["message"]) == (403, True)
    assert scene.sent == []
    assert (await scene.post("billing/resume", body, token=token)).status == 200


async def test_operations_of_a_caller_are_limited_and_come_back(scene: OperationScene) -> None:
    found = [(await scene.post("billing/pause")).status for _ in range(11)]
    assert found == [200] * 10 + [429]
    assert len(scene.sent) == 10


def test_operations_of_all_callers_are_limited() -> None:
    clock = FakeClock(NOW_MS)
    rate = operations_module.OperationRate(clock)
    for number in range(60):
        rate.take(f"caller {number}")
    with pytest.raises(operations_module.OperationError):
        rate.take("another")
    clock.now_ms += 60_001
    rate.take("another")


async def test_failed_logins_of_all_kinds_of_operations_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def audit(_: EventHappened) -> None: ...

    async def refuse(*_: Any) -> None:
        raise LoginError("wrong password")

    monkeypatch.setattr(Connections, "to", refuse)
    clock = FakeClock(NOW_MS)
    logins = LoginRate(clock)
    operations = new_operations(audit, logins=logins)
    viewer = RecordViewer(GATEWAY, OperationTrail(audit, clock), clock, logins)
    places: dict[str, Any] = dict.fromkeys(PlanRecord.__dataclass_fields__)
    operator = Operator(caller="token t", typed=Credentials(user="dora", password=PASSWORD, mechanism="PLAIN"))
    statuses = []
    for number in range(12):
        paused = operations.run(GroupOperation.PAUSE, "g", "x", operator)
        shown = viewer.show("g", PlanRecord(**places), operator)
        tried, other = (paused, shown) if number % 2 else (shown, paused)
        other.close()
        with pytest.raises(OperationError) as refused:
            await tried
        statuses.append(refused.value.status)
    await viewer.close()
    assert statuses == [403] * 10 + [429] * 2


def test_logins_that_succeed_or_cannot_be_tried_are_not_counted() -> None:
    logins = LoginRate(FakeClock(NOW_MS))
    for _ in range(20):
        with logins.counted("c"):
            pass
        with pytest.raises(ClusterError), logins.counted("c"):
            raise ClusterError("no gateway")


@pytest.mark.parametrize(
    ("code", "status", "outcome", "text"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, 403, "refused", "User:ANONYMOUS needs ALTER_CONFIGS"),
        (ErrorCode.INVALID_CONFIG, 400, "refused", "no"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 502, "failed", "no"),
    ],
)
async def test_errors_of_kafka_are_answered_and_audited(
    scene: OperationScene, code: int, status: int, outcome: str, text: str
) -> None:
    operator = Operator(caller="address 127.0.0.1", may_be_anonymous=True)
    scene.failing = operations_module._refused(ActionRefusedError(code, "no"), operator)
    answer = await scene.post("billing/pause")
    assert answer.status == status
    assert text.lower() in answer.json["message"].lower()
    assert scene.written[0].detail.value()["outcome"] == outcome


async def test_an_operation_that_cannot_be_audited_is_in_the_log(
    shop_tables: tuple[EstateTables, FakeClock],
) -> None:
    async def fail(_: EventHappened) -> None:
        raise ClusterError("no cluster")

    scene = make_scene(shop_tables, audit=fail)
    with structlog.testing.capture_logs() as logged:
        assert (await scene.post("billing/pause")).status == 200
    assert "operation could not be written to headgate.events" in [line["event"] for line in logged]


async def test_without_a_user_only_this_machine_may_act() -> None:
    async def audit(_: EventHappened) -> None: ...

    operations = new_operations(audit)
    with pytest.raises(operations_module.OperationError) as refused:
        await operations.run(GroupOperation.PAUSE, "g", "x", Operator(caller="token t"))
    assert refused.value.status == 403
    assert "headgate share-groups" in str(refused.value)


def test_the_gateway_is_the_configured_one_or_that_of_this_machine() -> None:
    listen = Address("0.0.0.0", 9092)
    found = GatewayAccess.of(Config(gateway=GatewayConfig(listen=listen), upstream=UpstreamConfig()))
    assert (str(found.address), found.has_tls, found.has_sasl) == ("127.0.0.1:9092", False, True)
    web = WebConfig(gateway=Address("gw.example", 9093), gateway_tls_ca=Path("ca.pem"))
    found = GatewayAccess.of(Config(web=web, upstream=UpstreamConfig(service_mechanism="none")))
    assert (str(found.address), found.has_tls, found.has_sasl) == ("gw.example:9093", True, False)


def test_the_user_of_a_token_is_checked_when_the_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    add_token(file, name="team", scope=TokenScope.OPERATE, expires=LATER)
    good = 'user = "carol"\nmechanism = "SCRAM-SHA-512"\npassword_file = "/p"\n'
    head = file.read_text() + "[tokens.team.kafka]\n"
    file.write_text(head + good)
    (token,) = read_tokens(file)
    assert token.kafka is not None
    assert (token.kafka.user, token.kafka.password_file) == ("carol", Path("/p"))
    for bad in (
        good + 'password = "x"\n',
        good.replace("SCRAM-SHA-512", "NONE"),
        good.replace("carol", ""),
        'user = "x"\n',
    ):
        file.write_text(head + bad)
        with pytest.raises(Exception, match=r"tokens\.team\.kafka"):
            read_tokens(file)
