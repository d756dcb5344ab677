"""The list of rights: what is said of each, how it is found out, and that the operators' page has the same list."""

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from headgate.base.errors import ClusterError
from headgate.doctor.broker import Broker
from headgate.doctor.commands import KafkaTools, Resource
from headgate.doctor.findings import Verdict
from headgate.doctor.messages import (
    CreatedTopic,
    CreateTopicsResponse,
    DescribeTransactionsResponse,
    EndTxnResponse,
    TransactionState,
)
from headgate.doctor.probing import ask_all
from headgate.doctor.rights import (
    RIGHTS,
    Answer,
    Granted,
    Refused,
    Right,
    Unknown,
    commands,
    excess,
    judge,
)
from headgate.wire.messages.cluster import MetadataTopic
from headgate.wire.messages.configs import DescribeConfigsResponse, DescribeConfigsResult
from headgate.wire.messages.groups import HeartbeatResponse
from headgate.wire.schema import Message, Request

DOC = (Path(__file__).parents[3] / "docs" / "operate.md").read_text("utf-8")
TOOLS = KafkaTools(bootstrap="b:9092", principal="User:headgate")
EVERYTHING = 0b1_1111_1111_1000
READ, WRITE, DESCRIBE = 1 << 3, 1 << 4, 1 << 8


@dataclass
class FakeBroker:
    """Answers by the class that is asked for: a real broker cannot be made to refuse each right by itself cheaply."""

    answers: dict[type[Message], Message]
    asked: list[Message] = field(default_factory=list)

    async def call(self, request: Request[Any], _version: int) -> Message:
        self.asked.append(request)
        answer_class = request.response_class()
        if answer_class not in self.answers:
            raise ClusterError("the connection ended")
        return self.answers[answer_class]


def right(resource: Resource, operation: str) -> Right:
    (found,) = [one for one in RIGHTS if (one.resource, one.operation) == (resource, operation)]
    return found


def ask(*, topics: dict[str, MetadataTopic], cluster: int = 0, **answers: Message) -> dict[Right, Answer]:
    willing: dict[str, Message] = {
        "create": CreateTopicsResponse(),
        "configs": DescribeConfigsResponse(),
        "group": HeartbeatResponse(error_code=25),
        "transaction": DescribeTransactionsResponse(),
        "end": EndTxnResponse(error_code=49),
    }
    broker = FakeBroker({type(answer): answer for answer in (willing | answers).values()})
    return asyncio.run(ask_all(cast("Broker", broker), topics, cluster, "h."))


def topic(operations: int = EVERYTHING, error_code: int = 0) -> MetadataTopic:
    return MetadataTopic(name="t", error_code=error_code, topic_authorized_operations=operations)


def test_every_right_has_an_answer_and_a_finding() -> None:
    answers = ask(topics={"h.state": topic()}, cluster=EVERYTHING)
    assert set(answers.values()) == {Granted()}
    findings = list(judge(answers, TOOLS, "h."))
    assert [finding.verdict for finding in findings] == [Verdict.OK] * len(RIGHTS)


def test_a_missing_right_on_some_topics_names_them() -> None:
    answers = ask(topics={"h.state": topic(), "h.trips": topic(EVERYTHING & ~WRITE)})
    assert answers[right(Resource.TOPIC, "Write")] == Refused(("h.trips",))
    (finding,) = [one for one in judge(answers, TOOLS, "h.") if one.subject == "Write on topic h.*"]
    assert finding.verdict is Verdict.PROBLEM
    assert "h.trips" in finding.text
    assert finding.mend == (
        "kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal User:headgate --operation Write "
        "--topic h. --resource-pattern-type prefixed"
    )


def test_a_topic_that_may_not_be_described_may_not_be_read_or_written() -> None:
    answers = ask(topics={"h.state": topic(-(2**31), error_code=29)})
    for operation in ("Describe", "Read", "Write"):
        assert answers[right(Resource.TOPIC, operation)] == Refused(())
    assert answers[right(Resource.TOPIC, "Create")] == Granted()


def test_rights_are_known_of_a_topic_that_is_not_there_yet() -> None:
    answers = ask(topics={"h.state": topic(DESCRIBE | READ, error_code=3)})
    assert answers[right(Resource.TOPIC, "Read")] == Granted()
    assert answers[right(Resource.TOPIC, "Write")] == Refused(())


def test_a_broker_that_names_no_operations_leaves_it_open() -> None:
    answers = ask(topics={"h.state": topic(-(2**31), error_code=3)})
    assert isinstance(answers[right(Resource.TOPIC, "Read")], Unknown)


