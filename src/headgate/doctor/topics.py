"""Headgate's own topics as they are, against what `facts/topics.py` says that they should be.

One rule: what exists is the operator's, so nothing is changed here. A difference that makes decisions or facts go
lost is a problem; one that only keeps less, or fewer replicas, is a warning; more is in order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headgate.config.model import Config
from headgate.doctor.broker import Broker
from headgate.doctor.commands import KafkaTools, Resource
from headgate.doctor.findings import Check, Finding, ok, problem, warning
from headgate.doctor.probing import TOPIC_AUTHORIZATION_FAILED, TOPIC_RESOURCE
from headgate.facts.topics import TopicSpec, topic_specs
from headgate.wire.messages.cluster import MetadataTopic
from headgate.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource

UNKNOWN_TOPIC = 3
_KEYS = ("cleanup.policy", "retention.ms", "max.message.bytes")
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A topic of the cluster; `configs` is None when they may not be read."""

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


def seen(topic: MetadataTopic, configs: Mapping[str, str] | None) -> Seen:
    return Seen(
        partitions=len(topic.partitions),
        replication=min((len(one.replica_nodes) for one in topic.partitions), default=0),
        leaderless=tuple(one.partition_index for one in topic.partitions if one.leader_id < 0),
        behind=tuple(one.partition_index for one in topic.partitions if len(one.isr_nodes) < len(one.replica_nodes)),
        configs=configs,
    )


async def read_configs(broker: Broker, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """The configs that matter, of those topics that exist and may be read."""
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
) -> list[Finding]:
    """A finding for each topic that is in order, one for each difference of those that are not."""
    specs = wanted(config, len(broker.nodes))
    there = [spec.name for spec in specs if spec.name in described and not described[spec.name].error_code]
    configs = await read_configs(broker, there) if there else {}
    findings: list[Finding] = []
    hidden: list[str] = []
    for spec in specs:
        topic = described.get(spec.name)
        if topic is not None and not topic.error_code:
            differences = list(compare(spec, seen(topic, configs.get(spec.name)), tuple(broker.nodes), tools))
            findings += differences or [ok(Check.TOPICS, spec.name, "is as it should be")]
        elif topic is not None and topic.error_code == TOPIC_AUTHORIZATION_FAILED:
            hidden.append(spec.name)
        else:
            findings.append(_absent(spec, topic, brokers=len(broker.nodes), tools=tools))
    if hidden:
        text = f"cannot be looked at: {tools.principal} may not describe {'it' if len(hidden) == 1 else 'them'}"
        mend = tools.allow(Resource.TOPIC, ["Describe"], config.facts.prefix)
        findings.append(warning(Check.TOPICS, ", ".join(hidden), text, mend=mend))
    return findings


def _absent(spec: TopicSpec, topic: MetadataTopic | None, *, brokers: int, tools: KafkaTools) -> Finding:
    if topic is None or topic.error_code != UNKNOWN_TOPIC:
        code = "no answer" if topic is None else f"error {topic.error_code}"
        text = f"cannot be looked at ({code})"
        return warning(Check.TOPICS, spec.name, text, mend=tools.describe_topic(spec.name))
    if spec.replication > brokers:
        text = f"is not there, and cannot be made with {spec.replication} replicas on {_number(brokers, 'broker')}"
        return problem(Check.TOPICS, spec.name, text, mend='facts.replication = "auto"')
    shape = f"{_number(spec.partitions, 'partition')}, {_number(spec.replication, 'replica')}"
    text = f"is not there yet: Headgate makes it with {shape}"
    return ok(Check.TOPICS, spec.name, text)


def compare(spec: TopicSpec, is_: Seen, nodes: Sequence[int], tools: KafkaTools) -> Iterator[Finding]:
    """What differs, each with the line that mends it."""
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
        text = f"has {has}, and {spec.replication} are wanted: a broker that fails takes facts along"
        topics_json = f'echo \'{{"version":1,"topics":[{{"topic":"{name}"}}]}}\' > topics.json'
        brokers = _list(nodes, comma=",")
        mend = f"{topics_json} && {tools.reassign(brokers)}   (then --execute with {spec.replication} replicas in each)"
        yield warning(Check.TOPICS, name, text, mend=mend)
    if is_.configs is None:
        text = f"its configs cannot be read by {tools.principal}"
        yield warning(
            Check.TOPICS, name, text, mend=f"see the right DescribeConfigs; then: {tools.describe_topic(name)}"
        )
    else:
        yield from _configs(spec, is_.configs, tools)


def _partitions(spec: TopicSpec, is_: Seen, tools: KafkaTools) -> Iterator[Finding]:
    if is_.partitions < spec.partitions:
        text = f"has {_number(is_.partitions, 'partition')}, and {spec.partitions} are wanted"
        yield warning(Check.TOPICS, spec.name, text, mend=tools.add_partitions(spec.name, spec.partitions))
    elif spec.partitions == 1 and is_.partitions > 1:
        text = (
            f"has {is_.partitions} partitions, and its order holds within one: readers see decisions in another order "
            "than they were made"
        )
        mend = f"{tools.delete_topic(spec.name)}   (with every gateway stopped: what it holds is lost)"
        yield problem(Check.TOPICS, spec.name, text, mend=mend)


def _configs(spec: TopicSpec, configs: Mapping[str, str], tools: KafkaTools) -> Iterator[Finding]:
    for key, value in spec.configs:
        actual = configs.get(key, "")
        mend = tools.set_topic_config(spec.name, key, value)
        match key:
            case "cleanup.policy" if set(actual.replace(" ", "").split(",")) != {value}:
                loss = "decisions expire" if value == "compact" else "it keeps only the last record of a key"
                yield problem(Check.TOPICS, spec.name, f"{key} is {actual!r}, not {value!r}: {loss}", mend=mend)
            case "retention.ms" if _shorter(actual, value):
                text = f"{key} is {_days(actual)}, less than the {_days(value)} that readers count on"
                yield warning(Check.TOPICS, spec.name, text, mend=mend)
            case "max.message.bytes" if not actual.isdecimal() or int(actual) < int(value):
                text = f"{key} is {actual}, and the largest description that may be pushed needs {value}"
                yield problem(Check.TOPICS, spec.name, text, mend=mend)
            case _:
                pass


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shorter(actual: str, wanted_: str) -> bool:
    """-1 is for ever."""
    return actual != "-1" and (not actual.isdecimal() or int(actual) < int(wanted_))


def _days(milliseconds: str) -> str:
    return f"{int(milliseconds) / _DAY_MS:.3g} days" if milliseconds.isdecimal() else repr(milliseconds)


def _list(numbers: Sequence[int], comma: str = ", ") -> str:
    return comma.join(map(str, sorted(numbers)))
