"""What clients without a log-in, without rights, or with some, can do to a share group with a dead-letter topic."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headgate.wire.codec import decode, encode
from headgate.wire.messages.share import (
    AcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from tests.integration.breaker.test_config_rights import Operation, _acls
from tests.support.cluster import USERS, Cluster
from tests.support.raw_client import RawClient
from tests.support.share_member import REJECT, RawShareMember
from tests.support.share_scene import BREAKER, DLQ_TOPIC, PAUSE, ShareScene, done, kafka, share_scene, until
from tests.support.streams_client import SASL_PLAINTEXT

FETCH, ACKNOWLEDGE = 78, 79
TOPIC_DENIED, GROUP_DENIED, INVALID_RECORD_STATE = 29, 30, 121
REQUESTS, PARTITIONS = 40, 10_000
TIMEOUTS = "headgate_share_group_dlq_write_timeouts_total"


@pytest.fixture(scope="module")
def sasl_scene(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareScene]:
    """A gateway in front of the SASL listener; the operator's clients are `admin`."""
    folder = tmp_path_factory.mktemp("share-rights")
    (folder / "password").write_text(USERS["admin"])
    clients = cluster.client_config(SASL_PLAINTEXT, user="admin", mechanism="PLAIN")
    del clients["bootstrap.servers"]
    with share_scene(
        cluster,
        folder,
        upstream=cluster.kafka.bootstrap_of(SASL_PLAINTEXT),
        upstream__service_user="admin",
        upstream__service_mechanism="PLAIN",
        upstream__service_password_file=str(folder / "password"),
        clients=clients,
    ) as scene:
        yield scene


def many_rejects(group: str, topic_id: bytes) -> bytes:
    batch = AcknowledgementBatch(first_offset=0, last_offset=9, acknowledge_types=(REJECT,))
    partitions = tuple(
        ShareAcknowledgePartition(partition_index=index, acknowledgement_batches=(batch,))
        for index in range(PARTITIONS)
    )
    topics = (ShareAcknowledgeTopic(topic_id=topic_id, partitions=partitions),)
    request = ShareAcknowledgeRequest(group_id=group, member_id="m", share_session_epoch=1, topics=topics)
    return encode(request, 2)


def reports(scene: ShareScene, group: str) -> tuple[float, int, int]:
    warnings = [
        line for line in scene.gateway.log_lines() if "archived without" in line or "interceptor failed" in line
    ]
    return scene.gateway.metric(TIMEOUTS), len(warnings), len(scene.events(group, "write_timeout"))


def test_requests_without_a_log_in_are_neither_reported_nor_logged_and_others_are_served(
    sasl_scene: ShareScene,
) -> None:
    scene = sasl_scene
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq})
    body = many_rejects(group, scene.topic_id(topic))
    before = reports(scene, group)
    connections = scene.gateway.metric("headgate_connections")
    with ExitStack() as stack, RawClient(scene.gateway.address(0)) as canary:
        assert canary.log_in("admin", USERS["admin"]).error_code == 0
        flood = [stack.enter_context(RawClient(scene.gateway.address(0))) for _ in range(REQUESTS)]
        for client in flood:
            client.api_versions()
            client.send(ACKNOWLEDGE, 2, body)
            canary.api_versions()
        assert all(client.has_ended() for client in flood), "the broker closes them at the probe"
    # Clients of the scene may have connected meanwhile; the flood was larger than that.
    until(lambda: scene.gateway.metric("headgate_connections") <= connections + REQUESTS // 4)
    assert reports(scene, group) == before
    assert scene.dead_letters(dlq) == []


def test_requests_of_a_client_without_read_on_the_group_are_refused_by_the_broker_and_not_reported(
    sasl_scene: ShareScene,
) -> None:
    scene = sasl_scene
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq})
    before = reports(scene, group)
    member = RawShareMember(group=group, topic=topic, topic_id=scene.topic_id(topic), session=1)
    with RawClient(scene.gateway.address(0)) as client:
        assert client.log_in("bob", USERS["bob"]).error_code == 0
        assert [member.acknowledge(client, 0, 9, [REJECT]) for _ in range(3)] == [GROUP_DENIED] * 3
    assert reports(scene, group) == before
    assert scene.dead_letters(dlq) == []


def test_a_fetch_without_read_on_a_paused_group_is_refused_by_the_gateway_as_by_the_broker(
    sasl_scene: ShareScene,
) -> None:
    scene = sasl_scene
    dlq = scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq, BREAKER: "true"})
    body = encode(ShareFetchRequest(group_id=group, member_id=str(uuid.uuid4()), share_session_epoch=0), 2)
    with RawClient(scene.gateway.address(0)) as client:
        assert client.log_in("bob", USERS["bob"]).error_code == 0
        of_the_broker = client.ask(FETCH, 2, body)
        scene.configure(group, {PAUSE: "deploy"})
        of_the_gateway = client.ask(FETCH, 2, body)
        assert decode(ShareFetchResponse, 2, of_the_broker).error_code == GROUP_DENIED
        assert of_the_gateway == of_the_broker
        done(scene.admin().create_acls(_acls("bob", kafka.ResourceType.GROUP, group, (Operation.READ,))))
        until(lambda: decode(ShareFetchResponse, 2, client.ask(FETCH, 2, body)).error_code != GROUP_DENIED)


def test_a_reject_of_what_a_client_does_not_hold_needs_read_on_the_topic_and_takes_nothing_of_the_member(
    sasl_scene: ShareScene,
) -> None:
    scene = sasl_scene
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq})
    scene.send(topic, ["one"])
    holder = RawShareMember(group=group, topic=topic, topic_id=scene.topic_id(topic))
    with (
        RawClient(scene.gateway.address(0)) as admin,
        RawClient(scene.gateway.address(0)) as alice,
    ):
        assert admin.log_in("admin", USERS["admin"]).error_code == 0
        holder.join(admin)
        assert [one.delivery_count for one in holder.acquire(admin)] == [1]
        done(scene.admin().create_acls(_acls("alice", kafka.ResourceType.GROUP, group, (Operation.READ,))))
        assert alice.log_in("alice", USERS["alice"]).error_code == 0
        # Alice names the member of another client, as one who has described the group can.
        until(lambda: _code_of_alice(holder, alice) != GROUP_DENIED)
        assert _code_of_alice(holder, alice) == TOPIC_DENIED
        assert scene.dead_letters(dlq) == []
        assert holder.acknowledge(admin, 0, 0, [REJECT]) == 0
    [dead_letter] = scene.dead_letters(dlq, 1)
    assert dead_letter.headers["__dlq.errors.delivery.count"] == "1"
    assert scene.events(group, "write_timeout", "dead_letter_withdrawn") == []


def _code_of_alice(holder: RawShareMember, alice: RawClient) -> int:
    """The broker's code for a REJECT of the holder's record by another client."""
    code = holder.acknowledge(alice, 0, 0, [REJECT])
    if code == GROUP_DENIED:
        holder.session -= 1  # refused before the session was looked up
    return code
