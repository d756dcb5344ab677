"""IncrementalAlterConfigs and AlterConfigs through the gateway: changed whole or not at all, by whoever may."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headgate.share_groups import config_interceptors
from headgate.share_groups.config_changes import GroupConfigChange, read_change
from headgate.share_groups.model.group_configs import (
    COPY_RECORD,
    DLQ_TOPIC,
    LIMIT,
    PAUSE,
    RESUME,
    THRESHOLD_PERCENT,
)
from headgate.wire.codec import decode, encode
from headgate.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
)
from tests.support.fake_upstream import BROKER_VERSIONS, request
from tests.support.messages import REQUESTS
from tests.unit.proxy.stage import until
from tests.unit.share_groups.scene import ALTER_CONFIGS as ALTER
from tests.unit.share_groups.scene import DENIED_TEXT as DENIED
from tests.unit.share_groups.scene import GROUP_RESOURCE as GROUP
from tests.unit.share_groups.scene import INCREMENTAL_ALTER_CONFIGS as INCREMENTAL
from tests.unit.share_groups.scene import LOCKS, METADATA, Scene, scene
from tests.unit.share_groups.scene import TOPIC_RESOURCE as TOPIC

SET, DELETE, APPEND = 0, 1, 2
Asked = tuple[str, int, str | None]
NEW = [(INCREMENTAL, version) for version in range(BROKER_VERSIONS[INCREMENTAL][1] + 1)]
OLD = [(ALTER, version) for version in range(BROKER_VERSIONS[ALTER][1] + 1)]
every_version = pytest.mark.parametrize(("key", "version"), NEW + OLD)
every_new_version = pytest.mark.parametrize("version", [version for _, version in NEW])


def resource(name: str, *configs: Asked, kind: int = GROUP) -> IncrementalAlterConfigsResource:
    return IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(IncrementalConfig(name=one, config_operation=op, value=value) for one, op, value in configs),
    )


def altering(
    key: int, *resources: IncrementalAlterConfigsResource, validate_only: bool = False
) -> IncrementalAlterConfigsRequest | AlterConfigsRequest:
    if key == INCREMENTAL:
        return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    old = tuple(
        AlterConfigsResource(
            resource_type=one.resource_type,
            resource_name=one.resource_name,
            configs=tuple(AlterableConfig(name=each.name, value=each.value) for each in one.configs),
        )
        for one in resources
    )
    return AlterConfigsRequest(resources=old, validate_only=validate_only)


@asynccontextmanager
async def playing(**settings: Any) -> AsyncIterator[Scene]:
    """A scene whose broker answers config requests."""
    async with scene(**settings) as it:
        it.play()
        yield it


async def alter(
    it: Scene, key: int, version: int, *resources: IncrementalAlterConfigsResource, validate_only: bool = False
) -> list[tuple[str, int, str | None]]:
    answer: Any = await it.ask(key, version, altering(key, *resources, validate_only=validate_only))
    return [(one.resource_name, one.error_code, one.error_message) for one in answer.responses]


async def change(it: Scene, *configs: Asked, group: str = "sg", validate_only: bool = False) -> tuple[int, str | None]:
    [(_, code, text)] = await alter(it, INCREMENTAL, 1, resource(group, *configs), validate_only=validate_only)
    return code, text


def asked(it: Scene) -> list[tuple[str, bool, list[list[str]]]]:
    """What the broker was asked: to try or to take, and the names in each resource."""
    found: list[tuple[str, bool, list[list[str]]]] = []
    for one in it.rules.asked:
        if one.key == METADATA:
            found.append(("topics", False, []))
            continue
        message: Any = decode(REQUESTS[one.key], one.version, one.body)
        named = [[each.name for each in resource.configs] for resource in message.resources]
        found.append(("alter", message.validate_only, named))
    return found


# --- what is none of ours -------------------------------------------------------------------------------------------


@every_version
@pytest.mark.parametrize(
    "resources",
    [
        (resource("sg", (LOCKS, SET, "1")),),
        (resource("sg", (LIMIT, SET, "7")),),
        (resource("sg"),),
        (resource("dlq.a", ("errors.deadletterqueue.group.enable", SET, "true"), kind=TOPIC),),
        (resource("dlq.a", (COPY_RECORD, SET, "true"), kind=TOPIC), resource("sg", (LOCKS, SET, "1"))),
        (resource("foreign", (COPY_RECORD, SET, "true")),),
        (resource("sg", (LOCKS, SET, "1")), resource("sg", (COPY_RECORD, SET, "true"))),
        (),
    ],
)
async def test_what_is_none_of_ours_passes_byte_for_byte(
    key: int, version: int, resources: Sequence[IncrementalAlterConfigsResource]
) -> None:
    async with scene() as it:
        for validate_only in (False, True):
            await it.passes(key, version, altering(key, *resources, validate_only=validate_only))
        assert it.applied() == []


@pytest.mark.parametrize("proved", [False, True])
@every_version
async def test_a_large_request_of_topics_passes_byte_for_byte_whoever_sends_it(
    key: int, version: int, *, proved: bool
) -> None:
    many = [resource(f"topic-{i}", ("retention.ms", SET, "1" * 100), kind=TOPIC) for i in range(8_000)]
    async with scene(proved=proved) as it:
        await it.passes(key, version, altering(key, *many))
        # Larger than what is gathered for a client that the broker has not yet answered.
        assert len(encode(altering(key, *many), version)) > 512 * 1024


async def test_a_large_request_on_a_proved_connection_is_opened_wherever_its_groups_are() -> None:
    many = [resource(f"topic-{i}", ("retention.ms", SET, "1" * 100), kind=TOPIC) for i in range(8_000)]
    async with playing() as it:
        assert await alter(it, INCREMENTAL, 1, resource("other", (LOCKS, SET, "1"))) == [("other", 0, None)]
        results = await alter(it, INCREMENTAL, 1, *many, resource("sg", (COPY_RECORD, SET, "true")))
        assert results[-1] == ("sg", 0, None)
        assert len(results) == 8_001
        assert it.applied() == [("set", "sg", {COPY_RECORD: "true"}, "User:ops")]


@pytest.mark.parametrize("topics", [100, 500])
async def test_a_request_over_8_kib_is_opened_wherever_its_groups_are(topics: int) -> None:
    many = [resource(f"topic-{i}", ("retention.ms", SET, "1" * 100), kind=TOPIC) for i in range(topics)]
    async with playing() as it:
        results = await alter(it, INCREMENTAL, 1, *many, resource("sg", (COPY_RECORD, SET, "true")))
        assert results[-1] == ("sg", 0, None)
        assert len(results) == topics + 1
        assert it.applied() == [("set", "sg", {COPY_RECORD: "true"}, "User:ops")]


async def test_a_large_request_is_read_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 MiB may be three million groups; to look at each of them took two seconds."""
    threads = set()

    def watched(*args: Any, **more: Any) -> GroupConfigChange | None:
        threads.add(threading.current_thread())
        return read_change(*args, **more)

    monkeypatch.setattr(config_interceptors, "read_change", watched)
    many = [resource(f"group-{i}", (LOCKS, SET, "1")) for i in range(500)]
    async with playing() as it:
        results = await alter(it, INCREMENTAL, 1, *many, resource("sg", (COPY_RECORD, SET, "true")))
        assert results[-1] == ("sg", 0, None)
    assert len(threads) == 1
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("key", [INCREMENTAL, ALTER])
async def test_our_configs_beside_too_many_others_are_refused(key: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are encoded again, on the event loop."""
    monkeypatch.setattr(config_interceptors, "_MOST_PARTS", 40)
    many = [resource(f"topic-{i}", ("retention.ms", SET, "1"), kind=TOPIC) for i in range(20)]
    async with playing() as it:
        results = await alter(it, key, 1, *many, resource("sg", (COPY_RECORD, SET, "true")))
        assert [code for _, code, _ in results] == [42] * 21
        assert asked(it) == []
        assert it.applied() == []
        assert [code for _, code, _ in await alter(it, key, 1, *many)] == [0] * 20


@every_version
async def test_a_large_request_of_groups_without_our_configs_passes_byte_for_byte(key: int, version: int) -> None:
    many = [resource(f"group-{i}", (LIMIT, SET, "7")) for i in range(2_000)]
    async with scene() as it:
        await it.passes(key, version, altering(key, *many))


# --- what is ours ---------------------------------------------------------------------------------------------------


@every_version
async def test_ours_alone_are_set_when_the_broker_has_said_who_may(key: int, version: int) -> None:
    async with playing() as it:
        assert await alter(it, key, version, resource("sg", (THRESHOLD_PERCENT, SET, "30"))) == [("sg", 0, None)]
        assert it.applied() == [("set", "sg", {THRESHOLD_PERCENT: "30"}, "User:ops")]
        tries: list[tuple[str, bool, list[list[str]]]] = [("alter", True, [[]])]
        # An old call replaces the broker's configs even if it names none of them.
        assert asked(it) == (tries if key == INCREMENTAL else [*tries, ("alter", False, [[]])])
        assert {one.version for one in it.rules.asked} == {version}


@every_version
async def test_ours_and_the_brokers_in_one_resource(key: int, version: int) -> None:
    async with playing() as it:
        mixed = resource("sg", (LOCKS, SET, "1"), (COPY_RECORD, SET, "true"))
        assert await alter(it, key, version, mixed) == [("sg", 0, None)]
        assert it.applied() == [("set", "sg", {COPY_RECORD: "true"}, "User:ops")]
        assert asked(it) == [("alter", True, [[LOCKS]]), ("alter", False, [[LOCKS]])]


@every_version
async def test_the_throttle_time_of_a_question_about_topics_reaches_the_client(key: int, version: int) -> None:
    async with playing() as it:
        it.rules.throttle_ms, it.rules.metadata_throttle_ms = 17, 600_000
        message = altering(key, resource("g", (DLQ_TOPIC, SET, "dlq.there")))
        answer: Any = await it.ask(key, version, message)
        assert 300_000 <= answer.throttle_time_ms <= 600_000


@every_version
async def test_answers_come_in_the_order_asked_and_others_go_on_as_they_are(key: int, version: int) -> None:
    async with playing() as it:
        it.rules.throttle_ms = 17
        message = altering(
            key,
            resource("z", (COPY_RECORD, SET, "true")),
            resource("topic", ("retention.ms", SET, "1"), kind=TOPIC),
            resource("bad", (COPY_RECORD, SET, "perhaps"), (LOCKS, SET, "1")),
            resource("a", (LOCKS, SET, "1"), (COPY_RECORD, SET, "true")),
            resource("foreign", (COPY_RECORD, SET, "true")),
            resource("plain", (LOCKS, SET, "2")),
        )
        answer: Any = await it.ask(key, version, message)
        assert answer.throttle_time_ms == 17
        assert [(one.resource_type, one.resource_name, one.error_code) for one in answer.responses] == [
            (GROUP, "z", 0),
            (TOPIC, "topic", 0),
            (GROUP, "bad", 40),
            (GROUP, "a", 0),
            (GROUP, "foreign", 40),
            (GROUP, "plain", 0),
        ]
        assert [words[1] for words in it.applied()] == ["z", "a"]
        others = [["retention.ms"], [COPY_RECORD], [LOCKS]]
        assert asked(it)[1] == ("alter", False, [*others, *([[LOCKS]] if key == INCREMENTAL else [[], [LOCKS]])])


@every_version
async def test_validate_only_asks_once_and_changes_nothing(key: int, version: int) -> None:
    async with playing() as it:
        results = await alter(
            it,
            key,
            version,
            resource("topic", ("retention.ms", SET, "1"), kind=TOPIC),
            resource("sg", (COPY_RECORD, SET, "true"), (LOCKS, SET, "1")),
            resource("bad", (COPY_RECORD, SET, "perhaps")),
            resource("worse", (COPY_RECORD, SET, "true"), ("unknown", SET, "1")),
            validate_only=True,
        )
        assert [code for _, code, _ in results] == [0, 0, 40, 40]
        assert [name for name, _, _ in results] == ["topic", "sg", "bad", "worse"]
        assert it.applied() == []
        assert asked(it) == [("alter", True, [[LOCKS], [], ["unknown"], ["retention.ms"]])]


async def test_a_step_that_is_validated_only_is_not_taken() -> None:
    async with playing() as it:
        assert await change(it, (PAUSE, SET, "x"), validate_only=True) == (0, None)
        assert it.applied() == []


@every_new_version
async def test_the_old_call_unsets_what_it_does_not_name(version: int) -> None:
    async with playing() as it:
        it.set("sg", {COPY_RECORD: "true", THRESHOLD_PERCENT: "30"})
        assert await alter(it, ALTER, version, resource("sg", (THRESHOLD_PERCENT, SET, "40"))) == [("sg", 0, None)]
        assert it.applied() == [("set", "sg", {COPY_RECORD: None, THRESHOLD_PERCENT: "40"}, "User:ops")]
        assert await alter(it, ALTER, version, resource("sg", (LOCKS, SET, "1"))) == [("sg", 0, None)]
        assert dict(it.state("sg").values) == {}


async def test_ours_are_deleted_again() -> None:
    async with playing() as it:
        it.set("sg", {COPY_RECORD: "true"})
        assert await change(it, (COPY_RECORD, DELETE, None)) == (0, None)
        assert it.applied() == [("set", "sg", {COPY_RECORD: None}, "User:ops")]
        assert await change(it, (COPY_RECORD, DELETE, None)) == (0, None), "twice is no error, as at a broker"


@pytest.mark.parametrize(("name", "word"), [(PAUSE, "pause"), (RESUME, "resume")])
async def test_an_action_is_applied_with_its_reason_and_principal(name: str, word: str) -> None:
    async with playing() as it:
        assert await change(it, (COPY_RECORD, SET, "true"), (name, SET, "deploy")) == (0, None)
        assert it.applied() == [("set", "sg", {COPY_RECORD: "true"}, "User:ops"), (word, "sg", "deploy", "User:ops")]


async def test_a_client_without_a_principal_is_unknown() -> None:
    async with playing(principal=None) as it:
        await change(it, (PAUSE, SET, "deploy"))
        assert it.applied() == [("pause", "sg", "deploy", "unknown")]


async def test_a_large_request_with_ours_is_handled_too() -> None:
    many = [resource(f"topic-{i}", ("retention.ms", SET, "1"), kind=TOPIC) for i in range(2000)]
    async with playing() as it:
        results = await alter(it, INCREMENTAL, 1, resource("sg", (COPY_RECORD, SET, "true")), *many)
        assert len(results) == 2001
        assert results[0] == ("sg", 0, None)
        assert {code for _, code, _ in results} == {0}
        assert len(it.applied()) == 1


# --- the limit ------------------------------------------------------------------------------------------------------


@every_new_version
async def test_the_limit_of_a_group_with_a_dead_letter_topic_is_kept_by_us(version: int) -> None:
    async with playing() as it:
        it.set("sg", {DLQ_TOPIC: "dlq.there"})
        wanted = resource("sg", (LIMIT, SET, "7"), (LOCKS, SET, "1"))
        assert await alter(it, INCREMENTAL, version, wanted) == [("sg", 0, None)]
        assert it.applied() == [("set", "sg", {LIMIT: "7"}, "User:ops")]
        assert asked(it) == [("alter", True, [[LOCKS, LIMIT]]), ("alter", False, [[LOCKS]])], "it is only tried"


async def test_a_topic_that_the_broker_does_not_know_yet_is_asked_for_again() -> None:
    class NewTopics(set[str]):
        asked = 0

        def __contains__(self, name: object) -> bool:
            self.asked += 1
            return self.asked > 2

    async with playing() as it:
        it.rules.topics = NewTopics()
        assert await change(it, (DLQ_TOPIC, SET, "dlq.new")) == (0, None)
        assert it.applied() == [("set", "sg", {DLQ_TOPIC: "dlq.new"}, "User:ops")]


@pytest.mark.parametrize("operation", [SET, APPEND])
async def test_a_limit_that_the_broker_would_refuse_is_refused_in_its_words(operation: int) -> None:
    async with playing() as it:
        it.set("sg", {DLQ_TOPIC: "dlq.there"})
        code, text = await change(it, (LIMIT, operation, "11"))
        assert code == 40
        assert text is not None
        assert text.startswith("share.delivery.count.limit must be" if operation == SET else "Can't APPEND")
        assert it.applied() == []


async def test_a_limit_comes_and_goes_with_the_topic() -> None:
    async with playing() as it:
        assert await change(it, (LIMIT, SET, "7"), (DLQ_TOPIC, SET, "dlq.there")) == (0, None)
        assert await change(it, (LIMIT, SET, "6"), (DLQ_TOPIC, DELETE, None)) == (0, None)
        assert [words[2] for words in it.applied()] == [
            {LIMIT: "7", DLQ_TOPIC: "dlq.there"},
            {LIMIT: "6", DLQ_TOPIC: None},
        ]
        assert all(is_tried for word, is_tried, _ in asked(it) if word == "alter")


# --- refusals -------------------------------------------------------------------------------------------------------


@every_version
async def test_a_client_that_may_not_change_the_group_changes_nothing_and_learns_nothing(
    key: int, version: int
) -> None:
    async with playing() as it:
        it.rules.denied = {"sg"}
        for configs in (
            [(COPY_RECORD, SET, "true")],
            [(COPY_RECORD, SET, "perhaps")],
            [(DLQ_TOPIC, SET, "dlq.absent")],
            [(PAUSE, SET, "x")],
            [(COPY_RECORD, SET, "true"), (LOCKS, SET, "1")],
        ):
            for validate_only in (False, True):
                refused = await alter(it, key, version, resource("sg", *configs), validate_only=validate_only)
                assert refused == [("sg", 30, DENIED)]
        assert it.applied() == []
        assert all(is_tried for word, is_tried, _ in asked(it) if word == "alter")
        assert "topics" not in [word for word, _, _ in asked(it)]


@every_version
async def test_rights_are_asked_for_each_group(key: int, version: int) -> None:
    async with playing() as it:
        it.rules.denied = {"b"}
        groups = [resource(group, (COPY_RECORD, SET, "true"), (LOCKS, SET, "1")) for group in "abc"]
        results = await alter(it, key, version, *groups)
        assert results == [("a", 0, None), ("b", 30, DENIED), ("c", 0, None)]
        assert [words[1] for words in it.applied()] == ["a", "c"]
        assert asked(it)[-1] == ("alter", False, [[LOCKS], [LOCKS]])


@pytest.mark.parametrize(
    ("configs", "code", "text"),
    [
        ([(COPY_RECORD, SET, "true"), ("unknown", SET, "1")], 40, "Unknown group config name: unknown"),
        ([(COPY_RECORD, SET, "true"), (COPY_RECORD, SET, "true")], 42, "Error due to duplicate config keys"),
        ([(COPY_RECORD, SET, None)], 42, f"Null value not supported for : {COPY_RECORD}"),
        ([(COPY_RECORD, APPEND, "x")], 40, f"Can't APPEND to key {COPY_RECORD} because its type is not LIST."),
        ([(PAUSE, 3, "x")], 40, f"Can't SUBTRACT to key {PAUSE} because its type is not LIST."),
    ],
)
async def test_what_the_broker_refuses_is_refused_whole(configs: list[Asked], code: int, text: str) -> None:
    async with playing() as it:
        assert await change(it, *configs) == (code, text)
        assert it.applied() == []
        assert [is_tried for _, is_tried, _ in asked(it)] == [True]


async def test_a_group_without_a_name_is_refused_by_the_broker() -> None:
    async with playing() as it:
        refused = (42, "Default group resources are not allowed.")
        assert await change(it, (COPY_RECORD, SET, "true"), group="") == refused


@every_version
async def test_one_bad_value_refuses_the_whole_resource_and_nothing_of_it_is_taken(key: int, version: int) -> None:
    async with playing() as it:
        bad = resource("sg", (LOCKS, SET, "1"), (COPY_RECORD, SET, "true"), (THRESHOLD_PERCENT, SET, "101"))
        [(_, code, text)] = await alter(it, key, version, bad)
        assert (code, text) == (
            40,
            f"Invalid value 101 for configuration {THRESHOLD_PERCENT}: Value must be no more than 100",
        )
        assert it.applied() == []
        assert [is_tried for _, is_tried, _ in asked(it)] == [True]


async def test_ours_are_not_set_when_the_broker_does_not_take_its_part_after_all() -> None:
    async with playing() as it:
        it.rules.fails = {"sg"}
        assert await change(it, (COPY_RECORD, SET, "true"), (LOCKS, SET, "1")) == (7, None)
        assert it.applied() == []


# --- the dead-letter topic ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "auto_create", "code"),
    [
        ("dlq.there", False, 0),
        ("dlq.there", True, 0),
        ("dlq.absent", False, 40),
        ("dlq.absent", True, 0),
        ("dlq.read-only", False, 29),
        ("dlq.read-only", True, 29),
        ("dlq.absent-read-only", True, 29),
        ("dlq.hidden", True, 29),
        ("dlq.hidden", False, 29),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_dead_letter_topic_needs_the_callers_own_write(
    topic: str, auto_create: bool, code: int, validate_only: bool
) -> None:
    async with playing(dlq_auto_create=auto_create) as it:
        it.rules.topics = {"dlq.there", "dlq.read-only"}
        it.rules.unwritable = {"dlq.read-only", "dlq.absent-read-only"}
        it.rules.hidden = {"dlq.hidden"}
        answer = await change(it, (DLQ_TOPIC, SET, topic), (LOCKS, SET, "1"), validate_only=validate_only)
        assert answer[0] == code
        wanted = [("set", "sg", {DLQ_TOPIC: topic}, "User:ops")] if code == 0 and not validate_only else []
        assert it.applied() == wanted
        assert (("alter", False, [[LOCKS]]) in asked(it)) is bool(wanted)


async def test_what_is_hidden_looks_like_what_is_absent() -> None:
    async with playing() as it:
        it.rules.topics = {"dlq.hidden"}
        it.rules.hidden = {"dlq.hidden", "dlq.nowhere"}
        there = await change(it, (DLQ_TOPIC, SET, "dlq.hidden"))
        absent = await change(it, (DLQ_TOPIC, SET, "dlq.nowhere"))
        assert (there[1] or "").replace("dlq.hidden", "") == (absent[1] or "").replace("dlq.nowhere", "")


async def test_the_topics_of_many_groups_are_asked_for_at_once() -> None:
    async with playing() as it:
        it.rules.unwritable = {"dlq.read-only"}
        topics = ["dlq.there", "dlq.read-only", "dlq.there"]
        groups = [resource(f"g{i}", (DLQ_TOPIC, SET, topic)) for i, topic in enumerate(topics)]
        assert [code for _, code, _ in await alter(it, INCREMENTAL, 1, *groups)] == [0, 29, 0]
        assert [word for word, _, _ in asked(it)] == ["alter", "topics"]


async def test_to_take_a_topic_away_needs_no_right_on_it() -> None:
    async with playing() as it:
        it.rules.hidden = {"dlq.there"}
        it.set("sg", {DLQ_TOPIC: "dlq.there"})
        assert await change(it, (DLQ_TOPIC, DELETE, None)) == (0, None)
        assert "topics" not in [word for word, _, _ in asked(it)]


# --- when something is away -----------------------------------------------------------------------------------------


@every_version
async def test_until_the_groups_are_known_a_client_is_asked_to_retry(key: int, version: int) -> None:
    async with scene(opens=asyncio.Event()) as it:
        results = await alter(
            it,
            key,
            version,
            resource("sg", (COPY_RECORD, SET, "true")),
            resource("topic", ("retention.ms", SET, "1"), kind=TOPIC),
        )
        assert [(name, code) for name, code, _ in results] == [("sg", 41), ("topic", 41)], "which Java sends again"
        assert "try again" in (results[0][2] or "")
        assert await it.broker.is_quiet(), "nothing of it was done"


@every_version
async def test_until_the_groups_are_known_what_cannot_be_ours_passes(key: int, version: int) -> None:
    async with scene(opens=asyncio.Event()) as it:
        await it.passes(key, version, altering(key, resource("foreign", (COPY_RECORD, SET, "true"))))
        await it.passes(key, version, altering(key, resource("topic", (LIMIT, SET, "1"), kind=TOPIC)))
        if key == INCREMENTAL:
            await it.passes(key, version, altering(key, resource("sg", (LOCKS, SET, "1"))))


async def test_too_many_groups_at_once_are_refused_before_anything_is_done() -> None:
    async with playing() as it:
        groups = [resource(f"g{i}", (COPY_RECORD, SET, "true")) for i in range(257)]
        results = await alter(it, INCREMENTAL, 1, *groups)
        assert {code for _, code, _ in results} == {42}
        assert (it.rules.asked, it.applied()) == ([], [])
        assert {code for _, code, _ in await alter(it, INCREMENTAL, 1, *groups[:256])} == {0}
        assert len(it.applied()) == 256


async def test_a_client_that_goes_away_before_the_broker_has_spoken_changes_nothing() -> None:
    async with scene() as it:
        await it.client.send(request(INCREMENTAL, 1, altering(INCREMENTAL, resource("sg", (COPY_RECORD, SET, "true")))))
        tried = await it.broker.request()
        assert tried.key == INCREMENTAL
        it.client.reset()
        await until(lambda: bool(it.stage.ended))
        assert (it.kafka.is_deciding, it.applied()) == (False, [])


async def test_a_change_that_the_broker_has_applied_is_completed_when_the_client_disconnects() -> None:
    async with playing() as it:
        it.kafka.goes_on.clear()
        message = altering(INCREMENTAL, resource("sg", (COPY_RECORD, SET, "true"), (LOCKS, SET, "1")))
        await it.client.send(request(INCREMENTAL, 1, message))
        await until(lambda: it.kafka.is_deciding)
        it.client.reset()
        await until(lambda: bool(it.stage.ended))
        it.kafka.goes_on.set()
        await until(lambda: bool(it.applied()))
        assert it.applied() == [("set", "sg", {COPY_RECORD: "true"}, "User:ops")]


async def test_bytes_that_are_no_request_end_the_connection() -> None:
    async with scene() as it:
        body = encode(altering(INCREMENTAL, resource("sg", (COPY_RECORD, SET, "true"))), 1)
        await it.client.send(request(INCREMENTAL, 1, body[:-3]))
        assert await it.client.rest() == b""
        assert it.stage.ended == {"bad_request": 1}
