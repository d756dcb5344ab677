"""DescribeConfigs and ListConfigResources through the gateway: ours beside the broker's, for whom it lets look."""

import asyncio
import threading

import pytest

from headgate.facts import GroupPaused
from headgate.proxy.decoding import A_STEP, SMALL_BYTES
from headgate.share_groups import config_interceptors
from headgate.share_groups.model.group_configs import (
    BREAKER_ENABLE,
    DLQ_TOPIC,
    LIMIT,
    OWN,
    PARKED,
    PAUSE,
    RESUME,
    THRESHOLD_PERCENT,
)
from headgate.share_groups.service import ShareGroupService
from headgate.share_groups.spool.model.index import spool_record
from headgate.wire.codec import decode, encode
from headgate.wire.messages.configs import (
    ConfigResource,
    ConfigSynonym,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tests.support.call_counts import count_calls
from tests.support.fake_upstream import body_of, request
from tests.unit.share_groups.scene import DESCRIBE_CONFIGS, LIST_RESOURCES, Scene, scene
from tests.unit.share_groups.scene import GROUP_RESOURCE as GROUP
from tests.unit.share_groups.scene import TOPIC_RESOURCE as TOPIC
from tests.unit.share_groups.spool.test_spool_index import dead_letter

every_version = pytest.mark.parametrize("version", [1, 2, 3, 4])
DEFAULT, STATIC, SET = 5, 4, 8


def brokers(value: str = "10", *, synonyms: bool = True, default: int = DEFAULT) -> DescribedConfig:
    """The limit, as a broker describes it that was told to have its maximum."""
    both = (
        ConfigSynonym(name=LIMIT, value=value, source=SET),
        ConfigSynonym(name="group.share.delivery.count.limit", value="4", source=default),
    )
    return DescribedConfig(
        name=LIMIT, value=value, config_source=SET, synonyms=both if synonyms else (), documentation=None, config_type=0
    )


def result(name: str = "sg", *configs: DescribedConfig, kind: int = GROUP, code: int = 0) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code, error_message="", resource_type=kind, resource_name=name, configs=configs
    )


def describing(
    *resources: tuple[int, str, tuple[str, ...] | None], synonyms: bool = False, documentation: bool = False
) -> DescribeConfigsRequest:
    asked = (
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name, keys in resources
    )
    return DescribeConfigsRequest(
        resources=tuple(asked), include_synonyms=synonyms, include_documentation=documentation
    )


async def describe(
    it: Scene, version: int, asked: DescribeConfigsRequest, *results: DescribeConfigsResult
) -> list[DescribeConfigsResult]:
    sent = request(DESCRIBE_CONFIGS, version, asked)
    await it.client.send(sent)
    seen = await it.broker.request()
    assert seen.frame == sent, "the broker drops the names that it does not know"
    await it.broker.send(seen.answer(DescribeConfigsResponse(throttle_time_ms=3, results=results)))
    answer = decode(DescribeConfigsResponse, version, body_of(await it.client.frame(), DESCRIBE_CONFIGS, version))
    assert answer.throttle_time_ms == 3
    return list(answer.results)


def by_name(one: DescribeConfigsResult) -> dict[str, DescribedConfig]:
    found = {config.name: config for config in one.configs}
    assert len(found) == len(one.configs)
    return found


@every_version
async def test_all_of_ours_are_shown_with_their_defaults(version: int) -> None:
    async with scene() as it:
        [shown] = await describe(it, version, describing((GROUP, "sg", None)), result("sg", brokers()))
        found = by_name(shown)
        assert found.keys() == {LIMIT, *OWN}
        assert found[LIMIT].value == "10", "without a dead-letter topic it is the broker's"
        for name, one in OWN.items():
            config = found[name]
            assert (config.value, config.config_source) == (one.default, DEFAULT)
            assert not config.read_only
            assert not config.is_sensitive
            assert config.synonyms == ()
            assert config.config_type == (one.kind if version >= 3 else 0)
            assert config.documentation is (None if version >= 3 else config.documentation)


