"""A config change that was validated and then could not be applied as a whole: the error names what was applied."""

import asyncio
from typing import Any

import pytest

from headgate.base.errors import ClusterError
from headgate.facts import GroupPauseEnded
from headgate.kafka.fact_writer import Position
from headgate.share_groups.model.group_configs import (
    COPY_RECORD,
    DLQ_TOPIC,
    PAUSE,
    RESUME,
    THRESHOLD_PERCENT,
    WINDOW_MS,
)
from headgate.share_groups.resources import PartialDecisionError, ShareGroupResources
from tests.unit.proxy.stage import until
from tests.unit.share_groups.scene import INCREMENTAL_ALTER_CONFIGS as INCREMENTAL
from tests.unit.share_groups.scene import LOCKS
from tests.unit.share_groups.scene import TOPIC_RESOURCE as TOPIC
from tests.unit.share_groups.test_configs import DELETE, SET, alter, change, every_version, playing, resource

NOT_WHOLE = "The change was not applied as a whole"


async def test_after_a_failed_write_the_error_says_what_was_applied_and_a_retry_completes_it() -> None:
    wanted = (LOCKS, SET, "1"), (COPY_RECORD, SET, "true"), (THRESHOLD_PERCENT, SET, "30"), (WINDOW_MS, SET, "5000")
    async with playing() as it:
        it.kafka.fails_after = 1
        applied, rest = f"Applied: {LOCKS}, {COPY_RECORD}.", f"Not applied: {WINDOW_MS}, {PAUSE}."
        text = (
            f"{NOT_WHOLE}: the topic is away. {applied} May have been applied: {THRESHOLD_PERCENT}. {rest} Try again."
        )
        assert await change(it, *wanted, (PAUSE, SET, "x")) == (15, text)
        assert dict(it.state("sg").values) == {COPY_RECORD: "true"}
        it.kafka.fails_after = None
        assert await change(it, *wanted, (PAUSE, SET, "x")) == (0, None)
        assert it.state("sg").values == {COPY_RECORD: "true", THRESHOLD_PERCENT: "30", WINDOW_MS: "5000"}
        assert it.service.is_paused("sg")


async def test_an_action_that_fails_after_the_configs_is_named() -> None:
    async with playing() as it:
        it.kafka.on_decide = lambda: setattr(it.kafka, "fails_after", 0 if it.state("sg").values else None)
        code, text = await change(it, (COPY_RECORD, SET, "true"), (PAUSE, SET, "x"))
        applied = f"Applied: {COPY_RECORD}. May have been applied: {PAUSE}."
        assert (code, text) == (15, f"{NOT_WHOLE}: the topic is away. {applied} Try again.")


async def test_a_config_that_needs_no_write_counts_as_applied() -> None:
    async with playing() as it:
        it.kafka.fails_after = 0
        code, text = await change(it, (THRESHOLD_PERCENT, DELETE, None), (COPY_RECORD, SET, "true"))
        applied = f"Applied: {THRESHOLD_PERCENT}. May have been applied: {COPY_RECORD}."
        assert (code, text) == (15, f"{NOT_WHOLE}: the topic is away. {applied} Try again.")


async def test_when_nothing_could_be_written_the_error_says_so() -> None:
    async with playing() as it:
        it.kafka.group_configs.default = None
        code, text = await change(it, (DLQ_TOPIC, SET, "dlq.there"), (LOCKS, SET, "1"))
        applied = f"Applied: {LOCKS}. Not applied: {DLQ_TOPIC}."
        assert (code, text) == (15, f"{NOT_WHOLE}: the limits cannot be read. {applied} Try again.")
        assert it.applied() == []


@every_version
async def test_without_the_brokers_result_for_its_part_headgates_is_not_applied(key: int, version: int) -> None:
    """The broker may have applied its part, and the error says so."""
    async with playing() as it:
        it.rules.silent = {"sg"}
        mixed = (LOCKS, SET, "1"), (COPY_RECORD, SET, "true")
        results = await alter(it, key, version, resource("sg", *mixed), resource("g", *mixed))
        applied = f"May have been applied: {LOCKS}. Not applied: {COPY_RECORD}."
        text = f"{NOT_WHOLE}: the broker returned no result. {applied} Try again."
        assert results == [("sg", 15, text), ("g", 0, None)]
        assert [words[1] for words in it.applied()] == ["g"]


async def test_when_the_broker_responds_to_the_change_too_late_each_error_says_what_may_have_been_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.share_groups.config_changes._CALL_S", 0.5)
    async with playing() as it:
        it.rules.responds.clear()
        mixed = resource("sg", (LOCKS, SET, "1"), (COPY_RECORD, SET, "true"), (RESUME, SET, "x"))
        own = resource("own", (COPY_RECORD, SET, "true"))
        topic = resource("topic", ("retention.ms", SET, "1"), kind=TOPIC)
        changing = asyncio.create_task(alter(it, INCREMENTAL, 1, mixed, own, topic))
        await until(lambda: bool(it.applied()))
        it.rules.responds.set()  # too late
        problem = f"{NOT_WHOLE}: the broker did not answer IncrementalAlterConfigs within 0.5 s. May have been applied"
        assert await changing == [
            ("sg", 15, f"{problem}: {LOCKS}. Not applied: {COPY_RECORD}, {RESUME}. Try again."),
            ("own", 0, None),
            ("topic", 15, f"{problem}: retention.ms. Try again."),
        ]
        assert it.applied() == [("set", "own", {COPY_RECORD: "true"}, "User:ops")]


class StateTopic:
    """The writer and the reader of the topic: one fact may fail, and nothing is read back unless `is_read`."""

    def __init__(self, failing: GroupPauseEnded | None, *, is_read: bool = True) -> None:
        self.failing = failing
        self.is_read = is_read

    async def write(self, fact: GroupPauseEnded) -> Position:
        if fact is self.failing:
            raise ClusterError("the topic is away")
        return Position(topic="headgate.state", partition=0, offset=1)

    async def reached(self, _offset: int) -> None:
        if not self.is_read:
            await asyncio.Event().wait()


async def decide_abc(failing: int | None, *, is_read: bool = True) -> tuple[list[str], str]:
    """The groups of the facts that are written, uncertain and not written, and the problem."""
    facts = [GroupPauseEnded(group=group) for group in "abc"]
    resources = ShareGroupResources.__new__(ShareGroupResources)
    topic: Any = StateTopic(None if failing is None else facts[failing], is_read=is_read)
    resources.writer = resources._state = topic
    with pytest.raises(PartialDecisionError) as raised:
        await resources.decide(*facts)
    problem = raised.value
    groups = ["".join(one.group for one in some) for some in (problem.written, problem.uncertain, problem.unwritten)]
    return groups, str(problem)


@pytest.mark.parametrize(("failing", "groups"), [(0, ["", "a", "bc"]), (2, ["ab", "c", ""])])
async def test_after_a_fact_that_fails_no_other_is_written(failing: int, groups: list[str]) -> None:
    assert await decide_abc(failing) == (groups, "the topic is away")


async def test_facts_that_were_not_read_back_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.share_groups.resources._READ_BACK_S", 0.01)
    assert await decide_abc(None, is_read=False) == (["abc", "", ""], "not read back within 0.01 s")
