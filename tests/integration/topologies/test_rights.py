"""Who may push, read and delete a topology: a broker's own ACLs, by SCRAM users that have some rights and lack others.

`StreamsClient` and `Member` play members and admins of 4.4 call by call; the other tests of this folder use them too.
"""

import asyncio
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from headgate.base.errors import ClusterError
from headgate.config.addresses import parse_address
from headgate.doctor.findings import Resource
from headgate.doctor.rights import Scope, rights_in
from headgate.facts import TopologyDeleted, TopologyDescribed
from headgate.facts.topology import Description
from headgate.kafka.connections import Connections, Credentials, Dialler
from headgate.kafka.group_admin import describe_streams_groups
from headgate.topologies.admin import publish_topology
from headgate.topologies.wire_descriptions import to_wire
from headgate.wire.messages.groups import (
    JoinGroupProtocol,
    JoinGroupRequest,
)
from tests.integration.gateway.exercise import until
from tests.support.cluster import Cluster
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.streams_client import (
    AVAILABLE,
    GROUP_DENIED,
    GROUP_ID_NOT_FOUND,
    MECHANISM,
    NON_EMPTY_GROUP,
    NOT_REQUESTED,
    SASL_PLAINTEXT,
    TOPIC_DENIED,
    UNKNOWN_MEMBER_ID,
    Member,
    StreamsClient,
    application,
    make_topic,
    topology_records,
    wait_until_ready,
)

_numbers = count()


# --- the users ------------------------------------------------------------------------------------------------------

READ, DESCRIBE_IT, DELETE_IT, ALL = (
    AclOperation.READ,
    AclOperation.DESCRIBE,
    AclOperation.DELETE,
    AclOperation.ALL,
)
# By what they may do with the groups; all but the last two may describe the topic that the groups read.
GROUP_RIGHTS: dict[str, tuple[Any, ...]] = {
    "nobody": (),
    "reader": (READ,),
    "describer": (DESCRIBE_IT,),
    "deleter": (DELETE_IT,),
    "owner": (ALL,),
    "blind": (DESCRIBE_IT,),
    "blind-deleter": (DELETE_IT,),
}
SEES_NO_TOPIC = {"blind", "blind-deleter"}
USERS = [user for user in GROUP_RIGHTS if user not in SEES_NO_TOPIC]
MAY_READ, MAY_DELETE = {"reader", "owner"}, {"deleter", "owner"}
SERVICE = "service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The gateway in front of the SASL listener, users of this module, and groups that their rights are about."""

    cluster: Cluster
    gateway: GatewayProcess
    prefix: str  # of users, groups and topics
    facts: str  # of Headgate's topics

    @property
    def topic(self) -> str:
        return f"{self.prefix}in"

    def new_group(self) -> str:
        group = f"{self.prefix}{next(_numbers)}"
        with StreamsClient(self.cluster.bootstrap) as direct:
            direct.lengthen_session(group)
        return group

    def client(self, user: str) -> StreamsClient:
        return StreamsClient(self.gateway.bootstrap, user=self.prefix + user, password=user)

    def direct(self, user: str) -> StreamsClient:
        address = self.cluster.kafka.bootstrap_of(SASL_PLAINTEXT)
        return StreamsClient(address, user=self.prefix + user, password=user)

    def member(self, client: StreamsClient, group: str) -> Member:
        return Member(client=client, group=group, topic=self.topic)

    @contextmanager
    def stored(self, group: str, description: Description) -> Iterator[Member]:
        """The owner's application is in the group and its topology is stored."""
        with self.client("owner") as client:
            member = self.member(client, group)
            assert member.join().topology_description_required
            assert member.push(description).error_code == 0
            yield member

    def records(self, group: str) -> list[TopologyDescribed | TopologyDeleted]:
        return topology_records(self.cluster.client_config(), self.facts, group)


def _allowed(user: str, kind: Any, name: str, operations: Iterable[Any], pattern: Any) -> list[AclBinding]:
    return [
        AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]


