"""Streams clients call by call: what they send is what a test says, and what comes back is shown as it came."""

import uuid
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from scramp import ScramClient  # type: ignore[import-untyped]

from headgate.embedded import SecurityProtocol
from headgate.facts import TopologyDeleted, TopologyDescribed
from headgate.facts.topology import Description, Node, ProcessorNode, SinkNode, SourceNode, Subtopology
from headgate.topologies.wire_descriptions import to_wire
from headgate.wire.codec import decode as decode_message
from headgate.wire.codec import encode
from headgate.wire.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
)
from headgate.wire.messages.groups import (
    DeleteGroupsRequest,
)
from headgate.wire.messages.streams import (
    DescribedStreamsGroup,
    HeartbeatSubtopology,
    HeartbeatTopology,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    TopologyDescription,
)
from tests.integration.gateway.exercise import until
from tests.support.cluster import Cluster
from tests.support.fact_records import read_facts
from tests.support.gateway import GatewayProcess
from tests.support.raw_client import RawClient
from tests.support.topics import create_topics

JOIN_GROUP, DELETE_GROUPS, ALTER_CONFIGS, HEARTBEAT, DESCRIBE, PUSH = 11, 42, 44, 88, 89, 93
GROUP_RESOURCE = 32
NOT_REQUESTED, NOT_STORED, ERROR, AVAILABLE = range(4)
UNKNOWN_MEMBER_ID, TOPIC_DENIED, GROUP_DENIED, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND = 25, 29, 30, 68, 69
COMES_SOON = {14, 15, 16}  # the coordinator of a group that was never heard of has just been made
MECHANISM = "SCRAM-SHA-512"
SASL_PLAINTEXT = SecurityProtocol.SASL_PLAINTEXT

Push = StreamsGroupTopologyDescriptionUpdateResponse
Heartbeat = StreamsGroupHeartbeatResponse


# --- members and admins, call by call -------------------------------------------------------------------------------


def application(topic: str, *processors: str) -> Description:
    """What an application computes: from its topic through these processors, one after the other, to a sink."""
    names = [*processors, "to"]
    nodes: tuple[Node, ...] = (
        SourceNode(name="from", topics=(topic,), successors=(names[0],)),
        *(ProcessorNode(name=name, successors=(names[place + 1],)) for place, name in enumerate(processors)),
        SinkNode(name="to", topic=None),
    )
    return Description(subtopologies=(Subtopology(id="0", nodes=nodes),))


