"""`topology_mismatch` events: one when members begin to run different topologies, and one when they agree again."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from headgate.facts import EventHappened, JsonText, decode, encode
from headgate.topologies.mismatch_reporter import MismatchReporter, detail_of
from headgate.topologies.model.group_members import SESSION_S
from headgate.topologies.model.push_gate import HeartbeatResult, MemberHeartbeat
from headgate.topologies.model.push_rate import AT_ONCE, REFILL_S
from headgate.topologies.model.topology_mismatches import SeenMember, TopologyMismatches
from headgate.topologies.older_clients.assignment_topology import member_topology
from headgate.wire.messages.streams import Endpoint, StreamsGroupHeartbeatRequest
from tests.support.clock import FakeClock
from tests.unit.proxy.stage import until
from tests.unit.topologies.scene import Scene, allow, beating, fine, joining, pushed, scene
from tests.unit.topologies.test_assignment_recorder import old_join, topology_of
from tests.unit.topologies.topic_store import START_MS

REFUSED = replace(fine(42), error_message="Topology updates are not supported yet.")


def join_with(member: str, topic: str, *, process: str = "p", host: str | None = None) -> StreamsGroupHeartbeatRequest:
    endpoint = None if host is None else Endpoint(host=host, port=9)
    return replace(joining(member, process=process), topology=topology_of(topic), user_endpoint=endpoint)


def details(it: Scene) -> list[dict[str, Any]]:
    return [event.detail.value() for event in it.events.written]


def mismatched(it: Scene) -> dict[str, float]:
    """How many groups the metric counts, by kind."""
    samples = it.stage.gateway.snapshot()
    return {labels[0]: value for (name, labels), value in samples.items() if name.endswith("mismatched_groups")}


async def settled(it: Scene, events: int) -> list[dict[str, Any]]:
    await until(lambda: len(it.events.written) >= events)
    await asyncio.sleep(0.05)
    return details(it)


async def test_a_member_that_the_broker_refuses_is_reported_with_both_topologies_members_and_hosts() -> None:
    async with scene() as it:
        await it.heartbeat(join_with("a", "one", host="a.example"))
        other = await it.another()
        for _ in range(3):
            _, answer = await other.heartbeat(join_with("b", "two", process="q"), REFUSED)
            assert (answer.error_code, answer.error_message) == (42, REFUSED.error_message)
        [detail] = await settled(it, 1)
        [event] = it.events.written
    assert (event.subject_kind, event.subject, event.event, event.by) == ("application", "g", "topology_mismatch", None)
    assert (detail["state"], detail["kind"]) == ("open", "refused")
    accepted, refused = detail["topologies"]
    assert accepted["members"] == [{"member": "a", "process": "p", "host": "a.example"}]
    assert [(one["member"], one["process"]) for one in refused["members"]] == [("b", "q")]
    assert refused["members"][0]["host"].startswith("127.0.0.1")
    assert (accepted["refused"], refused["refused"]) == (False, True)
    assert accepted["fingerprint"] != refused["fingerprint"]
    assert accepted["fingerprint"].startswith("sha256:")
    topic, key, value = encode(event)
    assert decode(topic, key, value) == event


async def test_other_refusals_are_no_mismatch() -> None:
    async with scene() as it:
        await it.heartbeat(join_with("a", "one"))
        await it.heartbeat(join_with("b", "two"), replace(fine(42), error_message="no"))
        await it.heartbeat(join_with("b", "two"), replace(fine(25), error_message=REFUSED.error_message))
        assert await settled(it, 0) == []


async def test_members_of_old_clients_that_differ_are_reported_and_the_end_too() -> None:
    async with scene() as it:
        await it.heartbeat(old_join("a", "one"), version=0)
        stale = await it.another()
        await stale.heartbeat(old_join("b", "two"), fine(statuses=(0,)), version=0)
        [detail] = await settled(it, 1)
        assert detail["kind"] == "assignment"
        await stale.heartbeat(old_join("b", "one"), version=0)
        started, ended = await settled(it, 2)
    assert (ended["state"], ended["mismatch"], ended["since"]) == ("ended", started["mismatch"], started["since"])
    assert len({event.id for event in it.events.written}) == 2


async def test_a_member_that_leaves_ends_it() -> None:
    async with scene() as it:
        await it.heartbeat(join_with("a", "one"))
        other = await it.another()
        await other.heartbeat(join_with("b", "two"))
        await settled(it, 1)
        await other.heartbeat(beating("b", member_epoch=-1))
        assert [one["state"] for one in await settled(it, 2)] == ["open", "ended"]


async def test_processes_that_pushed_different_descriptions_are_reported() -> None:
    async with scene() as it:
        assert await it.join("a", process="p")
        assert await it.pushes(pushed("a", name="ONE")) == 0
        other = await it.another()
        assert await other.join("b", process="q")
        assert await other.pushes(pushed("b", name="TWO")) == 0
        [detail] = await settled(it, 1)
        assert detail["kind"] == "description"
        assert {one["members"][0]["process"] for one in detail["topologies"]} == {"p", "q"}
        assert len({one["fingerprint"] for one in detail["topologies"]}) == 2
        assert mismatched(it) == {"refused": 0, "assignment": 0, "description": 1}
        await other.heartbeat(beating("b", member_epoch=-1))
        assert [one["state"] for one in await settled(it, 2)] == ["open", "ended"]
        assert mismatched(it) == {"refused": 0, "assignment": 0, "description": 0}


async def test_groups_that_are_not_selected_and_long_names_are_left_out() -> None:
    async with scene(groups=allow("other")) as it:
        await it.heartbeat(join_with("a", "one"))
        await it.heartbeat(join_with("b", "two"))
        assert await settled(it, 0) == []
    async with scene() as it:
        await it.heartbeat(join_with("a", "one"))
        await it.heartbeat(join_with("b", "two", host="x" * 1025))
        assert await settled(it, 0) == []


async def test_an_event_that_cannot_be_written_is_kept_and_only_the_last_of_a_group() -> None:
    async with scene() as it:
        clock = FakeClock(START_MS)
        reporter = MismatchReporter(it.service, clock=clock)
        it.events.away = True
        session: Any = FakeSession(1)
        note_join(reporter, session, "a", "one")
        note_join(reporter, FakeSession(2), "b", "two")
        with capture_logs() as logs:
            await reporter.write_changes()
            await reporter.write_changes()
        assert [one["event"] for one in logs if one["log_level"] == "warning"] == [
            "members of a Streams group run different topologies",
            "topology mismatch event was not written",
        ]
        reporter.on_close(session)
        clock.now_ms += int(SESSION_S * 1000)
        await reporter.write_changes()
        it.events.away = False
        await reporter.write_changes()
        await reporter.write_changes()
        assert [one["state"] for one in details(it)] == ["ended"]


async def test_a_group_whose_members_ever_join_with_other_topologies_fills_no_topic() -> None:
    async with scene() as it:
        clock = FakeClock(START_MS)
        reporter = MismatchReporter(it.service, clock=clock)
        for number in range(AT_ONCE + 6):
            note_join(reporter, FakeSession(number), f"m{number}", f"topic {number}")
            await reporter.write_changes()
        assert len(it.events.written) == AT_ONCE
        clock.now_ms += int(REFILL_S * 1000)
        await reporter.write_changes()
        assert details(it)[-1]["topology_count"] == AT_ONCE + 6


class FakeSession:
    peer = "10.0.0.7"

    def __init__(self, number: int) -> None:
        self.number = number


def note_join(reporter: MismatchReporter, session: Any, member: str, topic: str) -> None:
    heartbeat = MemberHeartbeat(api_version=0, group="g", member=member, member_epoch=0)
    reporter.on_join(session, heartbeat, member_topology(topology_of(topic), size=1), HeartbeatResult())


async def test_an_internal_error_costs_no_member_its_response(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    async with scene() as it:
        monkeypatch.setattr(MismatchReporter, "_note_join", fail)
        _, answer = await it.heartbeat(join_with("a", "one"), replace(fine(), heartbeat_interval_ms=7))
        assert answer.heartbeat_interval_ms == 7


def test_an_event_of_many_members_with_long_names_is_a_fact_of_bounded_size() -> None:
    name = "\0" * 1024
    mismatches = TopologyMismatches()
    for number in range(1000):
        seen = SeenMember(
            member=f"{number}{name}"[:1024], process=name, host=name, connection=number, fingerprint=str(number % 50)
        )
        mismatches.on_join("g", seen, now=0.0)
    [change] = mismatches.changes(now=0.0)
    assert change.mismatch is not None
    detail = detail_of(change.mismatch)
    assert detail["topology_count"] == 50
    event = EventHappened(at=1, subject_kind="application", subject="g", id="1", event="topology_mismatch", by=None)
    _, key, value = encode(replace(event, detail=JsonText.of(detail)))
    assert len(key) + len(value or b"") < 1024 * 1024
