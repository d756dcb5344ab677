"""What dead letters need: what is said of each right and topic, how it is found out, and that the page agrees."""

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from headgate.base.errors import ClusterError
from headgate.config.values import GroupPatterns
from headgate.doctor.broker import Broker
from headgate.doctor.commands import KafkaTools, Resource
from headgate.doctor.dead_letter_probing import _read, ask_all
from headgate.doctor.dead_letters import (
    CREATE,
    MOST_GROUPS,
    MOST_TOPICS,
    NOBODY,
    RIGHTS,
    Uses,
    commands,
    judge,
    judge_topics,
    needed_rights,
    shown,
    uses_of,
)
from headgate.doctor.findings import Verdict
from headgate.doctor.messages import CreatedTopic, CreateTopicsRequest, CreateTopicsResponse
from headgate.doctor.rights import Answer, Granted, Refused, Right, Unknown
from headgate.facts import GroupConfigSet, GroupConfigUnset
from headgate.share_groups.config_client import NOBODYS_GROUP
from headgate.share_groups.model.group_configs import DLQ_TOPIC
from headgate.share_groups.model.group_state import ShareStates
from headgate.wire.messages.cluster import MetadataTopic
from headgate.wire.messages.configs import (
    AlterConfigsResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headgate.wire.schema import Message
from tests.support.ports import port_block

DOC = (Path(__file__).parents[3] / "docs" / "operate.md").read_text("utf-8")
TOOLS = KafkaTools(bootstrap="b:9092", principal="User:headgate")
USES = Uses(topics={"dlq.a": ("one",), "dlq.b": ("two",)}, groups=("one", "two"))
EVERYTHING = 0b1_1111_1111_1000
ALL = needed_rights(auto_create=True)


@dataclass
class FakeBroker:
    """A broker that refuses these (type of resource, name) and, with `error`, fails for all others."""

    alter: frozenset[str] = frozenset()
    describe: frozenset[tuple[int, str]] = frozenset()
    create: frozenset[str] = frozenset()
    error: int = 0
    asked: list[Message] = field(default_factory=list)

    async def call(self, request: Message, _version: int) -> Message:
        self.asked.append(request)
        match request:
            case IncrementalAlterConfigsRequest(resources=resources):
                return IncrementalAlterConfigsResponse(
                    responses=tuple(
                        AlterConfigsResourceResponse(
                            resource_name=one.resource_name,
                            error_code=30 if one.resource_name in self.alter else self.error,
                        )
                        for one in resources
                    )
                )
            case DescribeConfigsRequest(resources=wanted):
                return DescribeConfigsResponse(
                    results=tuple(
                        DescribeConfigsResult(
                            resource_name=one.resource_name,
                            error_code={2: 29, 4: 31, 32: 30}[one.resource_type]
                            if (one.resource_type, one.resource_name) in self.describe
                            else self.error,
                        )
                        for one in wanted
                    )
                )
            case CreateTopicsRequest(topics=topics):
                return CreateTopicsResponse(
                    topics=tuple(
                        CreatedTopic(name=one.name, error_code=29 if one.name in self.create else 0) for one in topics
                    )
                )
        raise ClusterError("the connection ended")


def right(resource: Resource, operation: str) -> Right:
    (found,) = [one for one in ALL if (one.resource, one.operation) == (resource, operation)]
    return found


def topics(**codes: int) -> dict[str, MetadataTopic]:
    return {
        f"dlq.{name}": MetadataTopic(name=f"dlq.{name}", error_code=code, topic_authorized_operations=EVERYTHING)
        for name, code in codes.items()
    }


def ask(
    broker: FakeBroker | None = None,
    uses: Uses = USES,
    described: Mapping[str, MetadataTopic] | ClusterError | None = None,
) -> dict[Right, Answer]:
    there = topics(a=0, b=0) if described is None else described
    return asyncio.run(ask_all(cast("Broker", broker or FakeBroker()), ALL, there, uses, "dlq."))


def refused(answers: Mapping[Right, Answer]) -> dict[tuple[str, str], tuple[str, ...]]:
    return {
        (str(one.resource), one.operation): answer.names
        for one, answer in answers.items()
        if isinstance(answer, Refused)
    }


def state_of(**topic_of: str) -> ShareStates:
    states = ShareStates()
    for group, topic in topic_of.items():
        states.apply(GroupConfigSet(group=group, name=DLQ_TOPIC, value=topic, by="User:x", at=0))
    return states


def test_all_that_is_granted_is_in_order() -> None:
    answers = ask()
    assert set(answers.values()) == {Granted()}
    verdicts = [finding.verdict for finding in judge(answers, USES, TOOLS, "dlq.")]
    assert verdicts == [Verdict.OK] * len(ALL)


@pytest.mark.parametrize(
    ("broker", "expected"),
    [
        (FakeBroker(alter=frozenset({"two"})), {("group", "AlterConfigs"): ("two",)}),
        (FakeBroker(describe=frozenset({(32, "two")})), {("group", "DescribeConfigs"): ("two",)}),
        # Without the brokers' default, and without their maximum, no group's limit is known.
        (FakeBroker(describe=frozenset({(32, NOBODYS_GROUP)})), {("group", "DescribeConfigs"): ("one", "two")}),
        (FakeBroker(describe=frozenset({(4, "")})), {("cluster", "DescribeConfigs"): ("one", "two")}),
        (FakeBroker(describe=frozenset({(2, "dlq.a")})), {("topic", "DescribeConfigs"): ("dlq.a",)}),
        # Both are there, so nobody waits for a topic to be made.
        (FakeBroker(create=frozenset({"dlq.x"})), {("topic", "Create"): ()}),
    ],
)
def test_a_refusal_names_what_is_hit_by_it(
    broker: FakeBroker, expected: dict[tuple[str, str], tuple[str, ...]]
) -> None:
    assert refused(ask(broker)) == expected


def test_a_refusal_of_all_topics_names_them_too() -> None:
    unseen = {name: MetadataTopic(name=name, error_code=29) for name in USES.topics}
    found = refused(ask(described=unseen))
    assert found == {("topic", "Describe"): ("dlq.a", "dlq.b"), ("topic", "Write"): ("dlq.a", "dlq.b")}


def test_only_topics_that_are_absent_need_to_be_created() -> None:
    broker = FakeBroker(create=frozenset({"dlq.a", "dlq.b"}))
    assert refused(ask(broker, described=topics(a=0, b=3))) == {("topic", "Create"): ("dlq.b",)}


def test_while_no_group_has_a_topic_names_that_stand_for_any_are_asked_for() -> None:
    broker = FakeBroker(alter=frozenset({NOBODYS_GROUP}), describe=frozenset({(32, NOBODYS_GROUP), (2, "dlq.x")}))
    answers = ask(broker, NOBODY, {"dlq.x": MetadataTopic(name="dlq.x", error_code=3, topic_authorized_operations=0)})
    assert set(refused(answers).values()) == {()}
    findings = [one for one in judge(answers, NOBODY, TOOLS, "dlq.") if one.verdict is not Verdict.OK]
    assert {one.verdict for one in findings} == {Verdict.WARNING}
    assert all("hits nobody yet" in one.text for one in findings)
    assert [one.subject for one in findings] == [
        "Describe on topic dlq.*",
        "Write on topic dlq.*",
        "DescribeConfigs on topic dlq.*",
        "DescribeConfigs on group *",
        "AlterConfigs on group *",
    ]


def test_no_probe_can_change_anything() -> None:
    broker = FakeBroker()
    ask(broker, described=topics(a=0, b=3))
    altered = [one for one in broker.asked if isinstance(one, IncrementalAlterConfigsRequest)]
    assert [(one.validate_only, {each.configs for each in one.resources}) for one in altered] == [(True, {()})]
    created = [one for one in broker.asked if isinstance(one, CreateTopicsRequest)]
    assert [one.validate_only for one in created] == [True]
    rest = {type(one) for one in broker.asked} - {IncrementalAlterConfigsRequest, CreateTopicsRequest}
    assert rest == {DescribeConfigsRequest}


def test_another_error_proves_nothing() -> None:
    answers = ask(FakeBroker(error=41))
    for operation in ("DescribeConfigs", "AlterConfigs"):
        assert answers[right(Resource.GROUP, operation)] == Unknown("error 41")


def test_a_broker_that_does_not_answer_leaves_everything_open() -> None:
    class Dead(FakeBroker):
        async def call(self, _request: Message, _version: int) -> Message:
            raise ClusterError("no answer within 10 s")

    answers = ask(Dead(), described=ClusterError("no answer within 10 s"))
    assert set(answers.values()) == {Unknown("no answer within 10 s")}
    findings = list(judge(answers, USES, TOOLS, "dlq."))
    assert {one.verdict for one in findings} == {Verdict.WARNING}
    assert all("no answer within 10 s" in one.text for one in findings)


def test_a_state_that_cannot_be_read_is_given_up_at_the_deadline() -> None:
    nobody = {"bootstrap.servers": f"127.0.0.1:{port_block()}"}
    began = time.monotonic()
    with pytest.raises(ClusterError, match=r"h\.state was not read to its end within 0\.3 s"):
        _read(nobody, "h.state", 0.3)
    assert time.monotonic() - began < 10


def test_a_missing_right_says_what_is_lost_and_how_it_is_granted() -> None:
    answers: dict[Right, Answer] = {
        right(Resource.TOPIC, "Write"): Refused(("dlq.a",)),
        right(Resource.TOPIC, "DescribeConfigs"): Refused(("dlq.a",)),
        right(Resource.GROUP, "AlterConfigs"): Refused(("one",)),
    }
    write, configs, alter = judge(answers, USES, TOOLS, "dlq.")
    assert [one.verdict for one in (write, configs, alter)] == [Verdict.PROBLEM, Verdict.WARNING, Verdict.PROBLEM]
    assert "it hits dlq.a: needed to write dead letters; without it rejected records are archived" in write.text
    assert write.mend.endswith("--operation Write --topic dlq. --resource-pattern-type prefixed")
    assert "limit_unprotected" in alter.text
    assert alter.mend.endswith("--operation AlterConfigs --group '*'")


def test_a_topic_outside_of_the_prefix_is_granted_by_its_name() -> None:
    (finding,) = judge({right(Resource.TOPIC, "Write"): Refused(("old.a", "dlq.a"))}, USES, TOOLS, "dlq.")
    by_prefix, by_name = finding.mend.split(" && ")
    assert by_prefix.endswith("--topic dlq. --resource-pattern-type prefixed")
    assert by_name.endswith("--topic old.a")


def test_a_topic_that_is_absent_is_a_problem_unless_headgate_makes_it() -> None:
    there, absent = judge_topics(USES, topics(a=0, b=3), TOOLS, auto_create=False)
    assert (there.verdict, there.text) == (Verdict.OK, "dlq.a is there")
    assert (absent.verdict, absent.subject) == (Verdict.PROBLEM, "dlq.b")
    assert "rejected records of two are archived" in absent.text
    assert absent.mend == "kafka-topics.sh --bootstrap-server b:9092 --create --topic dlq.b"
    found = list(judge_topics(USES, topics(a=0, b=3), TOOLS, auto_create=True))
    assert {one.verdict for one in found} == {Verdict.OK}


def test_a_topic_that_cannot_be_looked_at_is_a_warning_and_one_that_may_not_be_seen_is_told_by_its_right() -> None:
    (unknown,) = judge_topics(USES, topics(a=29, b=17), TOOLS, auto_create=False)
    assert (unknown.verdict, unknown.subject) == (Verdict.WARNING, "dlq.b")
    assert "error 17" in unknown.text
    assert [one.verdict for one in judge_topics(USES, {}, TOOLS, auto_create=False)] == [Verdict.WARNING] * 2


def test_without_any_group_that_is_said() -> None:
    (finding,) = judge_topics(NOBODY, {}, TOOLS, auto_create=False)
    assert (finding.verdict, finding.text) == (Verdict.OK, "no group has one yet")


def test_groups_are_those_that_are_selected_and_have_a_topic_now() -> None:
    states = state_of(one="dlq.a", two="dlq.b", other="dlq.b", gone="dlq.c")
    states.apply(GroupConfigUnset(group="gone", name=DLQ_TOPIC))
    found = uses_of(states, GroupPatterns(deny=("other",)))
    assert found == Uses(topics={"dlq.a": ("one",), "dlq.b": ("two",)}, groups=("one", "two"))


def test_no_more_than_a_hundred_are_looked_at_and_that_is_said() -> None:
    states = state_of(**{f"g{number:03}": f"dlq.{number:03}" for number in range(MOST_TOPICS + 7)})
    found = uses_of(states, GroupPatterns())
    assert (len(found.topics), len(found.groups)) == (MOST_TOPICS, MOST_GROUPS)
    assert (found.topics_left_out, found.groups_left_out) == (7, 7)
    described = {name: MetadataTopic(name=name) for name in found.topics}
    there, more = judge_topics(found, described, TOOLS, auto_create=False)
    assert there.text.endswith("and 95 more are there")
    assert more.verdict is Verdict.WARNING
    assert "7 topics and 7 groups" in more.text


def test_long_names_are_cut() -> None:
    assert len(shown(["x" * 30_000] * 3)) < 400


def test_creating_is_asked_for_only_where_headgate_creates() -> None:
    assert needed_rights(auto_create=False) == RIGHTS
    assert CREATE in ALL


def test_the_operators_page_has_the_commands_that_grant_them() -> None:
    tools = KafkaTools(bootstrap="...", principal="User:headgate")
    (section,) = re.findall(r"^\*\*Dead letters\*\*.*?^With `dlq_auto_create`", DOC, re.DOTALL | re.MULTILINE)
    lines = [line.strip() for line in section.splitlines() if line.startswith("    kafka-acls.sh")]
    assert lines == [line.replace("--bootstrap-server ... ", "... ") for line in commands(tools, "dlq.")]
