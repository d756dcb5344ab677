"""`headgate share-groups` from the outside: flags, texts, JSON and exit codes, against scripted servers."""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headgate.base.errors import ClusterError
from headgate.cli import main as cli
from headgate.cli import share_groups as command
from headgate.cli.cluster_calls import Outcome
from headgate.share_groups.admin import DescribedBreaker, DlqTopic, DlqTopology, ParkedDeadLetters, StatusSource
from headgate.share_groups.model.breaker import STATUS_TAG, BreakerStatus, decode_status
from headgate.share_groups.model.group_configs import (
    DLQ_TOPIC,
    MAX_REASON_CHARACTERS,
    OWN,
    PARKED,
)
from headgate.wire.messages.configs import (
    AlterConfigsResourceResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesResponse,
)
from headgate.wire.messages.groups import ListedGroup, ListGroupsResponse
from headgate.wire.messages.share import DescribedShareGroup, ShareGroupDescribeResponse
from headgate.wire.schema import Message
from tests.support.fake_upstream import BROKER_VERSIONS
from tests.support.scripted_cluster import ScriptedCluster

LIST_GROUPS, DESCRIBE_CONFIGS, ALTER, LIST_RESOURCES, DESCRIBE = 16, 32, 44, 74, 77
GROUP, SET_FOR_IT, DEFAULT = 32, 8, 5
GROUP_ID_NOT_FOUND, GROUP_AUTHORIZATION_FAILED = 69, 30
LIMIT = "share.delivery.count.limit"

Capture = pytest.CaptureFixture[str]
Answer = Callable[[int, Message], Message | None]

TRIPPED: dict[str, Any] = {
    "group": "sg",
    "enabled": True,
    "paused": True,
    "pause_reasons": [
        {"code": "DLQ_CIRCUIT_BREAKER_TRIPPED", "text": "25 of 100", "by": "headgate", "since": 1794731901727},
        {"code": "OPERATOR", "text": "deploy\x1b[2J", "by": "User:ops", "since": 1794731902000},
    ],
    "phase": None,
    "generation": 4,
    "window_ms": 60000,
    "delivered": 75,
    "dlq_written": 25,
    "dlq_rate": 0.25,
    "threshold_percent": 20,
    "min_messages": 100,
    "auto_resume_at": 1794732201727,
    "last_resume": {"reason": "mended", "by": "User:ops", "at": 1794731801727},
    "dlq_topic": "dlq.o",
    "limit": 5,
    "limit_unprotected": False,
    "spooled": 12,
    "oldest_spooled_at": 1794731701727,
}
STATUS = decode_status("sg", json.dumps(TRIPPED).encode()) or BreakerStatus(group="")


def test_a_status_without_configs_is_explained() -> None:
    hidden = DescribedBreaker(status=STATUS.without_configs(), source=StatusSource.GATEWAY)
    row = command.breaker_text(hidden.status).splitlines()[1].split()
    assert row[:3] == ["sg", "-", "yes"]
    assert command.breaker_note(hidden) == (
        "configs of share group 'sg' are not shown: they require DESCRIBE_CONFIGS on the group"
    )
    assert command.breaker_note(DescribedBreaker(status=STATUS, source=StatusSource.GATEWAY)) is None