@every_version
async def test_what_is_set_has_the_source_of_a_group(version: int) -> None:
    async with scene() as it:
        it.set("sg", {THRESHOLD_PERCENT: "30"})
        names = (THRESHOLD_PERCENT, BREAKER_ENABLE)
        asked = describing((GROUP, "sg", names), synonyms=True, documentation=version >= 3)
        [shown] = await describe(it, version, asked, result("sg"))
        found = by_name(shown)
        assert found.keys() == {THRESHOLD_PERCENT, BREAKER_ENABLE}
        one, other = found[THRESHOLD_PERCENT], found[BREAKER_ENABLE]
        assert (one.value, one.config_source) == ("30", SET)
        assert one.synonyms == (
            ConfigSynonym(name=THRESHOLD_PERCENT, value="30", source=SET),
            ConfigSynonym(name=THRESHOLD_PERCENT, value="20", source=DEFAULT),
        )
        assert (other.value, other.config_source) == ("false", DEFAULT)
        assert other.synonyms == (ConfigSynonym(name=BREAKER_ENABLE, value="false", source=DEFAULT),)
        if version >= 3:
            assert one.documentation == OWN[THRESHOLD_PERCENT].documentation


@pytest.mark.parametrize(
    ("keys", "shown"),
    [(None, set(OWN)), ((), set(OWN)), ((DLQ_TOPIC,), {DLQ_TOPIC}), (("x",), set()), ((PAUSE, RESUME), set())],
)
async def test_only_what_is_asked_for_is_shown(keys: tuple[str, ...] | None, shown: set[str]) -> None:
    async with scene() as it:
        [found] = await describe(it, 4, describing((GROUP, "sg", keys)), result("sg"))
        assert by_name(found).keys() == shown


@pytest.mark.parametrize("synonyms", [True, False])
@pytest.mark.parametrize("version", [1, 4])
async def test_the_limit_is_the_users(version: int, synonyms: bool) -> None:
    async with scene() as it:
        it.set("sg", {DLQ_TOPIC: "dlq.a", LIMIT: "7"})
        asked = describing((GROUP, "sg", (LIMIT,)), synonyms=synonyms)
        [shown] = await describe(it, version, asked, result("sg", brokers(synonyms=synonyms)))
        limit = by_name(shown)[LIMIT]
        assert (limit.value, limit.config_source) == ("7", SET)
        assert [(one.value, one.source) for one in limit.synonyms] == ([("7", SET), ("4", DEFAULT)] if synonyms else [])


@pytest.mark.parametrize(
    ("synonyms", "default", "value", "source"),
    [(True, STATIC, "4", STATIC), (True, DEFAULT, "4", DEFAULT), (False, DEFAULT, "5", DEFAULT)],
)
async def test_a_limit_that_the_user_has_not_set_is_the_brokers_default(
    synonyms: bool, default: int, value: str, source: int
) -> None:
    async with scene() as it:
        it.set("sg", {DLQ_TOPIC: "dlq.a"})
        asked = describing((GROUP, "sg", (LIMIT,)), synonyms=synonyms)
        [shown] = await describe(it, 4, asked, result("sg", brokers(synonyms=synonyms, default=default)))
        limit = by_name(shown)[LIMIT]
        assert (limit.value, limit.config_source) == (value, source)
        assert [(one.value, one.source) for one in limit.synonyms] == ([("4", default)] if synonyms else [])


@every_version
async def test_other_resources_and_refusals_stay_as_they_are(version: int) -> None:
    async with scene() as it:
        it.set("denied", {THRESHOLD_PERCENT: "30"})
        topic = DescribedConfig(name="retention.ms", value="1", config_source=DEFAULT)
        results = (
            result("a", topic, kind=TOPIC),
            result("denied", code=30),
            result("sg"),
            result("foreign"),
        )
        asked = describing((TOPIC, "a", None), (GROUP, "denied", None), (GROUP, "sg", None), (GROUP, "foreign", None))
        shown = await describe(it, version, asked, *results)
        assert [(one.resource_name, len(one.configs)) for one in shown] == [
            ("a", 1),
            ("denied", 0),
            ("sg", len(OWN)),
            ("foreign", 0),
        ]
        assert shown[1].error_code == 30


@every_version
async def test_requests_without_a_group_of_ours_pass_byte_for_byte(version: int) -> None:
    async with scene() as it:
        answer = DescribeConfigsResponse(results=(result("sg", kind=TOPIC), result("foreign", brokers())))
        await it.passes(DESCRIBE_CONFIGS, version, describing((TOPIC, "sg", None), (GROUP, "foreign", None)), answer)
    async with scene(opens=asyncio.Event()) as it:
        answer = DescribeConfigsResponse(results=(result("sg", brokers()),))
        await it.passes(DESCRIBE_CONFIGS, version, describing((GROUP, "sg", None)), answer)


