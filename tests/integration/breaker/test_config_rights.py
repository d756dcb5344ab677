"""Who may change, see and steer a share group, and who is told of a conflict: a broker's own ACLs, by SCRAM users.

The measure is the broker: what it lets a user do with a config of its own, the gateway lets it do with ours.
"""

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from headgate.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
    ListConfigResourcesRequest,
)
from headgate.wire.messages.share import (
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.support.cluster import USERS, Cluster
from tests.support.share_consumers import ShareJvm
from tests.support.share_scene import (
    COPY,
    DLQ_TOPIC,
    PAUSE,
    RESUME,
    STATUS_TAG,
    THRESHOLD,
    ShareScene,
    done,
    kafka,
    share_scene,
    until,
)
from tests.support.share_truth import Reading
from tests.support.streams_client import MECHANISM, SASL_PLAINTEXT, StreamsClient

DESCRIBE_CONFIGS, INCREMENTAL, LIST, HEARTBEAT, DESCRIBE = 32, 44, 74, 76, 77
GROUP = 32
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, INVALID_CONFIG, INVALID_REQUEST = 29, 30, 31, 40, 42
ISOLATION = "share.group.dlq.strict.isolation"
LOCKS = "share.record.lock.duration.ms"
DENIED = "Group authorization failed."
Operation = kafka.AclOperation

# By what they may do with the groups; whoever may change them may write to one topic and describe another.
RIGHTS: dict[str, tuple[Any, ...]] = {
    "nobody": (),
    "reader": (Operation.READ,),
    "watcher": (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    "changer": (Operation.ALTER_CONFIGS,),
    "owner": (Operation.ALL,),
}
MAY_CHANGE, MAY_SEE_CONFIGS = {"changer", "owner"}, {"watcher", "changer", "owner"}
MAY_DESCRIBE, MAY_READ = {"reader", "watcher", "owner"}, {"reader", "owner"}
every_user = pytest.mark.parametrize("user", RIGHTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The gateway before the SASL listener; names of users and groups begin with `prefix`."""

    scene: ShareScene
    prefix: str
    mine: str  # a topic that users may write to
    seen: str  # one that they may only describe
    hidden: str  # one that they may not even describe

    def client(self, user: str) -> StreamsClient:
        address = self.scene.gateway.address(0)
        return StreamsClient(address, user=self.prefix + user, password=user)

    def direct(self, user: str) -> StreamsClient:
        address = self.scene.cluster.kafka.bootstrap_of(SASL_PLAINTEXT)
        return StreamsClient(address, user=self.prefix + user, password=user)

    def new_group(self) -> str:
        return f"{self.prefix}{uuid.uuid4().hex[:8]}"

    def values(self, group: str) -> dict[str, str | None]:
        with self.client("owner") as client:
            return described(client, group)[1]


def _acls(user: str, kind: Any, name: str, operations: Iterable[Any], pattern: str = "LITERAL") -> list[Any]:
    return [
        kafka.AclBinding(
            kind, name, kafka.ResourcePatternType[pattern], f"User:{user}", "*", one, kafka.AclPermissionType.ALLOW
        )
        for one in operations
    ]


@pytest.fixture(scope="module")
def place(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("config-rights")
    (folder / "password").write_text(USERS["admin"])
    with share_scene(
        cluster,
        folder,
        upstream=cluster.kafka.bootstrap_of(SASL_PLAINTEXT),
        upstream__service_user="admin",
        upstream__service_mechanism="PLAIN",
        upstream__service_password_file=str(folder / "password"),
        clients={
            name: value
            for name, value in cluster.client_config(SASL_PLAINTEXT, user="admin", mechanism="PLAIN").items()
            if name != "bootstrap.servers"
        },
    ) as scene:
        mine, seen, hidden = (scene.new_topic("dlq") for _ in range(3))
        place = Place(scene=scene, prefix=f"rights-{scene.name}-", mine=mine, seen=seen, hidden=hidden)
        _make_users(place)
        yield place


def _make_users(place: Place) -> None:
    admin = place.scene.admin()
    information = kafka.ScramCredentialInfo(kafka.ScramMechanism.SCRAM_SHA_512, 4096)
    assert MECHANISM == "SCRAM-SHA-512"
    names = {user: place.prefix + user for user in RIGHTS}
    done(
        admin.alter_user_scram_credentials(
            [kafka.UserScramCredentialUpsertion(name, information, user.encode()) for user, name in names.items()]
        )
    )
    bindings = []
    for user, operations in RIGHTS.items():
        bindings += _acls(names[user], kafka.ResourceType.GROUP, place.prefix, operations, "PREFIXED")
        bindings += _acls(names[user], kafka.ResourceType.TOPIC, place.mine, (Operation.WRITE,))
        bindings += _acls(names[user], kafka.ResourceType.TOPIC, place.seen, (Operation.DESCRIBE,))
    bindings += _acls(names["owner"], kafka.ResourceType.BROKER, "kafka-cluster", (Operation.DESCRIBE_CONFIGS,))
    done(admin.create_acls(bindings))
    # The last of them is heard last.
    until(lambda: _list_code(place) == 0)


def _list_code(place: Place) -> int:
    with place.direct("owner") as client:
        return client.raw.call(ListConfigResourcesRequest(), 1).error_code


def change(
    client: StreamsClient, group: str, changes: dict[str, str | None], *, validate_only: bool = False
) -> tuple[int, str | None]:
    configs = tuple(
        IncrementalConfig(name=name, config_operation=int(value is None), value=value)
        for name, value in changes.items()
    )
    resource = IncrementalAlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    [answer] = client.raw.call(request, 1).responses
    return answer.error_code, answer.error_message


def described(client: StreamsClient, group: str) -> tuple[int, dict[str, str | None]]:
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=None)
    [result] = client.raw.call(DescribeConfigsRequest(resources=(resource,)), 4).results
    return result.error_code, {one.name: one.value for one in result.configs}


def join(client: StreamsClient, group: str, topic: str) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id=uuid.uuid4().hex, member_epoch=0, subscribed_topic_names=(topic,)
    )
    answers: list[ShareGroupHeartbeatResponse] = []

    def is_answered() -> bool:
        answers.append(client.raw.call(request, 1))
        return answers[-1].error_code not in {14, 15, 16}  # a coordinator that is still on its way

    until(is_answered)
    return answers[-1]


# --- changing -------------------------------------------------------------------------------------------------------


@every_user
@pytest.mark.parametrize(
    "changes", [{COPY: "true"}, {COPY: "true", LOCKS: "20000"}, {COPY: None}, {COPY: "perhaps"}], ids=str
)
def test_ours_are_changed_by_whom_the_broker_lets_change_its_own(
    place: Place, user: str, changes: dict[str, str | None]
) -> None:
    group = place.new_group()
    with place.client(user) as client, place.direct(user) as direct:
        may = change(direct, group, {LOCKS: "20000"}, validate_only=True)
        for validate_only in (True, False):
            code, text = change(client, group, changes, validate_only=validate_only)
            if user in MAY_CHANGE:
                assert may == (0, None)
                assert code == (INVALID_CONFIG if changes[COPY] == "perhaps" else 0), text
            else:
                assert (code, text) == may == (GROUP_DENIED, DENIED)
    is_changed = user in MAY_CHANGE and changes[COPY] == "true"
    assert place.values(group)[COPY] == ("true" if is_changed else "false")
    # A broker hears of its own a little after its answer.
    until(lambda: (place.values(group)[LOCKS] == "20000") is (is_changed and LOCKS in changes))


@every_user
def test_to_pause_and_resume_is_to_change_and_a_reader_cannot_free_itself(place: Place, user: str) -> None:
    group = place.new_group()
    with place.client("owner") as owner, place.client(user) as client:
        assert change(owner, group, {THRESHOLD: "30", PAUSE: "by the owner"}) == (0, None)
        may = user in MAY_CHANGE
        for step in (PAUSE, RESUME):
            assert change(client, group, {step: f"by {user}"}) == ((0, None) if may else (GROUP_DENIED, DENIED))
    events = place.scene.events
    wanted = {"by the owner", f"by {user}"} if may else {"by the owner"}
    until(lambda: len(events(group, "paused", "resumed")) >= (3 if may else 1))
    found = events(group, "paused", "resumed")
    assert {one["detail"]["reason"] for one in found} == wanted
    assert {one["by"] for one in found} == {
        f"User:{place.prefix}{who}" for who in ({"owner", user} if may else {"owner"})
    }


@every_user
def test_a_dead_letter_topic_needs_write_on_it_too(place: Place, user: str) -> None:
    group = place.new_group()
    absent = f"dlq.absent-{place.scene.name}"
    with place.client(user) as client:
        codes = {
            topic: change(client, group, {DLQ_TOPIC: topic})[0]
            for topic in (place.seen, place.hidden, absent, place.mine)
        }
        if user not in MAY_CHANGE:
            assert set(codes.values()) == {GROUP_DENIED}, "and nothing is told of topics"
            return
        refused = TOPIC_DENIED
        assert codes == {place.seen: refused, place.hidden: refused, absent: refused, place.mine: 0}
        assert place.values(group)[DLQ_TOPIC] == place.mine
        assert change(client, group, {DLQ_TOPIC: None}) == (0, None)


# --- seeing ---------------------------------------------------------------------------------------------------------


@every_user
def test_ours_are_shown_to_whom_the_broker_shows_its_own(place: Place, user: str) -> None:
    group = place.new_group()
    with place.client("owner") as owner:
        assert change(owner, group, {THRESHOLD: "77"}) == (0, None)
    with place.client(user) as client, place.direct(user) as direct:
        code, found = described(client, group)
        assert code == described(direct, group)[0] == (0 if user in MAY_SEE_CONFIGS else GROUP_DENIED)
        assert found.get(THRESHOLD) == ("77" if user in MAY_SEE_CONFIGS else None)
        listing = client.raw.call(ListConfigResourcesRequest(), 1)
        assert listing.error_code == (0 if user == "owner" else CLUSTER_DENIED)
        assert (group in {one.resource_name for one in listing.config_resources}) is (user == "owner")


@every_user
def test_the_state_is_shown_to_whom_the_broker_describes_the_group(place: Place, user: str) -> None:
    group, topic = place.new_group(), place.mine
    with place.client("owner") as owner:
        assert join(owner, group, topic).error_code == 0
        assert change(owner, group, {THRESHOLD: "77"}) == (0, None)
    request = ShareGroupDescribeRequest(group_ids=(group,))
    with place.client(user) as client, place.direct(user) as direct:
        [found] = client.raw.call(request, 1).groups
        [brokers] = direct.raw.call(request, 1).groups
    assert found.error_code == brokers.error_code
    assert (found.error_code == GROUP_DENIED) is (user not in MAY_DESCRIBE)
    tags = dict(found.unknown_tags)
    assert (STATUS_TAG in tags) is (found.error_code == 0)
    if STATUS_TAG in tags:
        status = json.loads(tags[STATUS_TAG])
        assert status["threshold_percent"] == (77 if user in MAY_SEE_CONFIGS else None)
        assert status["paused"] is False


# --- isolation ------------------------------------------------------------------------------------------------------


def registered(place: Place, topic: str) -> list[str]:
    """The groups of a dead-letter topic, as the leader has written it down."""
    reader = Reading(place.scene.direct, f"{place.scene.facts}state")
    try:
        facts = [(json.loads(key), value) for _, key, value, _ in reader.to_the_end() if key]
    finally:
        reader.close()
    last = {key[2]: value for key, value in facts if key[:2] == ["dlq", topic]}
    return [group for group, value in last.items() if value is not None]


@pytest.fixture(scope="module")
def conflict(place: Place) -> tuple[str, str, str]:
    """Two groups with one dead-letter topic, of which the first exists; the second one would have it alone."""
    first, second, topic = place.new_group(), place.new_group(), place.scene.new_topic("dlq")
    with place.client("owner") as client:
        assert join(client, first, place.mine).error_code == 0
    place.scene.configure(first, {DLQ_TOPIC: topic})
    until(lambda: registered(place, topic) == [first])
    place.scene.configure(second, {DLQ_TOPIC: topic, ISOLATION: "true"})
    until(lambda: registered(place, topic) == [first, second])
    return first, second, topic


@every_user
def test_a_conflict_is_reported_to_clients_that_the_broker_would_let_join(
    place: Place, conflict: tuple[str, str, str], user: str
) -> None:
    first, second, topic = conflict
    with place.client(user) as client, place.direct(user) as direct:
        refused, brokers = join(client, second, place.mine), join(direct, place.new_group(), place.mine)
    if user not in MAY_READ:
        assert refused.error_code == brokers.error_code == GROUP_DENIED
        assert first not in (refused.error_message or "")
        return
    assert brokers.error_code == 0
    assert refused.error_code == INVALID_REQUEST
    text = refused.error_message or ""
    assert all(word in text for word in (first, second, topic, "restart")), text


def test_the_text_of_a_conflict_names_no_group_that_the_client_may_not_describe(
    place: Place, cluster: Cluster, java_440: ShareJvm
) -> None:
    scene = place.scene
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    hidden, second = scene.new_group({DLQ_TOPIC: dlq}), place.new_group()
    settings = cluster.java_config(SASL_PLAINTEXT, user="admin", mechanism="PLAIN", bootstrap=scene.bootstrap)
    owner = java_440.join(hidden, settings, hidden, [topic], commit="sync")
    scene.send(topic, ["A:"])
    owner.wait_for_records(1)
    until(lambda: registered(place, dlq) == [hidden])
    scene.configure(second, {DLQ_TOPIC: dlq, ISOLATION: "true"})
    with place.client("reader") as client:
        refused = join(client, second, place.mine)
    owner.close()
    assert refused.error_code == INVALID_REQUEST
    assert "is already registered by another share group." in (refused.error_message or "")
    assert hidden not in (refused.error_message or "")


def test_the_first_group_and_groups_without_strict_isolation_join(place: Place, conflict: tuple[str, str, str]) -> None:
    first, _, topic = conflict
    third = place.new_group()
    place.scene.configure(third, {DLQ_TOPIC: topic})
    with place.client("owner") as client:
        assert join(client, first, place.mine).error_code == 0
        assert join(client, third, place.mine).error_code == 0


def test_a_refused_consumer_gets_the_text_and_a_new_one_joins_when_the_conflict_is_over(
    place: Place, cluster: Cluster, java_440: ShareJvm
) -> None:
    scene = place.scene
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    first, second = scene.new_group({DLQ_TOPIC: dlq}), scene.new_group()
    until(lambda: registered(place, dlq) == [first])
    scene.configure(second, {DLQ_TOPIC: dlq, ISOLATION: "true"})
    settings = cluster.java_config(SASL_PLAINTEXT, user="admin", mechanism="PLAIN", bootstrap=scene.bootstrap)
    owner = java_440.join(first, settings, first, [topic], commit="sync")
    scene.send(topic, ["A:"])
    owner.wait_for_records(1)
    owner.close()
    refused = java_440.join(f"{second}-refused", settings, second, [topic], commit="sync")
    text = refused.wait("error")["text"]
    assert first in text, text
    assert "restart" in text, text
    refused.close()
    scene.configure(first, {DLQ_TOPIC: None})
    until(lambda: registered(place, dlq) == [second])
    scene.send(topic, ["A:"])
    joined = java_440.join(f"{second}-joined", settings, second, [topic], commit="sync")
    joined.wait_for_records(1)
    joined.close()
    assert joined.errors == []