class StreamsClient:
    """One connection, logged in as somebody if the listener wants that; versions are those of 4.4 unless told."""

    def __init__(self, address: str, *, user: str | None = None, password: str = "") -> None:
        self.raw = RawClient(address)
        if user is not None:
            self._log_in(user, password)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.raw.close()

    def _log_in(self, user: str, password: str) -> None:
        scram = ScramClient([MECHANISM], user, password)
        assert self.raw.handshake(MECHANISM).error_code == 0
        first = self.raw.authenticate(scram.get_client_first().encode())
        assert first.error_code == 0, first.error_message
        scram.set_server_first(first.auth_bytes.decode())
        final = self.raw.authenticate(scram.get_client_final().encode())
        assert final.error_code == 0, final.error_message
        scram.set_server_final(final.auth_bytes.decode())

    def beat(self, request: StreamsGroupHeartbeatRequest, *, version: int = 1) -> Heartbeat:
        return self.raw.call(request, version)

    def push(self, group: str, member: str, description: Description, *, epoch: int = 0) -> Push:
        request = StreamsGroupTopologyDescriptionUpdateRequest(
            group_id=group, member_id=member, topology_epoch=epoch, topology_description=to_wire(description)
        )
        return self.raw.call(request, 0)

    def describe_bytes(self, group: str, *, version: int = 1) -> bytes:
        """The answer as it comes, for whoever looks for what must not be in it."""
        asked = StreamsGroupDescribeRequest(group_ids=(group,), include_topology_description=version > 0)
        return self.raw.ask(DESCRIBE, version, encode(asked, version))

    def describe(self, group: str, *, version: int = 1) -> DescribedStreamsGroup:
        [found] = decode_message(
            StreamsGroupDescribeResponse, version, self.describe_bytes(group, version=version)
        ).groups
        return found

    def shown(self, group: str) -> TopologyDescription | None:
        """The description that a describe shows; None when nothing is stored, and nothing else is right."""
        found = self.describe(group)
        assert found.error_code == 0, found
        assert found.topology_description_status in {NOT_STORED, AVAILABLE}, found
        assert (found.topology_description is None) == (found.topology_description_status == NOT_STORED)
        return found.topology_description

    def delete(self, *groups: str, version: int = 3) -> dict[str, int]:
        """Error codes by group."""
        request = DeleteGroupsRequest(groups_names=groups)
        answer = self.raw.call(request, version)
        return {one.group_id: one.error_code for one in answer.results}

    def lengthen_session(self, group: str) -> None:
        """So that a member need not be heard all the time."""
        setting = IncrementalConfig(name="streams.session.timeout.ms", config_operation=0, value="60000")
        resource = IncrementalAlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=group, configs=(setting,)
        )
        request = IncrementalAlterConfigsRequest(resources=(resource,))
        answer = self.raw.call(request, 1)
        assert [one.error_code for one in answer.responses] == [0], answer


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a group that reads one topic; `client` is where it is connected, and may be exchanged."""

    client: StreamsClient
    group: str
    topic: str
    member: str = field(default_factory=lambda: uuid.uuid4().hex)
    process: str = field(default_factory=lambda: uuid.uuid4().hex)
    epoch: int = 0

    def join(self, *, version: int = 1) -> Heartbeat:
        """Until the coordinator has an opinion."""
        topology = HeartbeatTopology(
            epoch=0, subtopologies=(HeartbeatSubtopology(subtopology_id="0", source_topics=(self.topic,)),)
        )
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member,
            member_epoch=0,
            process_id=self.process,
            rebalance_timeout_ms=60_000,
            topology=topology,
            active_tasks=(),
            standby_tasks=(),
            warmup_tasks=(),
        )
        answers: list[Heartbeat] = []

        def answered() -> bool:
            answers.append(self.client.beat(request, version=version))
            return answers[-1].error_code not in COMES_SOON

        until(answered)
        self.epoch = answers[-1].member_epoch
        return answers[-1]

    def join_and_take_tasks(self, *, version: int = 1) -> None:
        """Until the group is stable, and the member has said that it has all tasks."""
        tasks = self.join(version=version).active_tasks

        def is_stable() -> bool:
            nonlocal tasks
            request = replace(self._short(self.epoch), active_tasks=tasks or (), standby_tasks=(), warmup_tasks=())
            answer = self.client.beat(request, version=version)
            assert answer.error_code == 0, answer
            self.epoch = answer.member_epoch
            if answer.active_tasks is None and tasks:
                return True
            tasks = answer.active_tasks or tasks
            return False

        until(is_stable)

    def beat(self, *, version: int = 1) -> Heartbeat:
        """The next heartbeat; a member that was fenced, because its answer was lost, is none of ours."""
        answer = self.client.beat(self._short(self.epoch), version=version)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
        return answer

    def push(self, description: Description) -> Push:
        return self.client.push(self.group, self.member, description)

    def leave(self, *, version: int = 1) -> None:
        assert self.client.beat(self._short(-1), version=version).error_code == 0

    def _short(self, epoch: int) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(group_id=self.group, member_id=self.member, member_epoch=epoch)


def topology_records(config: dict[str, Any], prefix: str, group: str) -> list[TopologyDescribed | TopologyDeleted]:
    """What `topologies` has of a group, every version of it, read by a plain consumer."""
    kinds = TopologyDescribed | TopologyDeleted
    return [one for one in read_facts(config, prefix, "topologies") if isinstance(one, kinds) and one.group == group]


def wait_until_ready(gateway: GatewayProcess) -> None:
    """All of its workers have read what is stored."""
    until(lambda: gateway.metric("headgate_topologies_ready") == 1, 60)


def make_topic(cluster: Cluster, topic: str, *, replication: int = 1) -> None:
    create_topics(cluster, [topic], replication=replication)