@pytest.mark.parametrize("proved", [False, True])
@every_version
async def test_a_large_request_of_topics_passes_byte_for_byte_whoever_sends_it(version: int, *, proved: bool) -> None:
    async with scene(proved=proved) as it:
        many = describing(*((TOPIC, f"{i:060}", None) for i in range(10_000)))
        assert len(encode(many, version)) > 512 * 1024, "more than is gathered for somebody who is not known yet"
        await it.passes(DESCRIBE_CONFIGS, version, many)


async def test_a_request_over_8_kib_is_opened_wherever_its_groups_are() -> None:
    async with scene() as it:
        topics = [(TOPIC, f"{i:060}", None) for i in range(500)]
        asked = describing(*topics, (GROUP, "sg", None))
        shown = await describe(it, 4, asked, *(result(name, kind=TOPIC) for _, name, _ in topics), result("sg"))
        assert len(shown[-1].configs) == len(OWN)


async def test_a_large_request_is_read_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 MiB may be three million groups; to look at each of them took half a second."""
    threads = set()
    selects = ShareGroupService.selects

    def watched(self: ShareGroupService, group: str) -> bool:
        threads.add(threading.current_thread())
        return selects(self, group)

    monkeypatch.setattr(ShareGroupService, "selects", watched)
    async with scene() as it:
        topics = [(TOPIC, f"{i:060}", None) for i in range(500)]
        asked = describing(*topics, (GROUP, "sg", None))
        shown = await describe(it, 4, asked, *(result(name, kind=TOPIC) for _, name, _ in topics), result("sg"))
        assert len(shown[-1].configs) == len(OWN)
    assert len(threads) == 1
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("padding", [0, 100])
async def test_other_work_goes_on_while_configs_are_added_to_many_groups(
    padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the broker's own results are few bytes: it leaves out the configs that it does not know."""
    calls = count_calls(monkeypatch, ShareGroupService, "state")
    async with scene() as it:
        groups = [f"g{number}" for number in range(1_000)]
        asked = describing(*((GROUP, group, tuple(OWN)) for group in groups))
        configs = (DescribedConfig(name="x", value="y" * padding),) if padding else ()
        results = tuple(result(group, *configs) for group in groups)
        body = encode(DescribeConfigsResponse(results=results), 4)
        assert (len(body) > SMALL_BYTES) == bool(padding)
        shown = await describe(it, 4, asked, *results)
        assert [one.resource_name for one in shown] == groups
        assert {len(one.configs) for one in shown} == {len(configs) + len(OWN)}
    assert calls.number == 1_000
    assert calls.before_other_work <= A_STEP


