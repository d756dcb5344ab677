"""Checks topics: Headgate's own against `facts/topics.py`, and the dead-letter topics of share groups.

Existing topics belong to the operator, so nothing is changed here. A difference that loses decisions or facts is a
problem; one that only keeps less, or fewer replicas, is a warning; more is fine. Which groups have a dead-letter topic
is read from Headgate's own `state` topic, to its end or not at all.
"""

import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from headgate.base.errors import ClusterError
from headgate.base.threads import off_loop
from headgate.config.model import Config
from headgate.config.values import GroupPatterns
from headgate.doctor.brokers import Broker
from headgate.doctor.findings import Check, DoctorFinding, KafkaTools, Resource, ok, problem, warning
from headgate.doctor.probes import (
    TOPIC_RESOURCE,
    DeadLetterUses,
    RightProbes,
    describe_topics,
    unused_topic,
)
from headgate.doctor.rights import AclNames, judge, share_group_rights, shown
from headgate.facts import decode
from headgate.facts.topics import TopicSpec, topic_specs
from headgate.kafka.consumer_thread import next_batch, record_of
from headgate.kafka.topics import client_settings, quiet, reason
from headgate.share_groups.model.group_state import ShareGroupFact, ShareStates
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.cluster import MetadataTopic
from headgate.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource

MOST_TOPICS: Final = 100
MOST_GROUPS: Final = 100
STATE: Final = "state"
_OFFSETS: Final = "__consumer_offsets"  # brokers create it for the first group, and librdkafka would look for one
_AGAIN: Final = "run headgate doctor again; see the broker's log"
_KEYS = ("cleanup.policy", "retention.ms", "max.message.bytes", "min.insync.replicas")
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTopic:
    """A topic of the cluster; `configs` is None when the account may not read them."""

    partitions: int
    replication: int  # of the partition that has the fewest
    leaderless: tuple[int, ...]
    behind: tuple[int, ...]  # partitions with replicas that are not in sync
    configs: Mapping[str, str] | None


def wanted(config: Config, brokers: int) -> tuple[TopicSpec, ...]:
    return topic_specs(
        prefix=config.facts.prefix,
        brokers=brokers,
        max_bytes=config.topologies.max_bytes,
        replication=config.facts.replication,
    )


def seen(topic: MetadataTopic, configs: Mapping[str, str] | None) -> SeenTopic:
    return SeenTopic(
        partitions=len(topic.partitions),
        replication=min((len(one.replica_nodes) for one in topic.partitions), default=0),
        leaderless=tuple(one.partition_index for one in topic.partitions if one.leader_id < 0),
        behind=tuple(one.partition_index for one in topic.partitions if len(one.isr_nodes) < len(one.replica_nodes)),
        configs=configs,
    )


async def read_configs(broker: Broker, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """The relevant configs of those topics that exist and may be read."""
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=_KEYS)
            for name in names
        )
    )
    answer = await broker.call(request, 4)
    return {
        one.resource_name: {config.name: config.value or "" for config in one.configs}
        for one in answer.results
        if not one.error_code
    }


async def examine(
    broker: Broker, config: Config, described: Mapping[str, MetadataTopic], tools: KafkaTools
) -> list[DoctorFinding]:
    """A finding for each topic that is as it should be, and one for each difference of the others."""
    specs = wanted(config, len(broker.nodes))
    there = [spec.name for spec in specs if spec.name in described and not described[spec.name].error_code]
    configs = await read_configs(broker, there) if there else {}
    findings: list[DoctorFinding] = []
    hidden: list[str] = []
    for spec in specs:
        topic = described.get(spec.name)
        if topic is not None and not topic.error_code:
            differences = list(compare(spec, seen(topic, configs.get(spec.name)), tuple(broker.nodes), tools))
            findings += differences or [ok(Check.TOPICS, spec.name, "is as it should be")]
        elif topic is not None and topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            hidden.append(spec.name)
        else:
            findings.append(_absent(spec, topic, brokers=len(broker.nodes), tools=tools))
    if hidden:
        text = (
            f"cannot be checked: {tools.principal} is not authorized to describe {'it' if len(hidden) == 1 else 'them'}"
        )
        mend = tools.allow(Resource.TOPIC, ["Describe"], config.facts.prefix, is_prefix=True)
        findings.append(warning(Check.TOPICS, ", ".join(hidden), text, mend=mend))
    return findings


