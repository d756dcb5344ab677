"""Verdicts of the broker about its clients: what is asked, and for how long an answer is kept."""

from typing import Any

import pytest

from headgate.base.errors import ClusterError
from headgate.base.ids import ApiKey
from headgate.proxy.rights import GroupRight, Rights, TopicRight, topic_rights
from headgate.wire.messages.cluster import MetadataRequest, MetadataResponse, MetadataTopic
from headgate.wire.messages.groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from headgate.wire.schema import Request


class Connection:
    """A session that answers every probe with one code."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.calls: list[Any] = []

    async def call(self, request: Request[Any], version: int, *, deadline: float = 5.0) -> Any:  # noqa: ARG002
        assert version in request.valid
        self.calls.append(request)
        if self.code == -1:
            raise ClusterError("no answer")
        response = request.response_class()
        return (
            response(error_code=self.code)
            if "error_code" in {one.name for one in response.layout.fields}
            else response()
        )


class Time:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def epoch_ms(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("right", "key"), [(GroupRight.READ, ApiKey.HEARTBEAT), (GroupRight.DELETE, ApiKey.OFFSET_DELETE)]
)
@pytest.mark.parametrize("code", [0, 25, 30, 69])
async def test_each_right_has_its_probe_and_the_brokers_code_is_the_answer(
    right: GroupRight, key: int, code: int
) -> None:
    connection: Any = Connection(code)
    assert await Rights(Time()).ask(connection, right, "g") == code
    assert [call.api_key for call in connection.calls] == [key]


async def test_the_probe_for_read_names_no_real_member() -> None:
    connection: Any = Connection(25)
    await Rights(Time()).ask(connection, GroupRight.READ, "g")
    [asked] = connection.calls
    assert (asked.group_id, asked.generation_id, asked.member_id) == ("g", -1, "headgate-probe")


async def test_a_verdict_is_kept_for_seconds_for_its_connection_right_and_group() -> None:
    clock = Time()
    rights = Rights(clock)
    one: Any = Connection(30)
    other: Any = Connection(0)
    for _ in range(3):
        assert await rights.ask(one, GroupRight.READ, "g") == 30
    assert len(one.calls) == 1
    assert await rights.ask(other, GroupRight.READ, "g") == 0
    await rights.ask(one, GroupRight.DELETE, "g")
    await rights.ask(one, GroupRight.READ, "h")
    assert len(one.calls) == 3
    clock.now += 5.0
    await rights.ask(one, GroupRight.READ, "g")
    assert len(one.calls) == 4


@pytest.mark.parametrize(("groups", "code"), [((("g", 0),), 0), ((("g", 69),), 69), ((("g", 30),), 30), ((), 30)])
async def test_describe_is_asked_with_a_request_that_needs_nothing_else(
    groups: tuple[tuple[str, int], ...], code: int
) -> None:
    class Describing(Connection):
        async def call(self, request: Request[Any], version: int, *, deadline: float = 5.0) -> Any:  # noqa: ARG002
            await super().call(request, version)
            return DescribeGroupsResponse(
                groups=tuple(DescribedGroup(group_id=name, error_code=one) for name, one in groups)
            )

    connection: Any = Describing()
    assert await Rights(Time()).ask(connection, GroupRight.DESCRIBE, "g") == code
    assert connection.calls == [DescribeGroupsRequest(groups=("g",))]


@pytest.mark.parametrize("code", [14, 15, 16])
async def test_what_a_coordinator_says_about_itself_is_no_verdict(code: int) -> None:
    rights, connection = Rights(Time()), Connection(code)
    session: Any = connection
    assert await rights.ask(session, GroupRight.READ, "g") == code
    connection.code = 25
    assert await rights.ask(session, GroupRight.READ, "g") == 25


async def test_no_answer_is_no_verdict() -> None:
    rights, connection = Rights(Time()), Connection(-1)
    session: Any = connection
    with pytest.raises(ClusterError):
        await rights.ask(session, GroupRight.READ, "g")
    connection.code = 0
    assert await rights.ask(session, GroupRight.READ, "g") == 0


async def test_what_is_kept_of_a_connection_is_bounded() -> None:
    rights, connection = Rights(Time()), Connection(0)
    session: Any = connection
    for number in range(100):
        await rights.ask(session, GroupRight.READ, f"g{number}")
    await rights.ask(session, GroupRight.READ, "g0")
    assert len(connection.calls) == 101
    await rights.ask(session, GroupRight.READ, "g99")
    assert len(connection.calls) == 101


# --- topics ---------------------------------------------------------------------------------------------------------


class TopicConnection:
    """A session whose broker says this of the topics, as 4.3.1 does."""

    def __init__(self, *topics: MetadataTopic) -> None:
        self.topics = topics
        self.asked: list[MetadataRequest] = []

    async def call(self, request: MetadataRequest, version: int) -> MetadataResponse:
        assert version == 13
        self.asked.append(request)
        return MetadataResponse(topics=self.topics)


@pytest.mark.parametrize(
    ("code", "operations", "may_write", "exists"),
    [
        (0, 3576, True, True),
        (0, 256 | 16, True, True),
        (0, 256, False, True),
        (3, 3576, True, False),
        (3, 256, False, False),
        (5, 3576, True, True),  # its leader is away
    ],
)
async def test_write_on_a_topic_is_a_bit_whether_the_topic_exists_or_not(
    code: int, operations: int, may_write: bool, exists: bool
) -> None:
    session: Any = TopicConnection(MetadataTopic(error_code=code, name="t", topic_authorized_operations=operations))
    assert await topic_rights(session, ["t"]) == {"t": TopicRight(may_write=may_write, exists=exists)}


async def test_who_may_not_describe_a_topic_may_not_write_to_it() -> None:
    session: Any = TopicConnection(MetadataTopic(error_code=29, name="t"))
    assert not (await topic_rights(session, ["t"]))["t"].may_write


async def test_topics_are_asked_for_together_and_none_is_made_by_asking() -> None:
    connection = TopicConnection(
        MetadataTopic(name="b", topic_authorized_operations=16),
        MetadataTopic(name="other", topic_authorized_operations=16),
    )
    session: Any = connection
    rights = await topic_rights(session, ["a", "b"])
    assert {topic: right.may_write for topic, right in rights.items()} == {"a": False, "b": True}
    [asked] = connection.asked
    assert [one.name for one in asked.topics or ()] == ["a", "b"]
    assert not asked.allow_auto_topic_creation
    assert asked.include_topic_authorized_operations