@every_version
@pytest.mark.parametrize("resources", [10, 11])
async def test_ours_are_not_added_for_a_request_of_too_many_resources(
    version: int, resources: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every result of its response would be looked at on the event loop; the request is not decoded either."""
    monkeypatch.setattr(config_interceptors, "_MOST_DESCRIBED", 10)
    async with scene() as it:
        groups = [f"g{number}" for number in range(resources)]
        asked = describing(*((GROUP, group, None) for group in groups))
        shown = await describe(it, version, asked, *map(result, groups))
        assert {len(one.configs) for one in shown} == {len(OWN) if resources == 10 else 0}


async def test_a_large_answer_is_added_to_as_well() -> None:
    async with scene() as it:
        topics = [result(f"t{i}", DescribedConfig(name="x", value="y" * 100), kind=TOPIC) for i in range(1000)]
        asked = describing((GROUP, "sg", None), *((TOPIC, one.resource_name, None) for one in topics))
        shown = await describe(it, 4, asked, *topics, result("sg"))
        assert len(shown) == 1001
        assert len(shown[-1].configs) == len(OWN)


# --- lists ----------------------------------------------------------------------------------------------------------


async def listed(it: Scene, types: tuple[int, ...], *found: tuple[str, int], code: int = 0) -> list[tuple[str, int]]:
    await it.client.send(request(LIST_RESOURCES, 1, ListConfigResourcesRequest(resource_types=types)))
    resources = tuple(ConfigResource(resource_name=name, resource_type=kind) for name, kind in found)
    await it.broker.reply(ListConfigResourcesResponse(throttle_time_ms=3, error_code=code, config_resources=resources))
    answer = decode(ListConfigResourcesResponse, 1, body_of(await it.client.frame(), LIST_RESOURCES, 1))
    assert (answer.throttle_time_ms, answer.error_code) == (3, code)
    return [(one.resource_name, one.resource_type) for one in answer.config_resources]


@every_version
async def test_parked_dead_letters_are_shown_only_when_they_are_asked_for_by_name(version: int) -> None:
    async with scene() as it:
        for number in range(3):
            it.kafka.spool_index.apply(
                spool_record(0, number, dead_letter(number, group="sg", target="dlq.old", parked="too large"))
            )
        (one,) = await describe(it, version, describing((GROUP, "sg", (PARKED,))), result())
        assert [(config.name, config.value, config.read_only) for config in one.configs] == [
            (PARKED, '{"dlq.old": {"too large": 3}}', True)
        ]
        (all_names,) = await describe(it, version, describing((GROUP, "sg", None)), result())
        assert PARKED not in {config.name for config in all_names.configs}
        (refused,) = await describe(it, version, describing((GROUP, "sg", (PARKED,))), result(code=30))
        assert refused.configs == ()


async def test_many_parked_topics_are_cut_to_what_a_response_can_hold() -> None:
    async with scene() as it:
        for number in range(300):
            parked = dead_letter(number, group="sg", target=f"dlq.{number:0200}", parked="too large")
            it.kafka.spool_index.apply(spool_record(0, number, parked))
        (one,) = await describe(it, 1, describing((GROUP, "sg", (PARKED,))), result())
        assert 20_000 < len(one.configs[0].value or "") < 32_768


async def test_a_group_with_parked_dead_letters_and_no_configs_is_listed() -> None:
    async with scene() as it:
        it.kafka.spool_index.apply(spool_record(0, 0, dead_letter(1, group="parked", parked="too large")))
        it.kafka.spool_index.apply(spool_record(0, 1, dead_letter(1, group="spooled")))
        assert await listed(it, (GROUP,)) == [("parked", GROUP)]


@pytest.mark.parametrize("types", [(), (GROUP,), (TOPIC, GROUP)])
async def test_groups_that_only_we_know_are_listed(types: tuple[int, ...]) -> None:
    async with scene() as it:
        it.set("ours", {THRESHOLD_PERCENT: "30"})
        it.set("both", {THRESHOLD_PERCENT: "30"})
        it.set("foreign", {THRESHOLD_PERCENT: "30"})
        it.read(GroupPaused(group="only-paused", reason="x", by="y", at=1))
        found = await listed(it, types, ("both", GROUP), ("ours", TOPIC))
        assert found == [("both", GROUP), ("ours", TOPIC), ("ours", GROUP)]


async def test_nothing_is_added_to_a_refusal_or_to_what_was_not_asked_for() -> None:
    async with scene() as it:
        it.set("ours", {THRESHOLD_PERCENT: "30"})
        assert await listed(it, (GROUP,), code=31) == []
        assert await listed(it, (TOPIC,), ("t", TOPIC)) == [("t", TOPIC)]


@pytest.mark.parametrize(("version", "types"), [(0, ()), (1, (16,))])
async def test_other_lists_pass_byte_for_byte(version: int, types: tuple[int, ...]) -> None:
    async with scene() as it:
        it.set("ours", {THRESHOLD_PERCENT: "30"})
        answer = ListConfigResourcesResponse(config_resources=(ConfigResource(resource_name="m"),))
        await it.passes(LIST_RESOURCES, version, ListConfigResourcesRequest(resource_types=types), answer)


async def test_a_list_passes_byte_for_byte_when_there_is_nothing_to_add_or_nothing_known() -> None:
    async with scene() as it:
        everything = ListConfigResourcesRequest()
        await it.passes(LIST_RESOURCES, 1, everything)
    async with scene(opens=asyncio.Event()) as it:
        it.set("ours", {THRESHOLD_PERCENT: "30"})
        await it.passes(LIST_RESOURCES, 1, everything)