def _absent(spec: TopicSpec, topic: MetadataTopic | None, *, brokers: int, tools: KafkaTools) -> DoctorFinding:
    if topic is None or topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        code = "no response" if topic is None else f"error {topic.error_code}"
        text = f"cannot be checked ({code})"
        return warning(Check.TOPICS, spec.name, text, mend=tools.describe_topic(spec.name))
    if spec.replication > brokers:
        text = f"does not exist, and cannot be created with {spec.replication} replicas on {_number(brokers, 'broker')}"
        return problem(Check.TOPICS, spec.name, text, mend='facts.replication = "auto"')
    shape = f"{_number(spec.partitions, 'partition')}, {_number(spec.replication, 'replica')}"
    text = f"does not exist yet: Headgate creates it with {shape}"
    return ok(Check.TOPICS, spec.name, text)


def compare(spec: TopicSpec, is_: SeenTopic, nodes: Sequence[int], tools: KafkaTools) -> Iterator[DoctorFinding]:
    """The differences, each with the command that corrects it."""
    name = spec.name
    yield from _partitions(spec, is_, tools)
    if is_.leaderless:
        text = f"has no leader for partition {_list(is_.leaderless)}: nothing can be written there"
        yield problem(Check.TOPICS, name, text, mend=f"start the brokers that hold it: {tools.describe_topic(name)}")
    elif is_.behind:
        text = f"has replicas that are not in sync, of partition {_list(is_.behind)}"
        yield warning(Check.TOPICS, name, text, mend=f"look at the brokers that lag: {tools.describe_topic(name)}")
    if is_.replication < min(spec.replication, len(nodes)):
        has = _number(is_.replication, "replica")
        text = f"has {has}, and should have {spec.replication}: facts are lost with a broker"
        topics_json = f'echo \'{{"version":1,"topics":[{{"topic":"{name}"}}]}}\' > topics.json'
        brokers = _list(nodes, comma=",")
        mend = f"{topics_json} && {tools.reassign(brokers)}   (then --execute with {spec.replication} replicas in each)"
        yield warning(Check.TOPICS, name, text, mend=mend)
    if is_.configs is None:
        text = f"{tools.principal} is not authorized to read its configs"
        yield warning(
            Check.TOPICS, name, text, mend=f"grant DescribeConfigs (see above); then: {tools.describe_topic(name)}"
        )
    else:
        yield from _configs(spec, is_, is_.configs, tools)


def _partitions(spec: TopicSpec, is_: SeenTopic, tools: KafkaTools) -> Iterator[DoctorFinding]:
    if is_.partitions < spec.partitions:
        text = f"has {_number(is_.partitions, 'partition')}, and should have {spec.partitions}"
        yield warning(Check.TOPICS, spec.name, text, mend=tools.add_partitions(spec.name, spec.partitions))
    elif spec.partitions == 1 and is_.partitions > 1:
        text = (
            f"has {is_.partitions} partitions, and order holds only within one: readers see decisions in another order "
            "than they were made"
        )
        mend = f"{tools.delete_topic(spec.name)}   (with every gateway stopped: its records are lost)"
        yield problem(Check.TOPICS, spec.name, text, mend=mend)