def service_rights(user: str, facts: str) -> list[AclBinding]:
    """The table of docs/operate.md, and the group Describe that the cleanup needs."""
    kinds = {
        Resource.TOPIC: ResourceType.TOPIC,
        Resource.GROUP: ResourceType.GROUP,
        Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
    }
    bindings: list[AclBinding] = []
    for right in rights_in(Scope.ALWAYS):
        if right.need != "needed":
            continue
        words = "".join(f"_{letter}" if letter.isupper() else letter for letter in right.operation)
        operation = AclOperation[words.lstrip("_").upper()]
        bindings += _allowed(user, kinds[right.resource], facts, (operation,), ResourcePatternType.PREFIXED)
    return bindings


def _make_users(cluster: Cluster, prefix: str, facts: str) -> None:
    admin = AdminClient(cluster.client_config())
    information = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upserts: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(prefix + user, information, user.encode()) for user in (*GROUP_RIGHTS, SERVICE)
    ]
    for done in admin.alter_user_scram_credentials(upserts).values():
        done.result(60)
    prefixed, literal = ResourcePatternType.PREFIXED, ResourcePatternType.LITERAL
    bindings = service_rights(prefix + SERVICE, facts)
    bindings += _allowed(prefix + SERVICE, ResourceType.GROUP, "*", (DESCRIBE_IT,), literal)
    for user, operations in GROUP_RIGHTS.items():
        bindings += _allowed(prefix + user, ResourceType.GROUP, prefix, operations, prefixed)
        if user not in SEES_NO_TOPIC:
            bindings += _allowed(prefix + user, ResourceType.TOPIC, prefix, (DESCRIBE_IT,), prefixed)
    for made in admin.create_acls(bindings).values():
        made.result(60)


