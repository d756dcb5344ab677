"""Streams groups are listed, described and deleted where they live, and every failure is told by its group."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pytest

from headgate.base.errors import ClusterError
from headgate.kafka.connections import Connections
from headgate.kafka.group_admin import (
    GroupError,
    GroupListing,
    GroupOutline,
    delete_group,
    describe_group,
    describe_streams_groups,
    list_streams_groups,
)
from headgate.wire.messages.cluster import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from headgate.wire.messages.groups import (
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from headgate.wire.messages.streams import (
    DescribedStreamsGroup,
    DescribedTopology,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupMember,
)
from headgate.wire.schema import Message
from tests.support.fake_upstream import BROKER_VERSIONS
from tests.support.scripted_cluster import NEWEST, Answer, ScriptedCluster

FIND, LIST, DELETE, DESCRIBE = 10, 16, 42, 89
STABLE = DescribedStreamsGroup(
    group_id="g",
    group_state="Stable",
    topology=DescribedTopology(epoch=3),
    members=(StreamsGroupMember(member_id="m1"), StreamsGroupMember(member_id="m2")),
)
EMPTY = DescribedStreamsGroup(group_id="g", group_state="Empty")


def error(group: str, code: int, text: str | None = None) -> DescribedStreamsGroup:
    return DescribedStreamsGroup(group_id=group, error_code=code, error_message=text)


@dataclass
class Describing:
    """Describes each group as told, by the number of the attempt; the last answer stands."""

    turns: list[Callable[[str], DescribedStreamsGroup]]

    def __call__(self, _node: int, request: Message) -> Message:
        turn = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        groups = cast(StreamsGroupDescribeRequest, request).group_ids
        return StreamsGroupDescribeResponse(groups=tuple(turn(group) for group in groups))


def always(described: DescribedStreamsGroup) -> Describing:
    return Describing([lambda _: described])


async def test_an_outline_is_what_the_coordinator_describes() -> None:
    async with ScriptedCluster({DESCRIBE: always(STABLE)}) as cluster:
        assert await describe_streams_groups(cluster.dialler(), ["g"]) == {
            "g": GroupOutline(group="g", state="Stable", topology_epoch=3, member_ids=("m1", "m2"))
        }


async def test_groups_are_asked_in_one_call_for_each_coordinator() -> None:
    describing = Describing([lambda group: DescribedStreamsGroup(group_id=group, group_state="Empty")])
    cluster = ScriptedCluster({DESCRIBE: describing}, brokers=2, coordinators={"b": 1, "c": 1})
    async with cluster:
        outlines = await describe_streams_groups(cluster.dialler(), ["a", "b", "c", "a"])
    assert {group: one.state for group, one in outlines.items()} == {"a": "Empty", "b": "Empty", "c": "Empty"}
    assert outlines["a"].topology_epoch is None
    asked = {one.node: cast(StreamsGroupDescribeRequest, one.request).group_ids for one in cluster.requests(DESCRIBE)}
    assert asked == {0: ("a",), 1: ("b", "c")}
    assert len(cluster.requests(DESCRIBE)) == 2


async def test_more_groups_than_one_call_carries_are_all_answered() -> None:
    describing = Describing([lambda group: DescribedStreamsGroup(group_id=group, group_state="Empty")])
    groups = [f"g-{number}" for number in range(450)]
    async with ScriptedCluster({DESCRIBE: describing}) as cluster:
        outlines = await describe_streams_groups(cluster.dialler(), groups)
    assert set(outlines) == set(groups)
    assert len(cluster.requests(DESCRIBE)) == 3


@pytest.mark.parametrize("code", [14, 15, 16])
async def test_a_coordinator_that_loads_or_moves_is_looked_for_and_asked_again(code: int) -> None:
    describing = Describing([lambda group: error(group, code), lambda group: error(group, code), lambda _: STABLE])
    async with ScriptedCluster({DESCRIBE: describing}) as cluster:
        outlines = await describe_streams_groups(cluster.dialler(), ["g"])
    assert outlines["g"].error_code == 0
    assert len(cluster.requests(FIND)) == len(cluster.requests(DESCRIBE)) == 3


async def test_a_coordinator_that_is_not_known_yet_is_asked_for_again() -> None:
    turns = [FindCoordinatorResponse(coordinators=(Coordinator(key="g", error_code=15),))]

    def find(_node: int, request: Message) -> Message:
        return turns.pop() if turns else cluster._find(cast(FindCoordinatorRequest, request))

    cluster = ScriptedCluster({DESCRIBE: always(STABLE), FIND: find})
    async with cluster:
        outlines = await describe_streams_groups(cluster.dialler(), ["g"])
    assert outlines["g"].state == "Stable"


async def test_only_the_groups_that_failed_are_asked_again() -> None:
    describing = Describing(
        [
            lambda group: error(group, 14) if group == "b" else DescribedStreamsGroup(group_id=group),
            lambda group: DescribedStreamsGroup(group_id=group),
        ]
    )
    async with ScriptedCluster({DESCRIBE: describing}) as cluster:
        await describe_streams_groups(cluster.dialler(), ["a", "b"])
    asked = [cast(StreamsGroupDescribeRequest, one.request).group_ids for one in cluster.requests(DESCRIBE)]
    assert asked == [("a", "b"), ("b",)]


async def test_after_the_timeout_the_last_error_is_the_result() -> None:
    describing = Describing([lambda group: error(group, 14)])
    async with ScriptedCluster({DESCRIBE: describing}) as cluster:
        outlines = await describe_streams_groups(cluster.dialler(timeout_s=1.0), ["g"])
    assert outlines["g"].error_code == 14
    assert outlines["g"].error_text == "The coordinator is loading and hence can't process requests."
    assert len(cluster.requests(DESCRIBE)) > 1


async def test_a_coordinator_that_is_down_does_not_affect_the_other_groups() -> None:
    describing = Describing([lambda group: DescribedStreamsGroup(group_id=group, group_state="Empty")])
    cluster = ScriptedCluster({DESCRIBE: describing}, brokers=2, coordinators={"b": 1}, away={1})
    async with cluster:
        outlines = await describe_streams_groups(cluster.dialler(timeout_s=1.0), ["a", "b"])
    assert outlines["a"].state == "Empty"
    assert outlines["b"].error_code == 15
    assert str(cluster.address(1)) in (outlines["b"].error_text or "")


async def test_a_group_that_does_not_exist_has_the_servers_text_without_a_retry() -> None:
    describing = Describing([lambda group: error(group, 69, f"Group {group} not found.")])
    async with ScriptedCluster({DESCRIBE: describing}) as cluster:
        outlines = await describe_streams_groups(cluster.dialler(), ["x"])
    assert outlines["x"] == GroupOutline(group="x", error_code=69, error_text="Group x not found.")
    assert len(cluster.requests(DESCRIBE)) == 1


async def test_a_group_that_the_server_leaves_out_is_an_error_and_not_missing() -> None:
    async with ScriptedCluster({DESCRIBE: lambda _node, _request: StreamsGroupDescribeResponse()}) as cluster:
        outlines = await describe_streams_groups(cluster.dialler(), ["g"])
    assert outlines["g"].error_code == -1


async def test_when_no_broker_answers_that_is_an_error_of_the_cluster() -> None:
    async with ScriptedCluster(away={0}) as cluster:
        with pytest.raises(ClusterError, match="no connection to"):
            await describe_streams_groups(cluster.dialler(), ["g"])


async def test_a_topology_is_asked_for_in_version_1_only() -> None:
    async with ScriptedCluster({DESCRIBE: always(STABLE)}, versions=NEWEST) as cluster:
        async with Connections(cluster.dialler()) as connections:
            assert await describe_group(connections, "g", with_topology=True) == STABLE
        [asked] = cluster.requests(DESCRIBE)
    assert asked.version == 1
    assert cast(StreamsGroupDescribeRequest, asked.request).include_topology_description


@pytest.mark.parametrize("with_topology", [True, False])
async def test_a_server_that_is_too_old_is_not_asked(with_topology: bool) -> None:
    versions = {key: value for key, value in BROKER_VERSIONS.items() if with_topology or key != DESCRIBE}
    async with ScriptedCluster(versions=versions) as cluster:
        async with Connections(cluster.dialler()) as connections:
            answer = await describe_group(connections, "g", with_topology=with_topology)
        assert cluster.requests(DESCRIBE) == []
    assert isinstance(answer, GroupError)
    assert answer.code == 35
    what = "topology descriptions" if with_topology else "streams groups"
    assert answer.text.startswith(f"the server does not support {what} ")


def deleting(code: int = 0, text: str | None = None) -> Callable[[int, Message], Message]:
    def delete(_node: int, request: Message) -> Message:
        groups = cast(DeleteGroupsRequest, request).groups_names
        return DeleteGroupsResponse(
            results=tuple(DeletedGroup(group_id=group, error_code=code, error_message=text) for group in groups)
        )

    return delete


@pytest.mark.parametrize(("versions", "expected"), [(NEWEST, 3), (BROKER_VERSIONS, 2)])
async def test_a_deletion_goes_out_in_the_version_that_the_server_has(
    versions: dict[int, tuple[int, int]], expected: int
) -> None:
    async with ScriptedCluster({DESCRIBE: always(EMPTY), DELETE: deleting()}, versions=versions) as cluster:
        async with Connections(cluster.dialler()) as connections:
            assert await delete_group(connections, "g") is None
        assert [one.version for one in cluster.requests(DELETE)] == [expected]


@pytest.mark.parametrize(
    ("code", "message", "text"),
    [(134, "the plugin's disk is full", "the plugin's disk is full"), (68, None, "The group is not empty.")],
)
async def test_a_deletion_that_failed_has_the_servers_text_or_else_kafkas(
    code: int, message: str | None, text: str
) -> None:
    answers: dict[int, Answer] = {DESCRIBE: always(EMPTY), DELETE: deleting(code, message)}
    async with ScriptedCluster(answers, versions=NEWEST) as cluster, Connections(cluster.dialler()) as connections:
        assert await delete_group(connections, "g") == GroupError(code, text)


@pytest.mark.parametrize(
    ("described", "text"),
    [
        (error("g", 69, "Group g is not a streams group."), "Group 'g' does not exist or is not a streams group."),
        (STABLE, "Streams group 'g' is not EMPTY."),
        (DescribedStreamsGroup(group_id="g", group_state="Dead"), "Streams group 'g' group state is DEAD."),
        (error("g", 30), "Group authorization failed."),
    ],
)
async def test_only_an_empty_streams_group_is_ever_deleted(described: DescribedStreamsGroup, text: str) -> None:
    async with ScriptedCluster({DESCRIBE: always(described), DELETE: deleting()}) as cluster:
        async with Connections(cluster.dialler()) as connections:
            failure = await delete_group(connections, "g")
        assert cluster.requests(DELETE) == []
    assert failure is not None
    assert failure.text == text


async def test_a_deletion_whose_answer_is_lost_is_not_repeated() -> None:
    answers: dict[int, Answer] = {DESCRIBE: always(EMPTY), DELETE: lambda _node, _request: None}
    async with ScriptedCluster(answers) as cluster:
        async with Connections(cluster.dialler()) as connections:
            failure = await delete_group(connections, "g")
        assert len(cluster.requests(DELETE)) == 1
    assert failure is not None
    assert failure.code == 13
    assert "the connection was closed before the response to DeleteGroups" in failure.text


async def test_a_describe_whose_answer_is_lost_is_repeated() -> None:
    answers: list[Message | None] = [None, StreamsGroupDescribeResponse(groups=(STABLE,))]
    async with ScriptedCluster({DESCRIBE: lambda _node, _request: answers.pop(0)}) as cluster:
        outlines = await describe_streams_groups(cluster.dialler(), ["g"])
    assert outlines["g"].state == "Stable"


def listing(*groups: ListedGroup) -> Message:
    return ListGroupsResponse(groups=groups)


async def test_groups_of_every_broker_are_listed_by_name_and_others_are_left_out() -> None:
    lists = {
        0: listing(
            ListedGroup(group_id="z", group_type="Streams", group_state="Stable"),
            ListedGroup(group_id="c", group_type="Consumer"),
        ),
        1: listing(ListedGroup(group_id="a", group_type="streams", group_state="Empty")),
    }
    async with ScriptedCluster({LIST: lambda node, _request: lists[node]}, brokers=2) as cluster:
        async with Connections(cluster.dialler()) as connections:
            found = await list_streams_groups(connections, ["Stable", "Empty"])
        asked = [cast(ListGroupsRequest, one.request) for one in cluster.requests(LIST)]
    assert found == (GroupListing(group="a", state="Empty"), GroupListing(group="z", state="Stable"))
    assert {(one.types_filter, one.states_filter) for one in asked} == {(("Streams",), ("Stable", "Empty"))}


async def test_a_broker_that_loads_its_groups_is_asked_again() -> None:
    turns = [ListGroupsResponse(error_code=14), None, listing(ListedGroup(group_id="g", group_type="Streams"))]
    cluster = ScriptedCluster({LIST: lambda _node, _request: turns.pop(0)})
    async with cluster, Connections(cluster.dialler()) as connections:
        assert [one.group for one in await list_streams_groups(connections)] == ["g"]


@pytest.mark.parametrize(("code", "text"), [(14, "The coordinator is loading"), (31, "Cluster authorization failed.")])
async def test_a_list_that_would_be_incomplete_is_an_error(code: int, text: str) -> None:
    async with (
        ScriptedCluster({LIST: lambda _node, _request: ListGroupsResponse(error_code=code)}) as cluster,
        Connections(cluster.dialler(timeout_s=1.0)) as connections,
    ):
        with pytest.raises(ClusterError, match=f"{cluster.address()} does not list its groups: {text}"):
            await list_streams_groups(connections)


async def test_a_list_without_a_broker_that_is_down_is_an_error() -> None:
    answers: dict[int, Answer] = {LIST: lambda _node, _request: listing()}
    async with (
        ScriptedCluster(answers, brokers=2, away={1}) as cluster,
        Connections(cluster.dialler(timeout_s=1.0)) as connections,
    ):
        with pytest.raises(ClusterError, match=f"no connection to {cluster.address(1)}"):
            await list_streams_groups(connections)