def _configs(spec: TopicSpec, is_: SeenTopic, configs: Mapping[str, str], tools: KafkaTools) -> Iterator[DoctorFinding]:
    for key, value in spec.configs:
        actual = configs.get(key, "")
        mend = tools.set_topic_config(spec.name, key, value)
        match key:
            case "cleanup.policy" if set(actual.replace(" ", "").split(",")) != {value}:
                loss = "decisions expire" if value == "compact" else "it keeps only the last record of a key"
                yield problem(Check.TOPICS, spec.name, f"{key} is {actual!r}, not {value!r}: {loss}", mend=mend)
            case "retention.ms" if _shorter(actual, value):
                text = f"{key} is {_days(actual)}, less than the {_days(value)} that readers expect"
                yield warning(Check.TOPICS, spec.name, text, mend=mend)
            case "max.message.bytes" if not actual.isdecimal() or int(actual) < int(value):
                text = f"{key} is {actual}, and its largest record needs {value}"
                yield problem(Check.TOPICS, spec.name, text, mend=mend)
            case "min.insync.replicas" if is_.replication > int(value) and _lower(actual, value):
                text = (
                    f"{key} is {actual}, not {value}: a record that one replica alone has is confirmed, and lost with "
                    "that broker"
                )
                yield warning(Check.TOPICS, spec.name, text, mend=mend)
            case _:
                pass


def _lower(actual: str, wanted_: str) -> bool:
    return actual.isdecimal() and int(actual) < int(wanted_)


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shorter(actual: str, wanted_: str) -> bool:
    """-1 is forever."""
    return actual != "-1" and (not actual.isdecimal() or int(actual) < int(wanted_))


def _days(milliseconds: str) -> str:
    return f"{int(milliseconds) / _DAY_MS:.3g} days" if milliseconds.isdecimal() else repr(milliseconds)


def _list(numbers: Sequence[int], comma: str = ", ") -> str:
    return comma.join(map(str, sorted(numbers)))


# Dead letters.


async def examine_dead_letters(
    broker: Broker, config: Config, tools: KafkaTools, *, deadline_s: float
) -> AsyncIterator[DoctorFinding]:
    """Check the rights for dead letters one by one, then the topics of groups."""
    share = config.share_groups
    state = config.facts.prefix + STATE
    names = AclNames(facts_prefix=config.facts.prefix, dlq_prefix=share.dlq_prefix)
    uses: DeadLetterUses | None = None
    unknown = "it is not known which groups have a dead-letter topic"
    try:
        uses = await _known_uses(broker, config, state, deadline_s)
    except PermissionError:
        mend = tools.allow(Resource.TOPIC, ["Read"], config.facts.prefix, is_prefix=True)
        text = f"{tools.principal} is not authorized to read it, so {unknown}"
        yield warning(Check.SHARE_GROUPS, state, text, mend=mend)
    except ClusterError as failure:
        yield warning(Check.SHARE_GROUPS, state, f"{unknown}: {failure}", mend=_AGAIN)
    probed = uses or DeadLetterUses()
    topics: Mapping[str, MetadataTopic] | ClusterError
    try:
        # The next group chooses a topic that none has yet.
        topics = await describe_topics(broker, (*probed.topics, unused_topic(share.dlq_prefix)))
    except ClusterError as failure:
        topics = failure
    probes = RightProbes(broker=broker, names=names, topics=topics, uses=probed)
    statuses = await probes.probe_all(share_group_rights(config))
    for finding in judge(statuses, tools, names, uses_are_known=uses is not None):
        yield finding
    if uses is not None and not isinstance(topics, ClusterError):
        for finding in judge_dead_letter_topics(uses, topics, tools, auto_create=share.dlq_auto_create):
            yield finding


def uses_of(states: ShareStates, selected: GroupPatterns) -> DeadLetterUses:
    """The dead-letter topics of the groups that `[share_groups] groups` selects."""
    found: dict[str, list[str]] = {}
    for group in sorted(states.groups()):
        topic = states.of(group).settings.dlq_topic
        if topic is not None and selected.matches(group):
            found.setdefault(topic, []).append(group)
    groups = sorted(group for each in found.values() for group in each)
    return DeadLetterUses(
        topics={topic: tuple(found[topic]) for topic in sorted(found)[:MOST_TOPICS]},
        groups=tuple(groups[:MOST_GROUPS]),
        topics_left_out=max(0, len(found) - MOST_TOPICS),
        groups_left_out=max(0, len(groups) - MOST_GROUPS),
    )


