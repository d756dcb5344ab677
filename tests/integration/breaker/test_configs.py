"""Configs of groups through Kafka's own tools and clients: ours are set, deleted, validated, shown, listed as its own.

What is none of ours is answered byte for byte as the broker answers it.
"""

import asyncio
import os
import subprocess
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

import pytest

from headgate.base.ids import NodeId
from headgate.config.addresses import Address, parse_address
from headgate.config.model import Config, GatewayConfig, MetricsConfig, UpstreamConfig
from headgate.embedded.java import class_path, find_java, jars_folder
from headgate.share_groups.config_interceptors import AlterConfigsInterceptor
from headgate.share_groups.model.group_configs import ConfigRules
from headgate.share_groups.model.group_state import ShareGroupState
from headgate.wire.codec import encode
from headgate.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
    ListConfigResourcesRequest,
)
from headgate.wire.schema import Request
from tests.support.cluster import Cluster
from tests.support.gateway_thread import GatewayThread
from tests.support.ports import port_block
from tests.support.raw_client import RawClient
from tests.support.share_scene import (
    BREAKER,
    COPY,
    DLQ_TOPIC,
    LIMIT,
    PAUSE,
    RESUME,
    THRESHOLD,
    WINDOW,
    ShareScene,
    is_refused,
    kafka,
    until,
)

DESCRIBE, ALTER, INCREMENTAL, LIST = 32, 33, 44, 74
TOPIC, GROUP = 2, 32
SET, DELETE, APPEND = 0, 1, 2
DEFAULT_SOURCE, GROUP_SOURCE = 5, 8
LOCKS = "share.record.lock.duration.ms"
Asked = tuple[str, int, str | None]
versions = pytest.mark.parametrize(
    ("key", "version"), [(INCREMENTAL, 0), (INCREMENTAL, 1), (ALTER, 0), (ALTER, 1), (ALTER, 2)]
)


@pytest.fixture
def group(scene: ShareScene) -> str:
    group = scene.new_group()
    shows(scene, group, {"share.auto.offset.reset": "earliest"})
    return group


@pytest.fixture
def raw(scene: ShareScene) -> Iterator[RawClient]:
    with RawClient(scene.bootstrap) as client:
        yield client


def alteration(
    key: int, *groups: tuple[str, list[Asked]], validate_only: bool = False, kind: int = GROUP
) -> Request[Any]:
    if key == INCREMENTAL:
        return IncrementalAlterConfigsRequest(
            resources=tuple(
                IncrementalAlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=tuple(
                        IncrementalConfig(name=one, config_operation=operation, value=value)
                        for one, operation, value in configs
                    ),
                )
                for name, configs in groups
            ),
            validate_only=validate_only,
        )
    return AlterConfigsRequest(
        resources=tuple(
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=tuple(AlterableConfig(name=one, value=value) for one, _, value in configs),
            )
            for name, configs in groups
        ),
        validate_only=validate_only,
    )


def alter(
    client: RawClient, key: int, version: int, *groups: tuple[str, list[Asked]], validate_only: bool = False
) -> list[tuple[str, int, str | None]]:
    answer: Any = client.call(alteration(key, *groups, validate_only=validate_only), version)
    return [(one.resource_name, one.error_code, one.error_message) for one in answer.responses]


def describe(
    client: RawClient, group: str, names: tuple[str, ...] | None = None, *, version: int = 4
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=names)
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True, include_documentation=version >= 3)
    [result] = client.call(request, version).results
    return result


def values(scene: ShareScene, group: str) -> dict[str, str]:
    """What is set for the group, as the gateway shows it."""
    with RawClient(scene.bootstrap) as client:
        configs = describe(client, group).configs
    return {one.name: one.value or "" for one in configs if one.config_source == GROUP_SOURCE}


def shows(scene: ShareScene, group: str, wanted: Mapping[str, str | None]) -> None:
    """Wait until these are set, and those with None are not: a broker hears of its own a little after its answer."""

    def is_so() -> bool:
        found = values(scene, group)
        return all(found.get(name) == value for name, value in wanted.items())

    until(is_so, what=lambda: f"{values(scene, group)}, wanted {wanted}")


