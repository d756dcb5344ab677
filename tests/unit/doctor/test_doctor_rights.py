"""The table of rights: how each is probed, what is reported when one is missing, and that the docs show the table."""

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from headgate.base.errors import ClusterError
from headgate.config import Config
from headgate.config.model import LagsConfig, ShareGroupsConfig, TopologiesConfig
from headgate.config.values import GroupPatterns, Store
from headgate.doctor.brokers import Broker
from headgate.doctor.findings import FindingVerdict, KafkaTools, Resource
from headgate.doctor.probes import DeadLetterUses, RightProbes
from headgate.doctor.rights import (
    RIGHTS,
    AclNames,
    AclRight,
    Denied,
    Granted,
    RightStatus,
    Scope,
    Unknown,
    excess,
    grant_commands,
    judge,
    own_rights,
    rights_in,
    share_group_rights,
    shown,
)
from headgate.doctor.topics import MOST_TOPICS, _read, judge_dead_letter_topics, uses_of
from headgate.facts import GroupConfigSet, GroupConfigUnset
from headgate.share_groups.broker_configs import NO_SUCH_GROUP
from headgate.share_groups.model.group_configs import DLQ_TOPIC
from headgate.share_groups.model.group_state import ShareStates
from headgate.wire.messages.admin import (
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    TransactionState,
)
from headgate.wire.messages.cluster import MetadataRequest, MetadataResponse, MetadataTopic
from headgate.wire.messages.configs import (
    AlterConfigsResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headgate.wire.messages.groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from headgate.wire.schema import Message
from tests.support.ports import port_block

DOC = (Path(__file__).parents[3] / "docs" / "operate.md").read_text("utf-8")
TOOLS = KafkaTools(bootstrap="b:9092", principal="User:headgate")
NAMES = AclNames(facts_prefix="h.", dlq_prefix="dlq.")
USES = DeadLetterUses(topics={"dlq.a": ("one",), "dlq.b": ("two",)}, groups=("one", "two"))
NO_USES = DeadLetterUses()
OWN = rights_in(Scope.ALWAYS)
SCOPES = Scope.SHARE_GROUPS, Scope.DLQ_AUTO_CREATE, Scope.TRIAGE
FOR_DEAD_LETTERS = tuple(one for one in rights_in(*SCOPES) if one.need != "optional")
EVERYTHING, NOTHING_SAID = 0b1_1111_1111_1000, -(2**31)
READ, WRITE, DESCRIBE = 1 << 3, 1 << 4, 1 << 8
Key = tuple[str, str]


@dataclass
class FakeBroker:
    """Denies what is named; a real broker cannot be made to deny each right by itself cheaply."""

    create: frozenset[str] = frozenset()
    alter: frozenset[str] = frozenset()
    describe: frozenset[tuple[int, str]] = frozenset()  # type of resource, name
    codes: Mapping[type[Message], int] = field(default_factory=dict)  # of the other requests
    error: int = 0  # of config requests that are not denied
    is_down: bool = False
    requests: list[Message] = field(default_factory=list)

    async def call(self, request: Message, _version: int) -> Message:
        self.requests.append(request)
        if self.is_down:
            raise ClusterError("no response within 10 s")
        match request:
            case CreateTopicsRequest(topics=topics):
                denied = [
                    CreatedTopic(name=one.name, error_code=29 if one.name in self.create else 0) for one in topics
                ]
                return CreateTopicsResponse(topics=tuple(denied))
            case IncrementalAlterConfigsRequest(resources=altered):
                codes = {one.resource_name: 30 if one.resource_name in self.alter else self.error for one in altered}
                return IncrementalAlterConfigsResponse(
                    responses=tuple(
                        AlterConfigsResourceResponse(resource_name=n, error_code=c) for n, c in codes.items()
                    )
                )
            case DescribeConfigsRequest(resources=described):
                denial = {2: 29, 4: 31, 32: 30}
                keys = [(one.resource_type, one.resource_name) for one in described]
                return DescribeConfigsResponse(
                    results=tuple(
                        DescribeConfigsResult(
                            resource_name=name, error_code=denial[kind] if (kind, name) in self.describe else self.error
                        )
                        for kind, name in keys
                    )
                )
            case HeartbeatRequest():
                return HeartbeatResponse(error_code=self.codes.get(HeartbeatRequest, 25))
            case DescribeGroupsRequest(groups=(group,)):
                code = self.codes.get(DescribeGroupsRequest, 69)
                return DescribeGroupsResponse(groups=(DescribedGroup(group_id=group, error_code=code),))
            case DescribeTransactionsRequest():
                state = TransactionState(error_code=self.codes.get(DescribeTransactionsRequest, 0))
                return DescribeTransactionsResponse(transaction_states=(state,))
            case MetadataRequest(topics=(asked,)):
                code = self.codes.get(MetadataRequest, 3)
                return MetadataResponse(topics=(MetadataTopic(name=asked.name, error_code=code),))
            case EndTxnRequest():
                return EndTxnResponse(error_code=self.codes.get(EndTxnRequest, 49))
        raise AssertionError(request)


def topic(operations: int = EVERYTHING, error_code: int = 0) -> MetadataTopic:
    return MetadataTopic(name="t", error_code=error_code, topic_authorized_operations=operations)


def probe(
    rights: tuple[AclRight, ...],
    topics: Mapping[str, MetadataTopic] | ClusterError,
    broker: FakeBroker | None = None,
    *,
    cluster: int = EVERYTHING,
    uses: DeadLetterUses = NO_USES,
) -> dict[AclRight, RightStatus]:
    fake = cast("Broker", broker or FakeBroker())
    probes = RightProbes(broker=fake, names=NAMES, topics=topics, cluster=cluster, uses=uses)
    return asyncio.run(probes.probe_all(rights))


def denied(statuses: Mapping[AclRight, RightStatus]) -> dict[Key, tuple[str, ...]]:
    return {
        (str(right.resource), right.operation): status.names
        for right, status in statuses.items()
        if isinstance(status, Denied)
    }


def right(scope: Scope, resource: Resource, operation: str) -> AclRight:
    (found,) = [one for one in rights_in(scope) if (one.resource, one.operation) == (resource, operation)]
    return found


@pytest.mark.parametrize(
    ("rights", "topics", "uses"),
    [(OWN, {"h.state": topic()}, NO_USES), (FOR_DEAD_LETTERS, {"dlq.a": topic(), "dlq.b": topic()}, USES)],
    ids=["own", "dead letters"],
)
def test_an_account_with_every_right_has_no_findings_but_ok(
    rights: tuple[AclRight, ...], topics: dict[str, MetadataTopic], uses: DeadLetterUses
) -> None:
    statuses = probe(rights, topics, uses=uses)
    assert set(statuses.values()) == {Granted()}
    assert [one.verdict for one in judge(statuses, TOOLS, NAMES)] == [FindingVerdict.OK] * len(rights)


@pytest.mark.parametrize(
    ("broker", "topics", "expected"),
    [
        (FakeBroker(create=frozenset({"h.a"})), {"h.a": topic()}, {("topic", "Create"): ()}),
        (FakeBroker(describe=frozenset({(2, "h.a")})), {"h.a": topic()}, {("topic", "DescribeConfigs"): ()}),
        (FakeBroker(codes={HeartbeatRequest: 30}), {"h.a": topic()}, {("group", "Read"): ("h.leader",)}),
        (
            FakeBroker(codes={DescribeTransactionsRequest: 53}),
            {"h.a": topic()},
            {("transactional-id", "Describe"): ("h.trips",)},
        ),
        (FakeBroker(codes={EndTxnRequest: 53}), {"h.a": topic()}, {("transactional-id", "Write"): ("h.trips",)}),
        # Only some topics: they are named, and Write on any topic implies IdempotentWrite.
        (None, {"h.a": topic(), "h.b": topic(EVERYTHING & ~WRITE)}, {("topic", "Write"): ("h.b",)}),
        # A topic that may not be described may not be read or written.
        (
            None,
            {"h.a": topic(NOTHING_SAID, error_code=29)},
            {("topic", "Describe"): (), ("topic", "Write"): (), ("topic", "Read"): ()},
        ),
        # Rights are known for a topic that does not exist yet.
        (None, {"h.a": topic(DESCRIBE | READ, error_code=3)}, {("topic", "Write"): ()}),
    ],
)
def test_each_denial_of_a_right_on_own_topics_is_found(
    broker: FakeBroker | None, topics: dict[str, MetadataTopic], expected: dict[Key, tuple[str, ...]]
) -> None:
    assert denied(probe(OWN, topics, broker)) == expected


@pytest.mark.parametrize(
    ("broker", "topics", "expected"),
    [
        (FakeBroker(alter=frozenset({"two"})), (0, 0), {("group", "AlterConfigs"): ("two",)}),
        (FakeBroker(describe=frozenset({(32, "two")})), (0, 0), {("group", "DescribeConfigs"): ("two",)}),
        # Without the brokers' default, and without their maximum, no group's limit is known.
        (FakeBroker(describe=frozenset({(32, NO_SUCH_GROUP)})), (0, 0), {("group", "DescribeConfigs"): ("one", "two")}),
        (FakeBroker(describe=frozenset({(4, "")})), (0, 0), {("cluster", "DescribeConfigs"): ("one", "two")}),
        (FakeBroker(describe=frozenset({(2, "dlq.a")})), (0, 0), {("topic", "DescribeConfigs"): ("dlq.a",)}),
        # Both topics exist, so no group waits for one to be created.
        (FakeBroker(create=frozenset({"dlq.x"})), (0, 0), {("topic", "Create"): ()}),
        (FakeBroker(create=frozenset({"dlq.a", "dlq.b"})), (0, 3), {("topic", "Create"): ("dlq.b",)}),
        (
            None,
            (29, 29),
            {("topic", operation): ("dlq.a", "dlq.b") for operation in ("Describe", "Write", "Read")},
        ),
    ],
)
def test_each_denial_of_a_right_for_dead_letters_names_what_it_affects(
    broker: FakeBroker | None, topics: tuple[int, int], expected: dict[Key, tuple[str, ...]]
) -> None:
    described = {f"dlq.{name}": topic(error_code=code) for name, code in zip("ab", topics, strict=True)}
    assert denied(probe(FOR_DEAD_LETTERS, described, broker, uses=USES)) == expected


def test_the_right_of_the_cleanup_is_checked_if_descriptions_are_stored() -> None:
    config = Config(lags=LagsConfig(enable=False))
    for off in (TopologiesConfig(owner="broker"), TopologiesConfig(owner="off"), TopologiesConfig(store=Store("none"))):
        assert own_rights(replace(config, topologies=off)) == OWN
    chosen = own_rights(config)
    cleanup = right(Scope.TOPOLOGIES, Resource.GROUP, "Describe")
    assert chosen == (*OWN, cleanup)
    assert denied(probe(chosen, {"h.a": topic()})) == {}
    statuses = probe(chosen, {"h.a": topic()}, FakeBroker(codes={DescribeGroupsRequest: 30}))
    assert denied(statuses) == {("group", "Describe"): ()}
    [finding] = [one for one in judge(statuses, TOOLS, NAMES) if one.verdict is not FindingVerdict.OK]
    assert (finding.verdict, finding.subject) == (FindingVerdict.WARNING, "Describe on group *")
    assert "--operation Describe --group '*'" in str(finding.mend)


def test_the_rights_of_lags_are_checked_if_they_are_enabled() -> None:
    config = Config(topologies=TopologiesConfig(owner="broker"))
    chosen = own_rights(config)
    assert chosen == (*OWN, *rights_in(Scope.LAGS))
    assert denied(probe(chosen, {"h.a": topic()})) == {}
    statuses = probe(chosen, {"h.a": topic()}, FakeBroker(codes={DescribeGroupsRequest: 30, MetadataRequest: 29}))
    assert denied(statuses) == {("group", "Describe"): (), ("topic", "Describe"): ()}
    found = [one for one in judge(statuses, TOOLS, NAMES) if one.verdict is not FindingVerdict.OK]
    assert {(one.verdict, one.subject) for one in found} == {
        (FindingVerdict.WARNING, "Describe on group *"),
        (FindingVerdict.WARNING, "Describe on topic *"),
    }
    assert "committed offsets" in found[0].text
    assert "--operation Describe --topic '*'" in str(found[1].mend)


def test_triage_cannot_read_dead_letters_that_the_account_may_not_read() -> None:
    statuses = probe(FOR_DEAD_LETTERS, {"dlq.a": topic(EVERYTHING & ~READ), "dlq.b": topic()}, uses=USES)
    assert denied(statuses) == {("topic", "Read"): ("dlq.a",)}
    [finding] = [one for one in judge(statuses, TOOLS, NAMES) if one.verdict is not FindingVerdict.OK]
    assert finding.verdict is FindingVerdict.WARNING
    assert "affects dlq.a: needed to read dead letters; without it there is no triage" in finding.text


def test_while_no_group_has_a_dead_letter_topic_a_missing_right_is_a_warning() -> None:
    broker = FakeBroker(alter=frozenset({NO_SUCH_GROUP}), describe=frozenset({(32, NO_SUCH_GROUP), (2, "dlq.x")}))
    statuses = probe(FOR_DEAD_LETTERS, {"dlq.x": topic(0, error_code=3)}, broker)
    findings = [one for one in judge(statuses, TOOLS, NAMES) if one.verdict is not FindingVerdict.OK]
    assert {one.verdict for one in findings} == {FindingVerdict.WARNING}
    assert [one.subject for one in findings] == [
        *(f"{operation} on topic dlq.*" for operation in ("Describe", "Write", "DescribeConfigs")),
        *(f"{operation} on group *" for operation in ("DescribeConfigs", "AlterConfigs")),
        "Read on topic dlq.*",
    ]


def test_a_probe_without_a_usable_response_is_a_warning() -> None:
    no_operations = probe(OWN, {"h.a": topic(NOTHING_SAID, error_code=3)})
    assert isinstance(no_operations[right(Scope.ALWAYS, Resource.TOPIC, "Read")], Unknown)
    other_error = probe(FOR_DEAD_LETTERS, {"dlq.a": topic()}, FakeBroker(error=41), uses=USES)
    assert other_error[right(Scope.SHARE_GROUPS, Resource.GROUP, "AlterConfigs")] == Unknown("error 41")
    down = probe(FOR_DEAD_LETTERS, ClusterError("no response within 10 s"), FakeBroker(is_down=True), uses=USES)
    assert {one.verdict for one in judge(down, TOOLS, NAMES)} == {FindingVerdict.WARNING}


def test_writing_to_any_topic_implies_idempotent_writing() -> None:
    idempotent = right(Scope.ALWAYS, Resource.CLUSTER, "IdempotentWrite")
    assert probe(OWN, {"h.a": topic(WRITE), "h.b": topic(READ)}, cluster=0)[idempotent] == Granted()
    assert isinstance(probe(OWN, {"h.a": topic(READ)}, cluster=0)[idempotent], Denied)
    assert probe(OWN, {"h.a": topic(READ)}, cluster=1 << 12)[idempotent] == Granted()


def test_no_probe_can_change_anything() -> None:
    broker = FakeBroker()
    probe(OWN, {"h.a": topic()}, broker)
    probe(FOR_DEAD_LETTERS, {"dlq.a": topic(), "dlq.b": topic(error_code=3)}, broker, uses=USES)
    for request in broker.requests:
        match request:
            case CreateTopicsRequest(validate_only=validate_only):
                assert validate_only
            case IncrementalAlterConfigsRequest(validate_only=validate_only, resources=resources):
                assert validate_only
                assert all(one.configs == () for one in resources)
            case EndTxnRequest(producer_id=producer_id, committed=committed):
                assert (producer_id, committed) == (2**63 - 1, False)
            case HeartbeatRequest(generation_id=generation):
                assert generation == -1
            case other:
                assert isinstance(other, DescribeConfigsRequest | DescribeTransactionsRequest)


@pytest.mark.parametrize("missing", [*OWN, *FOR_DEAD_LETTERS], ids=lambda one: f"{one.resource}-{one.operation}")
def test_each_missing_right_is_reported_with_the_command_that_grants_it(missing: AclRight) -> None:
    (finding,) = judge({missing: Denied(("dlq.a",))}, TOOLS, NAMES)
    is_problem = missing.need != "advised"
    assert finding.verdict is (FindingVerdict.PROBLEM if is_problem else FindingVerdict.WARNING)
    assert f"needed to {missing.purpose}" in finding.text
    assert f"--add --allow-principal User:headgate --operation {missing.operation} --" in finding.mend


@pytest.mark.parametrize(
    ("missing", "names", "end"),
    [
        (("always", Resource.TOPIC, "Write"), (), ["--topic h. --resource-pattern-type prefixed"]),
        (("always", Resource.CLUSTER, "Describe"), (), ["--cluster"]),
        (("dlq", Resource.GROUP, "AlterConfigs"), ("one",), ["--group '*'"]),
        # A topic outside the prefix is granted by its name.
        (
            ("dlq", Resource.TOPIC, "Write"),
            ("old.a", "dlq.a"),
            ["--topic dlq. --resource-pattern-type prefixed", "--topic old.a"],
        ),
    ],
)
def test_a_grant_is_for_the_prefix_or_the_name(
    missing: tuple[str, Resource, str], names: tuple[str, ...], end: list[str]
) -> None:
    scope = Scope.ALWAYS if missing[0] == "always" else Scope.SHARE_GROUPS
    (finding,) = judge({right(scope, *missing[1:]): Denied(names)}, TOOLS, NAMES)
    commands = finding.mend.split(" && ")
    assert [command.endswith(wanted) for command, wanted in zip(commands, end, strict=True)] == [True] * len(end)


def test_rights_for_dead_letters_follow_the_configuration() -> None:
    def scopes(**settings: bool) -> set[Scope]:
        return {one.scope for one in share_group_rights(Config(share_groups=ShareGroupsConfig(**settings)))}  # type: ignore[arg-type]

    assert scopes(enable=False, dlq_auto_create=True) == set()
    assert scopes() == {Scope.SHARE_GROUPS, Scope.TRIAGE}
    assert scopes(dlq_auto_create=True) == set(SCOPES)


def test_a_principal_that_may_alter_the_cluster_is_a_warning() -> None:
    (finding,) = excess(1 << 7, TOOLS, anonymous=True)
    assert (finding.verdict, "every client" in finding.text) == (FindingVerdict.WARNING, True)
    assert not list(excess(DESCRIBE, TOOLS, anonymous=True))


def test_names_are_quoted_for_the_shell_and_long_ones_are_cut() -> None:
    tools = KafkaTools(bootstrap="b:9092", principal="User:it's me", secured=True)
    line = tools.allow(Resource.GROUP, ["Read"], "h.", is_prefix=True)
    assert "'User:it'\"'\"'s me'" in line
    assert "--command-config admin.properties" in line
    assert len(shown(["x" * 30_000] * 3)) < 400


def test_the_docs_show_exactly_this_table() -> None:
    rows = re.findall(r"^\| ([^|]+) \| (topic|group|transactional-id|cluster) \| (.+) \|$", DOC, re.MULTILINE)
    assert rows == [
        (one.scope.value, str(one.resource), f"{one.name.value} | {one.operation} | {one.need} | {one.purpose}")
        for one in RIGHTS
    ]


def test_the_docs_show_the_commands_that_grant_the_rights() -> None:
    tools = KafkaTools(bootstrap="broker-0.internal:9092", principal="User:headgate", secured=True)
    lines = re.findall(r"^kafka-acls.sh .*$", DOC, re.MULTILINE)
    assert lines == [line for scope in Scope for line in grant_commands(scope, tools, AclNames())]


# Dead-letter topics.


def state_of(**topic_of: str) -> ShareStates:
    states = ShareStates()
    for group, name in topic_of.items():
        states.apply(GroupConfigSet(group=group, name=DLQ_TOPIC, value=name, by="User:x", at=0))
    return states


def test_groups_are_those_that_are_selected_and_have_a_topic_now() -> None:
    states = state_of(one="dlq.a", two="dlq.b", other="dlq.b", gone="dlq.c")
    states.apply(GroupConfigUnset(group="gone", name=DLQ_TOPIC))
    assert uses_of(states, GroupPatterns(deny=("other",))) == USES


def test_no_more_than_a_hundred_topics_are_checked_and_that_is_a_warning() -> None:
    found = uses_of(state_of(**{f"g{at:03}": f"dlq.{at:03}" for at in range(MOST_TOPICS + 7)}), GroupPatterns())
    assert (len(found.topics), found.topics_left_out, found.groups_left_out) == (MOST_TOPICS, 7, 7)
    described = {name: MetadataTopic(name=name) for name in found.topics}
    assert [one.verdict for one in judge_dead_letter_topics(found, described, TOOLS, auto_create=False)] == [
        FindingVerdict.OK,
        FindingVerdict.WARNING,
    ]


OK, PROBLEM, WARNING = ("dead-letter topics", "ok"), ("dlq.b", "problem"), ("dlq.b", "warning")


@pytest.mark.parametrize(
    ("uses", "codes", "auto_create", "expected"),
    [
        (USES, {"dlq.a": 0, "dlq.b": 0}, False, [OK]),
        (USES, {"dlq.a": 0, "dlq.b": 3}, False, [OK, PROBLEM]),
        (USES, {"dlq.a": 0, "dlq.b": 3}, True, [OK, ("dlq.b", "ok")]),
        # A topic that may not be described is reported by its right.
        (USES, {"dlq.a": 29, "dlq.b": 17}, False, [WARNING]),
        (USES, {}, False, [("dlq.a", "warning"), WARNING]),
        (NO_USES, {}, False, [OK]),
    ],
)
def test_a_dead_letter_topic_that_does_not_exist_is_a_problem_unless_headgate_creates_it(
    uses: DeadLetterUses, codes: dict[str, int], auto_create: bool, expected: list[Key]
) -> None:
    described = {name: MetadataTopic(name=name, error_code=code) for name, code in codes.items()}
    findings = list(judge_dead_letter_topics(uses, described, TOOLS, auto_create=auto_create))
    assert [(one.subject, one.verdict.value) for one in findings] == expected
    for one in findings:
        if one.verdict is FindingVerdict.PROBLEM:
            assert one.mend == f"kafka-topics.sh --bootstrap-server b:9092 --create --topic {one.subject}"


def test_a_state_topic_that_cannot_be_read_is_given_up_at_the_timeout() -> None:
    began = time.monotonic()
    with pytest.raises(ClusterError, match=r"h\.state was not read to its end within 0\.3 s"):
        _read({"bootstrap.servers": f"127.0.0.1:{port_block()}"}, "h.state", 0.3)
    assert time.monotonic() - began < 10