@pytest.mark.parametrize(
    ("refusal", "resource", "operation"),
    [
        (CreateTopicsResponse(topics=(CreatedTopic(name="h.state", error_code=29),)), Resource.TOPIC, "Create"),
        (
            DescribeConfigsResponse(results=(DescribeConfigsResult(resource_name="h.state", error_code=29),)),
            Resource.TOPIC,
            "DescribeConfigs",
        ),
        (HeartbeatResponse(error_code=30), Resource.GROUP, "Read"),
        (
            DescribeTransactionsResponse(transaction_states=(TransactionState(error_code=53),)),
            Resource.TRANSACTIONAL_ID,
            "Describe",
        ),
        (EndTxnResponse(error_code=53), Resource.TRANSACTIONAL_ID, "Write"),
    ],
)
def test_each_probe_takes_only_its_own_refusal_for_a_no(refusal: Message, resource: Resource, operation: str) -> None:
    answers = ask(topics={"h.state": topic()}, cluster=EVERYTHING, refusal=refusal)
    refused = [one for one, answer in answers.items() if isinstance(answer, Refused)]
    assert refused == [right(resource, operation)]


def test_a_probe_that_is_not_answered_is_a_warning_and_stops_none_of_the_others() -> None:
    broker = FakeBroker({HeartbeatResponse: HeartbeatResponse(error_code=30)})
    answers = asyncio.run(ask_all(cast("Broker", broker), {"h.state": topic()}, 0, "h."))
    assert isinstance(answers[right(Resource.TOPIC, "Create")], Unknown)
    assert isinstance(answers[right(Resource.GROUP, "Read")], Refused)
    verdicts = {finding.subject: finding.verdict for finding in judge(answers, TOOLS, "h.")}
    assert verdicts["Create on topic h.*"] is Verdict.WARNING


def test_writing_anywhere_implies_idempotent_writing() -> None:
    idempotent = right(Resource.CLUSTER, "IdempotentWrite")
    assert ask(topics={"h.a": topic(WRITE), "h.b": topic(READ)})[idempotent] == Granted()
    assert isinstance(ask(topics={"h.a": topic(READ)})[idempotent], Refused)
    assert ask(topics={"h.a": topic(READ)}, cluster=1 << 12)[idempotent] == Granted()


def test_without_describe_on_the_cluster_only_the_doctor_sees_less() -> None:
    answers = ask(topics={"h.state": topic()}, cluster=0)
    (finding,) = [one for one in judge(answers, TOOLS, "h.") if one.verdict is not Verdict.OK]
    assert (finding.verdict, finding.subject) == (Verdict.WARNING, "Describe on kafka-cluster")


def test_no_probe_can_change_anything() -> None:
    broker = FakeBroker({})
    asyncio.run(ask_all(cast("Broker", broker), {"h.state": topic()}, 0, "h."))
    asked: dict[str, Any] = {type(request).__name__: request for request in broker.asked}
    assert asked["CreateTopicsRequest"].validate_only
    assert asked["EndTxnRequest"].producer_id == 2**63 - 1
    assert not asked["EndTxnRequest"].committed
    assert asked["HeartbeatRequest"].generation_id == -1
    assert set(asked) == {
        "CreateTopicsRequest",
        "DescribeConfigsRequest",
        "HeartbeatRequest",
        "DescribeTransactionsRequest",
        "EndTxnRequest",
    }


def test_a_principal_that_rules_the_cluster_is_said_to() -> None:
    (finding,) = excess(1 << 7, TOOLS, anonymous=True)
    assert finding.verdict is Verdict.WARNING
    assert "every client" in finding.text
    assert not list(excess(DESCRIBE, TOOLS, anonymous=True))


def test_names_are_quoted_for_the_shell() -> None:
    tools = KafkaTools(bootstrap="b:9092", principal="User:it's me", secured=True)
    line = tools.allow(Resource.GROUP, ["Read"], "h.")
    assert "'User:it'\"'\"'s me'" in line
    assert "--command-config admin.properties" in line


def test_the_operators_page_has_exactly_these_rights() -> None:
    rows = re.findall(r"^\| (topic|group|transactional-id|cluster) \| (\w+) \| (\w+) \| (.+) \|$", DOC, re.MULTILINE)
    assert rows == [(str(one.resource), one.operation, one.need, one.purpose) for one in RIGHTS]


def test_the_operators_page_has_the_commands_that_grant_them() -> None:
    tools = KafkaTools(bootstrap="broker-0.internal:9092", principal="User:headgate", secured=True)
    (block,) = re.findall(r"```\n(kafka-acls.*?)```", DOC, re.DOTALL)
    assert tuple(block.splitlines()) == commands(tools, "headgate.")
