"""Requests of an operator or a tool to a cluster behind Headgate: describe, delete, push, the breaker's status."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from headgate.base.errors import ClusterError
from headgate.config.addresses import parse_address
from headgate.facts.topology import Description
from headgate.kafka.client_properties import settings_of
from headgate.kafka.connections import BrokerConnection, Connections, Dialler
from headgate.kafka.group_admin import (
    GroupError,
    TopologyStatus,
    delete_group,
    describe_group,
    group_error,
    on_coordinators,
)
from headgate.share_groups.admin import DescribedBreaker, breaker_status
from headgate.topologies.admin import publish_topology
from headgate.topologies.wire_descriptions import Refusal, from_wire, to_wire
from headgate.wire.messages.streams import StreamsGroupTopologyDescriptionUpdateRequest


class GatewayClient:
    """An asynchronous context manager. Every failure is a `ClusterError` with the server's own text.

    `properties` are those of Kafka's own tools, such as `security.protocol` and `sasl.jaas.config`.
    """

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, str] | None = None) -> None:
        addresses = tuple(parse_address(one.strip()) for one in bootstrap_servers.split(","))
        self.dialler: Dialler = settings_of(properties or {}, addresses).dialler

    async def __aenter__(self) -> Self:
        self._connections = Connections(self.dialler)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connections.__aexit__(kind, error, trace)

    async def describe_topology(self, group: str) -> Description | None:
        """What the group's applications compute; None when no description is stored for its topology epoch."""
        found = await describe_group(self._connections, group, with_topology=True)
        if isinstance(found, GroupError):
            raise ClusterError(f"streams group '{group}' cannot be described: {found.text}")
        if found.topology_description is None:
            if found.topology_description_status == TopologyStatus.ERROR:
                raise ClusterError(f"the server failed to fetch the topology description of streams group '{group}'")
            return None
        read = from_wire(found.topology_description)
        if isinstance(read, Refusal):
            raise ClusterError(f"the topology description of streams group '{group}' is invalid: {read.text}")
        return read

    async def push_topology(self, group: str, member_id: str, description: Description, *, epoch: int = 0) -> None:
        """Push as a member of the group does that was asked to; once, without retries of its own."""
        request = StreamsGroupTopologyDescriptionUpdateRequest(
            group_id=group, member_id=member_id, topology_epoch=epoch, topology_description=to_wire(description)
        )

        async def push(link: BrokerConnection, groups: Sequence[str]) -> Mapping[str, GroupError | None]:
            response = await link.ask(request, lowest=0, highest=0)
            code = response.error_code
            return dict.fromkeys(groups, group_error(code, response.error_message) if code else None)

        answer = (await on_coordinators(self._connections, [group], push))[group]
        if isinstance(answer, GroupError):
            raise ClusterError(f"the push for streams group '{group}' failed: {answer.text}")

    async def publish_topology(self, group: str, description: Description, *, epoch: int = 0) -> str:
        """Keep a version of a topology that no member has pushed, for instance from a build; returns its name.

        It never replaces what members push, and `describe_topology` does not return it.
        """
        return await publish_topology(self._connections, group, description, epoch=epoch)

    async def delete_group(self, group: str) -> None:
        """Delete an empty streams group with its description."""
        failed = await delete_group(self._connections, group)
        if failed is not None:
            raise ClusterError(f"streams group '{group}' is not deleted: {failed.text}")

    async def breaker_status(self, group: str) -> DescribedBreaker:
        """The circuit breaker of a share group."""
        return await breaker_status(self._connections, group)