def judge_dead_letter_topics(
    uses: DeadLetterUses, described: Mapping[str, MetadataTopic], tools: KafkaTools, *, auto_create: bool
) -> Iterator[DoctorFinding]:
    """One finding for all that exist, and one for each that does not; those that may not be described are left out."""
    there = [topic for topic in uses.topics if topic in described and not described[topic].error_code]
    if there:
        verb = "exists" if len(there) == 1 else "exist"
        yield ok(Check.SHARE_GROUPS, "dead-letter topics", f"{shown(there)} {verb}")
    elif not uses.topics:
        yield ok(Check.SHARE_GROUPS, "dead-letter topics", "no group has one yet")
    for topic, groups in uses.topics.items():
        found = described.get(topic)
        code = None if found is None else found.error_code
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and auto_create:
            yield ok(Check.SHARE_GROUPS, topic, "does not exist yet: Headgate creates it for the first dead letter")
        elif code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            text = (
                f"does not exist, and share_groups.dlq_auto_create is off: rejected records of {shown(groups)} are "
                "archived without a dead letter"
            )
            yield problem(Check.SHARE_GROUPS, topic, text, mend=tools.create_topic(topic))
        elif code not in {0, ErrorCode.TOPIC_AUTHORIZATION_FAILED}:
            text = f"cannot be checked ({'no response' if code is None else f'error {code}'})"
            yield warning(Check.SHARE_GROUPS, topic, text, mend=tools.describe_topic(topic))
    if uses.topics_left_out or uses.groups_left_out:
        text = (
            f"{uses.topics_left_out} topics and {uses.groups_left_out} groups beyond the first {MOST_TOPICS} of each "
            "were not checked"
        )
        mend = "list all of them with: headgate share-groups --bootstrap-server GATEWAY --describe --dlq-topology"
        yield warning(Check.SHARE_GROUPS, "dead-letter topics", text, mend=mend)


async def _known_uses(broker: Broker, config: Config, state: str, deadline_s: float) -> DeadLetterUses:
    """`PermissionError` when the topic may not be read, `ClusterError` when it is not read in time."""
    found = await describe_topics(broker, [state, _OFFSETS])
    topic = found.get(state)
    if any(one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in found.values()):
        return DeadLetterUses()  # Headgate has not run here yet, or there never was a group
    if topic is not None and topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise PermissionError(state)
    settings = client_settings(config.upstream)
    states = await off_loop(lambda: _read(settings, state, deadline_s))
    return uses_of(states, config.share_groups.groups)


def _read(settings: Mapping[str, Any], state: str, deadline_s: float) -> ShareStates:
    """Read the topic to its end, on a thread. No group is joined, no offset committed."""
    until = time.monotonic() + deadline_s
    problem = "no response"
    states = ShareStates()
    reading = quiet(
        settings,
        group__id="headgate",  # never joined: the partition is assigned by hand
        enable__auto__commit=False,
        enable__partition__eof=True,
        auto__offset__reset="error",
        isolation__level="read_uncommitted",
        allow__auto__create__topics=False,
    )
    try:
        consumer = Consumer(reading)
    except KafkaException as failure:
        raise ClusterError(f"{state} cannot be read: {reason(failure)}") from None
    try:
        place = TopicPartition(state, 0, OFFSET_BEGINNING)
        consumer.assign([place])
        end = -1  # when the first record came: librdkafka does not report the end of a topic that is written now
        while time.monotonic() < until:
            for message in next_batch(consumer):
                error = message.error()
                if error is None:
                    record = record_of(message)
                    fact = decode(STATE, record.key, record.value)
                    if isinstance(fact, ShareGroupFact):
                        states.apply(fact)
                    if end < 0:
                        _, end = consumer.get_watermark_offsets(place, cached=True)
                    if 0 <= end <= record.offset + 1:
                        return states
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes begin so
                    return states
                elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise PermissionError(state)
                else:
                    problem = reason(error)
    except KafkaException as failure:
        raise ClusterError(f"{state} cannot be read: {reason(failure)}") from None
    finally:
        consumer.close()
    raise ClusterError(f"{state} was not read to its end within {deadline_s:g} s ({problem})")