# --- flags


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--describe", "--group", "g"], "--describe needs --circuit-breaker or --dlq-topology"),
        (["--describe", "--circuit-breaker"], "specify exactly one --group"),
        (["--describe", "--circuit-breaker", "--group", ""], "specify exactly one --group"),
        (["--describe", "--circuit-breaker", "--group", "a", "--group", "b"], "specify exactly one --group"),
        (
            ["--describe", "--circuit-breaker", "--group", "a", "--reason", "r"],
            "--reason applies to --pause and --resume only",
        ),
        (["--describe", "--dlq-topology", "--group", "a"], "omit --group"),
        (["--pause", "--group", "a"], "--pause needs a --reason"),
        (["--resume", "--group", "a", "--reason", " "], "--resume needs a --reason"),
        (["--resume", "--group", "a", "--reason", "x" * (MAX_REASON_CHARACTERS + 1)], "--reason has more than"),
        (["--resume", "--reason", "r"], "specify exactly one --group"),
        (["--pause", "--group", "a", "--reason", "r", "--circuit-breaker"], "apply to --describe only"),
        (["--describe", "--dlq-topology", "--timeout", "0"], "--timeout must be from 1"),
    ],
)
def test_flags_that_do_not_go_together_are_wrong_usage(arguments: list[str], words: str, capsys: Capture) -> None:
    assert cli.main(["share-groups", "--bootstrap-server", "127.0.0.1:1", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err


def test_a_server_that_is_not_there_is_one_sentence(capsys: Capture) -> None:
    assert cli.main(["share-groups", "--bootstrap-server", "127.0.0.1:1", "--describe", "--dlq-topology"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("headgate: no connection to 127.0.0.1:1: ")


# --- texts


def test_a_tripped_breaker_is_a_table_its_reasons_and_what_comes_next() -> None:
    shown = command.breaker_text(STATUS)
    assert shown.splitlines() == [
        (
            "GROUP           ENABLED PAUSED GENERATION DELIVERED DLQ-WRITTEN DLQ-RATE THRESHOLD MIN-MESSAGES WINDOW-MS "
            "LIMIT DLQ-TOPIC"
        ),
        (
            "sg              yes     yes    4          75        25          25.00%   20%       100          60000     "
            "5     dlq.o"
        ),
        "",
        "PAUSE-REASON                SINCE                         BY       TEXT",
        "DLQ_CIRCUIT_BREAKER_TRIPPED 2026-11-15T08:38:21.727+00:00 headgate 25 of 100",
        "OPERATOR                    2026-11-15T08:38:22.000+00:00 User:ops deploy\\x1b[2J",
        "",
        "Dead letters in the spool: 12, the oldest since 2026-11-15T08:35:01.727+00:00.",
        "",
        "Resumes automatically at 2026-11-15T08:43:21.727+00:00.",
        "",
        "Last resumed by User:ops at 2026-11-15T08:36:41.727+00:00: mended",
    ]


def test_a_limit_without_slack_says_so() -> None:
    assert "5 (unprotected) dlq.o" in command.breaker_text(replace(STATUS, limit_unprotected=True))


def test_a_status_without_values_is_shown_with_dashes() -> None:
    status = decode_status("sg", b'{"pause_reasons": [1], "auto_resume_at": 1000000000000000000000}')
    assert status is not None
    shown = command.breaker_text(status).splitlines()
    assert shown[1].split() == ["sg", *["-"] * 11]
    assert shown[4].split() == ["-", "-", "-", "1"]


def test_dead_letter_topics_are_a_table() -> None:
    topology = DlqTopology(
        topics=(
            DlqTopic(topic="dlq.a", groups=("sg",), has_strict=True),
            DlqTopic(topic="dlq.both", groups=("s\n1", "s2"), has_strict=True),
            DlqTopic(topic="dlq.loose", groups=("s3", "s4"), has_strict=False),
        )
    )
    assert command.topology_text(topology).splitlines() == [
        "DLQ-TOPIC       SHARED CONFLICT GROUPS",
        "dlq.a           no     no       sg",
        "dlq.both        yes    yes      s\\n1, s2",
        "dlq.loose       yes    no       s3, s4",
    ]
    assert command.topology_json(topology)["dlq_topics"][1] == {
        "topic": "dlq.both",
        "groups": ["s\n1", "s2"],
        "shared": True,
        "conflict": True,
        "parked": [],
    }
    assert command.topology_text(DlqTopology(topics=())) == "No share group has a dead-letter topic.\n"


def test_parked_dead_letters_are_lines_below_the_table() -> None:
    parked = (ParkedDeadLetters(group="s\n1", reason="too large", number=3),)
    topology = DlqTopology(topics=(DlqTopic(topic="dlq.old", groups=(), has_strict=False, parked=parked),))
    assert command.topology_text(topology).splitlines()[1:] == [
        "dlq.old         no     no       -",
        "",
        "dlq.old: 3 dead letters of share group 's\\n1' are parked in the spool: too large",
    ]
    assert command.topology_json(topology)["dlq_topics"][0]["parked"] == [
        {"group": "s\n1", "reason": "too large", "number": 3}
    ]


# --- against a server


class Gateway:
    """What a gateway holds, and how it answers; `has_headgate` False is a plain broker."""

    def __init__(self, *, has_headgate: bool = True) -> None:
        self.has_headgate = has_headgate
        self.field: bytes | None = None
        self.error = (0, "")
        self.values: dict[str, dict[str, str]] = {}
        self.shares: tuple[str, ...] = ()
        self.hidden: set[str] = set()
        self.listing_error = 0
        self.altered: list[tuple[str, str | None]] = []
        self.refusal = (0, "")
        self.parked = "{}"

    def answers(self) -> dict[int, Answer]:
        return {
            DESCRIBE: self._described,
            DESCRIBE_CONFIGS: self._configs,
            ALTER: self._alter,
            LIST_GROUPS: self._groups,
            LIST_RESOURCES: self._resources,
        }

    def _described(self, _node: int, _request: Message) -> Message:
        code, words = self.error
        tags = () if self.field is None else ((STATUS_TAG, self.field),)
        group = DescribedShareGroup(group_id="sg", error_code=code, error_message=words or None, unknown_tags=tags)
        return ShareGroupDescribeResponse(groups=(group,))

    def _configs(self, _node: int, request: Message) -> Message:
        assert isinstance(request, DescribeConfigsRequest)
        results = []
        for one in request.resources:
            if one.resource_name in self.hidden:
                results.append(
                    DescribeConfigsResult(
                        error_code=GROUP_AUTHORIZATION_FAILED, resource_type=GROUP, resource_name=one.resource_name
                    )
                )
                continue
            values = self.values.get(one.resource_name, {})
            names = [LIMIT, *(OWN if self.has_headgate else ())]
            wanted = [name for name in names if one.configuration_keys is None or name in one.configuration_keys]
            configs = tuple(
                DescribedConfig(
                    name=name,
                    value=values.get(name, "5" if name == LIMIT else OWN[name].default),
                    config_source=SET_FOR_IT if name in values else DEFAULT,
                )
                for name in wanted
            )
            if self.has_headgate and PARKED in (one.configuration_keys or ()):
                configs = (*configs, DescribedConfig(name=PARKED, value=self.parked, config_source=DEFAULT))
            results.append(DescribeConfigsResult(resource_type=GROUP, resource_name=one.resource_name, configs=configs))
        return DescribeConfigsResponse(results=tuple(results))

    def _alter(self, _node: int, request: Message) -> Message:
        assert isinstance(request, IncrementalAlterConfigsRequest)
        [resource] = request.resources
        self.altered += [(one.name, one.value) for one in resource.configs]
        code, words = self.refusal
        said = AlterConfigsResourceResponse(
            error_code=code, error_message=words or None, resource_type=GROUP, resource_name=resource.resource_name
        )
        return IncrementalAlterConfigsResponse(responses=(said,))

    def _groups(self, _node: int, _request: Message) -> Message:
        groups = (ListedGroup(group_id=name, group_type="share", group_state="Stable") for name in self.shares)
        return ListGroupsResponse(groups=tuple(groups))

    def _resources(self, _node: int, _request: Message) -> Message:
        found = tuple(ConfigResource(resource_name=name, resource_type=GROUP) for name in self.values)
        return ListConfigResourcesResponse(error_code=self.listing_error, config_resources=found)


def parsed(*arguments: str) -> argparse.Namespace:
    return cli.parse_arguments(["share-groups", "--bootstrap-server", "127.0.0.1:1", *arguments])


async def outcome_of(gateway: Gateway, *arguments: str, versions: Any = BROKER_VERSIONS) -> Outcome:
    async with ScriptedCluster(gateway.answers(), versions=versions) as cluster:
        return await command._answer(parsed(*arguments), cluster.dialler(timeout_s=2.0))


BREAKER = ("--describe", "--circuit-breaker", "--group", "sg")
TOPOLOGY = ("--describe", "--dlq-topology")


async def test_the_json_is_the_tagged_field_with_keys_of_a_newer_gateway() -> None:
    gateway = Gateway()
    newer = TRIPPED | {"added": 1, "pause_reasons": [TRIPPED["pause_reasons"][0] | {"until": 2}]}
    gateway.field = json.dumps(newer).encode()
    assert (await outcome_of(gateway, *BREAKER)).document == newer
    paused = await outcome_of(gateway, "--pause", "--group", "sg", "--reason", "deploy")
    assert paused.document["remaining_reasons"] == newer["pause_reasons"]


async def test_a_field_that_is_not_an_object_is_an_error() -> None:
    gateway = Gateway()
    gateway.field = b"[]"
    with pytest.raises(ClusterError, match="is not a JSON object"):
        await outcome_of(gateway, *BREAKER)


async def test_a_group_with_nothing_of_ours_is_neither_counted_nor_paused() -> None:
    outcome = await outcome_of(Gateway(), *BREAKER)
    assert (outcome.document["enabled"], outcome.document["paused"], outcome.document["pause_reasons"]) == (
        False,
        False,
        [],
    )
    assert outcome.note is not None
    assert "none of Headgate's configs" in outcome.note


async def test_a_describe_that_is_refused_is_an_error() -> None:
    gateway = Gateway()
    gateway.error = (GROUP_AUTHORIZATION_FAILED, "")
    with pytest.raises(ClusterError, match="Group authorization failed"):
        await outcome_of(gateway, *BREAKER)


async def test_a_broker_that_is_too_old_is_an_error() -> None:
    versions = {key: span for key, span in BROKER_VERSIONS.items() if key != DESCRIBE}
    with pytest.raises(ClusterError, match="does not support share groups"):
        await outcome_of(Gateway(), *BREAKER, versions=versions)


async def test_a_resume_waits_until_it_is_seen() -> None:
    gateway = Gateway()
    looks = iter([TRIPPED, TRIPPED, TRIPPED | {"paused": False, "pause_reasons": []}])
    answers = gateway.answers()

    def described(node: int, request: Message) -> Message | None:
        gateway.field = json.dumps(next(looks)).encode()
        return gateway.answers()[DESCRIBE](node, request)

    async with ScriptedCluster(answers | {DESCRIBE: described}) as cluster:
        args = parsed("--resume", "--group", "sg", "--reason", "mended")
        outcome = await command._answer(args, cluster.dialler())
    assert gateway.altered == [("headgate.resume", "mended")]
    assert outcome.document == {"group": "sg", "paused": False, "reason": "mended", "remaining_reasons": []}
    assert outcome.text == "Share group 'sg' is resumed.\n"


async def test_a_resume_that_is_not_seen_says_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_SETTLED_S", 0.0)
    gateway = Gateway()
    gateway.field = json.dumps(TRIPPED).encode()
    outcome = await outcome_of(gateway, "--resume", "--group", "sg", "--reason", "mended")
    assert outcome.document["paused"] is True
    assert outcome.text.startswith("Share group 'sg' is still paused.\n")


async def test_a_pause_without_the_right_is_refused_in_kafkas_words() -> None:
    gateway = Gateway()
    gateway.refusal = (GROUP_AUTHORIZATION_FAILED, "")
    with pytest.raises(ClusterError, match=r"'sg': Group authorization failed\.$"):
        await outcome_of(gateway, "--pause", "--group", "sg", "--reason", "r")


async def test_gaps_of_the_topology_are_reported() -> None:
    gateway = Gateway()
    gateway.shares = ("a", "b")
    gateway.values = {"a": {DLQ_TOPIC: "dlq.x"}, "c": {DLQ_TOPIC: "dlq.y"}}
    gateway.hidden = {"b"}
    gateway.listing_error = 31
    outcome = await outcome_of(gateway, *TOPOLOGY)
    assert [one["topic"] for one in outcome.document["dlq_topics"]] == ["dlq.x"]
    assert outcome.note == (
        "groups without members are missing: Cluster authorization failed.; "
        "1 groups are missing: DESCRIBE_CONFIGS on them is denied"
    )


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ('{"dlq.old":{"too large":3}}', [{"group": "a", "reason": "too large", "number": 3}]),
        ('{"dlq.old":{"too large":"3"}}', None),
        ("[1]", None),
        ("{", None),
        ("[" * 10_000, None),
    ],
)
async def test_parked_dead_letters_are_listed_also_for_a_topic_without_groups(
    value: str, found: list[dict[str, object]] | None
) -> None:
    gateway = Gateway()
    gateway.values = {"a": {DLQ_TOPIC: "dlq.x"}}
    gateway.parked = value
    topics = {one["topic"]: one["parked"] for one in (await outcome_of(gateway, *TOPOLOGY)).document["dlq_topics"]}
    assert topics == ({"dlq.x": []} if found is None else {"dlq.x": [], "dlq.old": found})


async def test_a_cluster_without_share_groups_has_no_dead_letter_topics() -> None:
    outcome = await outcome_of(Gateway(), *TOPOLOGY)
    assert (outcome.document, outcome.exit_code) == ({"dlq_topics": []}, 0)


async def test_a_change_whose_result_cannot_be_read_is_reported_as_applied() -> None:
    gateway = Gateway()
    gateway.error = (GROUP_ID_NOT_FOUND, "Group sg not found.")
    outcome = await outcome_of(gateway, "--pause", "--group", "sg", "--reason", "r")
    reasons = [{"code": "OPERATOR", "text": "r", "by": None, "since": None}]
    assert outcome.document == {"group": "sg", "paused": True, "reason": "r", "remaining_reasons": reasons}
    assert outcome.note is not None
    assert outcome.note.startswith("change applied, but the new status could not be read: share group 'sg'")