@pytest.fixture(scope="module")
def place(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    prefix, facts = f"rights-{uuid.uuid4().hex[:8]}-", f"{uuid.uuid4().hex[:8]}."
    folder = tmp_path_factory.mktemp("rights")
    (folder / "password").write_text(SERVICE)
    make_topic(cluster, f"{prefix}in")
    _make_users(cluster, prefix, facts)
    with running_gateway(
        folder,
        cluster.kafka.bootstrap_of(SASL_PLAINTEXT),
        upstream__service_user=prefix + SERVICE,
        upstream__service_mechanism=MECHANISM,
        upstream__service_password_file=str(folder / "password"),
        topologies__owner="gateway",
        topologies__store="kafka:",
        facts__prefix=facts,
    ) as gateway:
        wait_until_ready(gateway)
        place = Place(cluster=cluster, gateway=gateway, prefix=prefix, facts=facts)
        _settle(place)
        yield place


def _settle(place: Place) -> None:
    """Wait until the broker has heard of all rights."""
    for user, operations in GROUP_RIGHTS.items():
        wanted = GROUP_ID_NOT_FOUND if operations else GROUP_DENIED
        with place.direct(user) as client:
            until(lambda client=client, wanted=wanted: _code(client, place.prefix) == wanted)  # type: ignore[misc]


def _code(client: StreamsClient, group: str) -> int:
    return client.describe(f"{group}nobody-is-here", version=0).error_code


# --- heartbeats and pushes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", USERS)
def test_a_heartbeat_needs_read_as_at_the_broker(place: Place, user: str) -> None:
    with place.client(user) as client, place.direct(user) as direct:
        answer = place.member(client, place.new_group()).join()
        at_the_broker = place.member(direct, place.new_group()).join(version=0)
    assert answer.error_code == at_the_broker.error_code == (0 if user in MAY_READ else GROUP_DENIED)
    assert answer.topology_description_required is (user in MAY_READ)


@pytest.mark.parametrize("user", USERS)
def test_a_push_needs_read_before_anything_else_is_told(place: Place, user: str) -> None:
    group, description = place.new_group(), application(place.topic, "kept")
    allowed = user in MAY_READ
    with place.stored(group, description) as member, place.client(user) as client:
        other = application(place.topic, "of a stranger")
        assert client.push(group, "stranger", other).error_code == (UNKNOWN_MEMBER_ID if allowed else GROUP_DENIED)
        absent = f"{group}-absent"
        assert client.push(absent, "m", other).error_code == (GROUP_ID_NOT_FOUND if allowed else GROUP_DENIED)
        assert client.push(group, member.member, other, epoch=5).error_code == (42 if allowed else GROUP_DENIED)
        assert client.push(group, "", other).error_code == (42 if allowed else GROUP_DENIED)
        assert member.client.shown(group) == to_wire(description)
        # Who may READ speaks for the group's members, on any connection: brokers know no owner of a member id.
        assert client.push(group, member.member, other).error_code == (0 if allowed else GROUP_DENIED)
        assert member.client.shown(group) == to_wire(other if allowed else description)
    assert len(place.records(group)) == (2 if allowed else 1)


@pytest.mark.parametrize("user", USERS)
async def test_a_version_is_published_by_those_who_may_read_the_group(place: Place, user: str) -> None:
    group = place.new_group()
    credentials = Credentials(user=place.prefix + user, password=user, mechanism=MECHANISM)
    dialler = Dialler(bootstrap=(parse_address(place.gateway.bootstrap),), credentials=credentials)
    async with Connections(dialler) as connections:
        if user not in MAY_READ:
            with pytest.raises(ClusterError, match="Group authorization failed"):
                await publish_topology(connections, group, application(place.topic, "build"))
        else:
            await publish_topology(connections, group, application(place.topic, "build"))
    published = [f"User:{place.prefix}{user}"] if user in MAY_READ else []
    assert [one.by for one in place.records(group) if isinstance(one, TopologyDescribed)] == published


@pytest.mark.parametrize("user", sorted(MAY_READ))
def test_a_member_pushes_on_its_own_connection(place: Place, user: str) -> None:
    group, description = place.new_group(), application(place.topic, user)
    with place.client(user) as client:
        member = place.member(client, group)
        assert member.join().topology_description_required
        assert member.push(description).error_code == 0
        assert client.shown(group) == to_wire(description)


@pytest.mark.parametrize("user", [user for user in USERS if user not in MAY_READ])
def test_whoever_may_not_read_a_group_cannot_silence_it(place: Place, user: str) -> None:
    group = place.new_group()
    with place.client("owner") as home, place.client(user) as client:
        old = place.member(home, group)
        assert old.join(version=0).error_code == 0
        for _ in range(3):
            intruder = place.member(client, group)
            assert intruder.join().error_code == GROUP_DENIED
            assert client.push(group, intruder.member, application(place.topic, "x")).error_code == GROUP_DENIED
            assert client.push(group, old.member, application(place.topic, "x")).error_code == GROUP_DENIED
        # No window is open: the first that can be asked is asked.
        assert place.member(home, group).join().topology_description_required
    # The topics of the old member, whose client does not push; nothing of the others.
    [record] = place.records(group)
    assert isinstance(record, TopologyDescribed)
    assert record.provenance == "assignment"


def test_a_stranger_who_may_read_and_is_refused_silences_nobody(place: Place) -> None:
    group = place.new_group()
    with place.client("owner") as home, place.client("reader") as client:
        old = place.member(home, group)
        assert old.join(version=0).error_code == 0
        assert client.push(group, "stranger", application(place.topic, "x")).error_code == UNKNOWN_MEMBER_ID
        assert client.push(group, old.member, application(place.topic, "x"), epoch=9).error_code == 42
        assert place.member(home, group).join().topology_description_required


def test_a_rejected_heartbeat_of_another_client_in_its_name_does_not_undo_a_members_proof(place: Place) -> None:
    group, before, after = place.new_group(), application(place.topic, "one"), application(place.topic, "two")
    with place.stored(group, before) as member, place.client("nobody") as client:
        forged = Member(client=client, group=group, topic=place.topic, member=member.member, epoch=member.epoch)
        assert forged.beat().error_code == GROUP_DENIED
        assert forged.join().error_code == GROUP_DENIED
        assert forged.push(after).error_code == GROUP_DENIED
        assert member.client.shown(group) == to_wire(before)
        assert member.beat().error_code == 0
        assert member.push(after).error_code == 0
        assert member.client.shown(group) == to_wire(after)


# --- describes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", GROUP_RIGHTS)
def test_a_description_is_for_those_who_may_describe_its_group(place: Place, user: str) -> None:
    group, secret = place.new_group(), "secret-processor"
    wanted = {"nobody": GROUP_DENIED, **dict.fromkeys(SEES_NO_TOPIC, TOPIC_DENIED)}.get(user, 0)
    with place.stored(group, application(place.topic, secret)), place.client(user) as client:
        found, body = client.describe(group), client.describe_bytes(group)
        with place.direct(user) as direct:
            at_the_broker = direct.describe(group, version=0)
    assert found.error_code == at_the_broker.error_code == wanted
    assert found.error_message == at_the_broker.error_message
    assert (secret.encode() in body) is (wanted == 0)
    if wanted:
        assert (found.topology_description, found.topology_description_status) == (None, NOT_REQUESTED)
        assert place.topic.encode() not in body
    else:
        assert found.topology_description == to_wire(application(place.topic, secret))
        assert found.topology_description_status == AVAILABLE


# --- deletions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", USERS)
def test_a_group_with_members_is_deleted_by_nobody(place: Place, user: str) -> None:
    group, description = place.new_group(), application(place.topic, "kept")
    with place.stored(group, description) as member, place.client(user) as client:
        with place.direct(user) as direct:
            at_the_broker = direct.delete(group, version=2)
        assert client.delete(group) == at_the_broker
        assert at_the_broker == {group: NON_EMPTY_GROUP if user in MAY_DELETE else GROUP_DENIED}
        assert member.client.shown(group) == to_wire(description)
    assert [type(record) for record in place.records(group)] == [TopologyDescribed]


@pytest.mark.parametrize("user", [user for user in USERS if user not in MAY_DELETE])
def test_whoever_may_not_delete_makes_the_store_forget_nothing(place: Place, user: str) -> None:
    group, description = place.new_group(), application(place.topic, "kept")
    with place.stored(group, description) as member, place.client(user) as client:
        member.leave()
        for version in (2, 3):
            assert client.delete(group, version=version) == {group: GROUP_DENIED}
        assert member.client.shown(group) == to_wire(description)
        assert [type(record) for record in place.records(group)] == [TopologyDescribed]


@pytest.mark.parametrize("user", sorted(MAY_DELETE))
def test_whoever_may_delete_takes_the_description_along(place: Place, user: str) -> None:
    group = place.new_group()
    with place.stored(group, application(place.topic, "gone")) as member, place.client(user) as client:
        member.leave()
        assert client.delete(group) == {group: 0}
        assert member.client.describe(group).error_code == GROUP_ID_NOT_FOUND
        assert [type(record) for record in place.records(group)] == [TopologyDescribed, TopologyDeleted]
        assert client.delete(group) == {group: GROUP_ID_NOT_FOUND}


def test_a_client_that_may_not_describe_the_topics_deletes_the_description_with_the_group(place: Place) -> None:
    group = place.new_group()
    with place.stored(group, application(place.topic, "x")) as member, place.client("blind-deleter") as client:
        assert client.describe(group, version=0).error_code == TOPIC_DENIED
        assert client.delete(group) == {group: NON_EMPTY_GROUP}
        assert [type(record) for record in place.records(group)] == [TopologyDescribed]
        member.leave()
        assert client.delete(group) == {group: 0}
        assert [type(record) for record in place.records(group)] == [TopologyDescribed, TopologyDeleted]
        assert member.client.describe(group).error_code == GROUP_ID_NOT_FOUND


def test_in_a_batch_only_those_go_that_the_caller_may_delete(place: Place) -> None:
    mine, foreign = place.new_group(), f"foreign-{uuid.uuid4().hex[:8]}"
    description = application(place.topic, "kept")
    admin = AdminClient(place.cluster.client_config())
    owner = place.prefix + "owner"
    acls = _allowed(owner, ResourceType.GROUP, foreign, (ALL,), ResourcePatternType.LITERAL)
    for made in admin.create_acls(acls).values():
        made.result(60)
    with place.client("owner") as probe:
        until(lambda: probe.describe(foreign, version=0).error_code == GROUP_ID_NOT_FOUND)
    with ExitStack() as stack:
        members = [stack.enter_context(place.stored(group, description)) for group in (mine, foreign)]
        for member in members:
            member.leave()
        client = stack.enter_context(place.client("deleter"))
        absent = f"{mine}-absent"
        assert client.delete(mine, foreign, absent) == {
            mine: 0,
            foreign: GROUP_DENIED,
            absent: GROUP_ID_NOT_FOUND,
        }
        assert members[1].client.shown(foreign) == to_wire(description)
        assert [type(record) for record in place.records(foreign)] == [TopologyDescribed]


@pytest.mark.parametrize("user", ["nobody", "describer", "reader"])
def test_a_classic_join_deletes_what_is_stored_only_for_those_who_may_read(place: Place, user: str) -> None:
    group, description = place.new_group(), application(place.topic, "kept")
    allowed = user in MAY_READ
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        protocol_type="consumer",
        protocols=(JoinGroupProtocol(name="range", metadata=b""),),
    )
    with place.stored(group, description) as member, place.client(user) as client:
        member.leave()
        answer = client.raw.call(request, 6)
        assert answer.error_code == (79 if allowed else GROUP_DENIED), "79: it is given a member id, and comes again"
        kept = [TopologyDescribed] if not allowed else [TopologyDescribed, TopologyDeleted]
        assert [type(record) for record in place.records(group)] == kept
        found = member.client.describe(group)
        assert found.error_code == (GROUP_ID_NOT_FOUND if allowed else 0), "it is a classic group now, or still ours"
        assert found.topology_description == (None if allowed else to_wire(description))