def listed(client: RawClient, *types: int) -> list[str]:
    request = ListConfigResourcesRequest(resource_types=types)
    found = client.call(request, 1).config_resources
    return [one.resource_name for one in found if one.resource_type == GROUP]


# --- Kafka's own tool -----------------------------------------------------------------------------------------------


def kafka_configs(bootstrap: str, release: str, *arguments: str) -> str:
    """What `kafka-configs.sh` prints, with the Admin client of 4.3.1 or 4.4.0 below it."""
    jars = class_path("broker")
    if release == "4.4.0":
        [newer] = (jars_folder() / "clients").glob("kafka-clients-*.jar")
        jars = f"{newer}{os.pathsep}{jars}"
    command = [str(find_java().command), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars]
    tool = ["kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, "--entity-type", "groups"]
    done = subprocess.run([*command, *tool, *arguments], capture_output=True, text=True, timeout=90, check=False)
    return done.stdout + done.stderr


def test_kafka_configs_sets_lists_shows_refuses_and_deletes(scene: ShareScene) -> None:
    group = f"tool-{scene.name}"  # the broker has never heard of it
    this = ("--entity-name", group)
    told = kafka_configs(scene.bootstrap, "4.3.1", *this, "--alter", "--add-config", f"{THRESHOLD}=30,{BREAKER}=true")
    assert f"Completed updating config for group {group}." in told, told

    everything = kafka_configs(scene.bootstrap, "4.3.1", "--describe")
    mine = everything.partition(f"Dynamic configs for group {group} are:")[2].partition("Dynamic configs for")[0]
    assert f"{THRESHOLD}=30 sensitive=false" in mine, everything
    assert f"{BREAKER}=true sensitive=false" in mine, everything
    assert WINDOW not in mine, "a default is not shown without --all"

    told = kafka_configs(scene.bootstrap, "4.3.1", *this, "--alter", "--add-config", f"{LOCKS}=20000,{THRESHOLD}=101")
    assert f"Invalid value 101 for configuration {THRESHOLD}: Value must be no more than 100" in told, told
    assert values(scene, group) == {THRESHOLD: "30", BREAKER: "true"}


def test_the_admin_client_of_4_4_does_it_too(scene: ShareScene) -> None:
    group = f"tool-4.4-{scene.name}"
    this = ("--entity-name", group)
    scene.configure(group, {THRESHOLD: "30", BREAKER: "true"})
    changed = ("--add-config", f"{LOCKS}=20000,{PAUSE}=by the tool", "--delete-config", THRESHOLD)
    told = kafka_configs(scene.bootstrap, "4.4.0", *this, "--alter", *changed)
    assert f"Completed updating config for group {group}." in told, told
    shows(scene, group, {LOCKS: "20000", BREAKER: "true", THRESHOLD: None, PAUSE: None})
    shown = kafka_configs(scene.bootstrap, "4.4.0", *this, "--describe", "--all")
    synonyms = f"{{DYNAMIC_GROUP_CONFIG:{BREAKER}=true, DEFAULT_CONFIG:{BREAKER}=false}}"
    assert f"{BREAKER}=true sensitive=false synonyms={synonyms}" in shown, shown
    assert f"{THRESHOLD}=20 sensitive=false synonyms={{DEFAULT_CONFIG:{THRESHOLD}=20}}" in shown, shown


class OpeningService:
    """A service that has read its topics when it was asked for groups twice."""

    def __init__(self) -> None:
        self.rules = ConfigRules()
        self.is_ready = False
        self.refused = 0
        self.applied: list[tuple[object, ...]] = []

    def selects(self, group: str) -> bool:  # noqa: ARG002
        if not self.is_ready:
            self.refused += 1
            self.is_ready = self.refused == 2
        return True

    def state(self, group: str) -> ShareGroupState:  # noqa: ARG002
        return ShareGroupState()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        return asyncio.get_running_loop().create_task(work)

    async def set_configs(self, group: str, changes: dict[str, str | None], by: str) -> None:
        self.applied.append((group, changes, by))


def test_a_java_client_comes_again_by_itself_until_the_groups_are_known(cluster: Cluster) -> None:
    service, port = OpeningService(), port_block()
    config = Config(
        gateway=GatewayConfig(listen=Address("127.0.0.1", port), nodes=(NodeId(0),)),
        upstream=UpstreamConfig(bootstrap=(parse_address(cluster.bootstrap),), service_mechanism="none"),
        metrics=MetricsConfig(listen=Address("127.0.0.1", port + 15)),
    )
    interceptor = AlterConfigsInterceptor(service, lambda _: None, dlq_auto_create=False)  # type: ignore[arg-type]
    with GatewayThread(config, (interceptor,)) as gateway:
        change = ("--entity-name", "early", "--alter", "--add-config", f"{THRESHOLD}=30")
        told = kafka_configs(gateway.bootstrap, "4.3.1", *change)
    assert "Completed updating config for group early." in told, told
    assert service.refused == 2
    assert service.applied == [("early", {THRESHOLD: "30"}, "unknown")]


# --- librdkafka -----------------------------------------------------------------------------------------------------


def resource(name: str, *changes: Asked, kind: str = "GROUP") -> Any:
    operations = (kafka.AlterConfigOpType.SET, kafka.AlterConfigOpType.DELETE, kafka.AlterConfigOpType.APPEND)
    entries = [
        kafka.ConfigEntry(one, value, incremental_operation=operations[operation]) for one, operation, value in changes
    ]
    return kafka.ConfigResource(kafka.ConfigResource.Type[kind], name, incremental_configs=entries)


def test_librdkafka_sets_shows_and_deletes(scene: ShareScene, group: str) -> None:
    scene.configure(group, {COPY: "true", LOCKS: "20000"})
    shows(scene, group, {COPY: "true", LOCKS: "20000"})
    [found] = scene.admin(through=True).describe_configs([resource(group)]).values()
    entries = found.result(30)
    ours, brokers, default = entries[COPY], entries[LOCKS], entries[WINDOW]
    assert (ours.value, brokers.value, default.value) == ("true", "20000", "60000")
    assert (ours.is_default, brokers.is_default, default.is_default) == (False, False, True)
    assert ours.source == brokers.source
    assert scene.described(group, LOCKS, through=False) == "20000"
    scene.configure(group, {COPY: None, LOCKS: None})
    shows(scene, group, {COPY: None, LOCKS: None})


def test_librdkafka_validates_only(scene: ShareScene, group: str) -> None:
    before = values(scene, group)
    fine, bad = resource(group, (COPY, SET, "true"), (LOCKS, SET, "20000")), resource(group, (COPY, SET, "perhaps"))
    admin = scene.admin(through=True)
    [done] = admin.incremental_alter_configs([fine], validate_only=True).values()
    done.result(30)
    text = is_refused(admin.incremental_alter_configs([bad], validate_only=True))
    assert text == f"Invalid value perhaps for configuration {COPY}: Expected value to be either true or false"
    assert values(scene, group) == before
    assert scene.described(group, LOCKS, through=False) != "20000"


def test_the_old_call_of_librdkafka_replaces_ours_too(scene: ShareScene, group: str) -> None:
    scene.configure(group, {COPY: "true", THRESHOLD: "30", LOCKS: "20000"})
    kept = kafka.ConfigResource(kafka.ConfigResource.Type.GROUP, group, set_config={THRESHOLD: "40"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        [done] = scene.admin(through=True).alter_configs([kept]).values()
    done.result(30)
    shows(scene, group, {THRESHOLD: "40", COPY: None, LOCKS: None, "share.auto.offset.reset": None})
    assert values(scene, group) == {THRESHOLD: "40"}


# --- every version, call by call ------------------------------------------------------------------------------------


@versions
def test_ours_and_the_brokers_are_changed_whole_or_not_at_all(
    scene: ShareScene, raw: RawClient, group: str, key: int, version: int
) -> None:
    mixed: list[Asked] = [(LOCKS, SET, "20000"), (COPY, SET, "true")]
    assert alter(raw, key, version, (group, mixed), validate_only=True) == [(group, 0, None)]
    assert values(scene, group).keys().isdisjoint({LOCKS, COPY})
    [(name, code, _)] = alter(raw, key, version, (group, [(LOCKS, SET, "20000"), (COPY, SET, "x")]))
    assert (name, code) == (group, 40)
    refused = alter(raw, key, version, (group, [*mixed, ("unknown", SET, "1")]), (f"{group}-2", mixed))
    assert refused == [(group, 40, "Unknown group config name: unknown"), (f"{group}-2", 0, None)]
    shows(scene, f"{group}-2", {LOCKS: "20000", COPY: "true"})
    assert values(scene, group).keys().isdisjoint({LOCKS, COPY})
    assert alter(raw, key, version, (group, mixed)) == [(group, 0, None)]
    shows(scene, group, {LOCKS: "20000", COPY: "true"})


@versions
@pytest.mark.parametrize(
    "configs",
    [
        [(LOCKS, SET, "20000")],
        [(LOCKS, SET, "x")],
        [("unknown", SET, "1")],
        [(LIMIT, SET, "11")],
        [(LIMIT, SET, "7"), (LIMIT, SET, "7")],
        [],
    ],
)
def test_what_is_none_of_ours_is_answered_as_by_the_broker(
    scene: ShareScene, raw: RawClient, key: int, version: int, configs: list[Asked]
) -> None:
    body = encode(alteration(key, ("plain", configs), ("", configs), validate_only=True), version)
    with RawClient(scene.cluster.bootstrap) as direct:
        assert raw.ask(key, version, body) == direct.ask(key, version, body)


@pytest.mark.parametrize("operation", [APPEND, 3])
def test_our_names_are_refused_as_the_broker_refuses_its_own(
    scene: ShareScene, raw: RawClient, group: str, operation: int
) -> None:
    """Only the name differs."""
    broken: list[list[Asked]] = [
        [(COPY, operation, "true")],
        [(COPY, SET, None)],
        [(COPY, SET, "true"), (COPY, SET, "true")],
    ]
    for configs in broken:
        brokers: list[Asked] = [(LOCKS, operation, value) for _, operation, value in configs]
        with RawClient(scene.cluster.bootstrap) as direct:
            [(_, code, text)] = alter(direct, INCREMENTAL, 1, (group, brokers))
        assert alter(raw, INCREMENTAL, 1, (group, configs)) == [(group, code, (text or "").replace(LOCKS, COPY))]
        assert code != 0


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_ours_are_described_in_every_version(scene: ShareScene, raw: RawClient, group: str, version: int) -> None:
    scene.configure(group, {THRESHOLD: "30"})
    result = describe(raw, group, (THRESHOLD, WINDOW, "unknown", LOCKS), version=version)
    found = {one.name: one for one in result.configs}
    assert found.keys() == {THRESHOLD, WINDOW, LOCKS}
    assert (found[THRESHOLD].value, found[THRESHOLD].config_source) == ("30", GROUP_SOURCE)
    assert (found[WINDOW].value, found[WINDOW].config_source) == ("60000", DEFAULT_SOURCE)
    assert [(one.value, one.source) for one in found[THRESHOLD].synonyms] == [
        ("30", GROUP_SOURCE),
        ("20", DEFAULT_SOURCE),
    ]
    if version >= 3:
        assert (found[THRESHOLD].config_type, found[WINDOW].config_type) == (3, 5)
        assert found[THRESHOLD].documentation
    others = describe(raw, group, version=version).configs
    with RawClient(scene.cluster.bootstrap) as direct:
        brokers = describe(direct, group, version=version).configs
    assert {one.name: one for one in others}.items() >= {one.name: one for one in brokers}.items()
    assert len(others) == len(brokers) + 10


def test_a_group_that_only_we_know_is_listed(scene: ShareScene, raw: RawClient) -> None:
    group = f"listed-{scene.name}"
    assert group not in listed(raw)
    scene.configure(group, {THRESHOLD: "30"})
    with RawClient(scene.cluster.bootstrap) as direct:
        assert group not in listed(direct, GROUP)
    for types in ((), (GROUP,), (TOPIC, GROUP)):
        assert listed(raw, *types).count(group) == 1
    assert group not in listed(raw, TOPIC)
    scene.configure(group, {THRESHOLD: None})
    assert group not in listed(raw)
    body = encode(ListConfigResourcesRequest(), 0)
    with RawClient(scene.cluster.bootstrap) as direct:
        assert raw.ask(LIST, 0, body) == direct.ask(LIST, 0, body)


# --- topics, limits and steps ---------------------------------------------------------------------------------------


def test_a_dead_letter_topic_must_be_there_and_have_the_prefix(scene: ShareScene, raw: RawClient, group: str) -> None:
    plain, absent = scene.new_topic(), f"dlq.absent-{scene.name}"
    for topic, text in (
        (absent, f"The topic '{absent}' does not exist."),
        (plain, "Dead-letter topic name must start with 'dlq.'"),
        ("__consumer_offsets", "Dead-letter topic name must not start with '__'"),
    ):
        refused = alter(raw, INCREMENTAL, 1, (group, [(DLQ_TOPIC, SET, topic)]))
        assert refused == [(group, 40, f"Invalid value {topic} for configuration {DLQ_TOPIC}: {text}")]
    assert absent not in scene.admin().list_topics(timeout=30).topics, "asking makes none"


def test_the_brokers_range_of_the_limit_holds_for_ours(scene: ShareScene, raw: RawClient, group: str) -> None:
    scene.configure(group, {DLQ_TOPIC: scene.new_topic("dlq")})
    for value in ("1", "11", "x"):
        with RawClient(scene.cluster.bootstrap) as direct:
            [(_, code, text)] = alter(direct, INCREMENTAL, 1, ("plain", [(LIMIT, SET, value)]), validate_only=True)
        assert alter(raw, INCREMENTAL, 1, (group, [(LIMIT, SET, value)])) == [(group, code, text)]
        assert code == 40
    assert scene.described(group, LIMIT) == "5"


@pytest.mark.parametrize("key", [INCREMENTAL, ALTER])
def test_a_limit_that_comes_with_the_end_of_the_topic_is_the_brokers(
    scene: ShareScene, raw: RawClient, group: str, key: int
) -> None:
    scene.configure(group, {DLQ_TOPIC: scene.new_topic("dlq"), LIMIT: "3"})
    until(lambda: scene.described(group, LIMIT, through=False) == "10")
    changes: list[Asked] = [(LIMIT, SET, "6"), (DLQ_TOPIC, DELETE, None)]
    assert alter(raw, key, 1, (group, changes if key == INCREMENTAL else changes[:1])) == [(group, 0, None)]
    until(lambda: scene.described(group, LIMIT, through=False) == "6", 60)
    assert scene.described(group, LIMIT) == "6"


def test_the_old_call_leaves_the_brokers_limit_at_its_largest(scene: ShareScene, raw: RawClient, group: str) -> None:
    dlq = scene.new_topic("dlq")
    scene.configure(group, {DLQ_TOPIC: dlq, LIMIT: "3"})
    until(lambda: scene.described(group, LIMIT, through=False) == "10")
    changes: list[Asked] = [(DLQ_TOPIC, SET, dlq), (LIMIT, SET, "4"), (LOCKS, SET, "20000")]
    assert alter(raw, ALTER, 2, (group, changes)) == [(group, 0, None)]
    until(lambda: scene.described(group, LOCKS, through=False) == "20000")  # the broker has heard of all of it
    until(lambda: scene.described(group, LIMIT, through=False) == "10", 60)
    assert scene.described(group, LIMIT) == "4"


def test_actions_are_applied_and_not_stored(scene: ShareScene, raw: RawClient, group: str) -> None:
    before = values(scene, group)
    steps: list[Asked] = [(PAUSE, SET, "deploy"), (RESUME, SET, "deployed")]
    for step in steps:
        assert alter(raw, INCREMENTAL, 1, (group, [step]), validate_only=True) == [(group, 0, None)]
    for step in steps:
        assert alter(raw, INCREMENTAL, 1, (group, [step])) == [(group, 0, None)]
    assert values(scene, group) == before
    until(lambda: len(scene.events(group, "paused", "resumed")) >= 2)
    found = {(one["event"], one["detail"]["reason"]) for one in scene.events(group, "paused", "resumed")}
    assert found == {("paused", "deploy"), ("resumed", "deployed")}