# --- the service account --------------------------------------------------------------------------------------------


def outlines(place: Place, user: str, groups: Sequence[str]) -> dict[str, int]:
    address = parse_address(place.cluster.kafka.bootstrap_of(SASL_PLAINTEXT))
    credentials = Credentials(user=place.prefix + user, password=user, mechanism=MECHANISM)
    found = asyncio.run(describe_streams_groups(Dialler(bootstrap=(address,), credentials=credentials), groups))
    return {group: outline.error_code for group, outline in found.items()}


def test_the_cleanup_can_tell_what_is_gone_by_describe_alone(place: Place) -> None:
    here, gone = place.new_group(), f"{place.prefix}gone"
    with place.stored(here, application(place.topic, "x")):
        # Of a group that is here it is not told the topics, and that is no reason to clean up.
        assert outlines(place, SERVICE, [here, gone]) == {here: TOPIC_DENIED, gone: GROUP_ID_NOT_FOUND}
        assert outlines(place, "nobody", [here, gone]) == {here: GROUP_DENIED, gone: GROUP_DENIED}


def test_the_service_account_has_no_rights_on_anybodys_groups(place: Place) -> None:
    group, description = place.new_group(), application(place.topic, "kept")
    with place.stored(group, description) as member, place.client(SERVICE) as client:
        assert place.member(client, group).join().error_code == GROUP_DENIED
        assert client.push(group, member.member, description).error_code == GROUP_DENIED
        assert client.delete(group) == {group: GROUP_DENIED}


def test_nothing_was_amiss_for_the_service_account(place: Place) -> None:
    assert place.gateway.problems() == {}
    log = "\n".join(place.gateway.log_lines())
    assert "not available" not in log
    assert "not written" not in log
