"""Asking, as the service account, what dead letters need: which groups have them, and what the account may.

One rule: as in `probing`, no probe has an effect: configs are read, or altered by nothing and only validated. Which
groups have a dead-letter topic is read from Headgate's own `state`, to its end or not at all.
"""

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from headgate.base.errors import ClusterError
from headgate.base.threads import off_loop
from headgate.config.model import Config
from headgate.doctor import dead_letters
from headgate.doctor.broker import Broker
from headgate.doctor.commands import KafkaTools, Resource
from headgate.doctor.dead_letters import NOBODY, Uses
from headgate.doctor.findings import Check, Finding, warning
from headgate.doctor.probing import (
    BITS,
    GROUP_AUTHORIZATION_FAILED,
    TOPIC_AUTHORIZATION_FAILED,
    described,
    may_create,
    may_describe_configs,
    of_topics,
)
from headgate.doctor.rights import Answer, Granted, Refused, Right, Unknown
from headgate.doctor.topics import UNKNOWN_TOPIC
from headgate.facts import decode
from headgate.kafka.consumer_thread import next_batch, record_of
from headgate.kafka.topics import client_settings, quiet, reason
from headgate.share_groups.config_client import BROKER, GROUP, NOBODYS_GROUP
from headgate.share_groups.model.group_state import ShareGroupFact, ShareStates
from headgate.wire.messages.cluster import MetadataTopic
from headgate.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

STATE: Final = "state"
_OFFSETS: Final = "__consumer_offsets"  # brokers make it when somebody looks for a group, as librdkafka does
_CLUSTER_AUTHORIZATION_FAILED: Final = 31
_EVERY_BROKER: Final = ""  # the default of all brokers: any of them answers for it
_A_KEY: Final = ("x",)  # of which there is none, so the answer is small


async def examine(broker: Broker, config: Config, tools: KafkaTools, *, deadline_s: float) -> AsyncIterator[Finding]:
    """The rights one by one, then the topics that groups have."""
    share = config.share_groups
    state = config.facts.prefix + STATE
    uses: Uses | None = None
    try:
        uses = await _known_uses(broker, config, state, deadline_s)
    except PermissionError:
        text = f"{tools.principal} may not read it, so nobody knows which groups have a dead-letter topic"
        mend = tools.allow(Resource.TOPIC, ["Read"], config.facts.prefix)
        yield warning(Check.SHARE_GROUPS, state, text, mend=mend)
    except ClusterError as failure:
        text = f"nobody knows which groups have a dead-letter topic: {failure}"
        mend = "run headgate doctor again; look into the broker's log"
        yield warning(Check.SHARE_GROUPS, state, text, mend=mend)
    probed = uses or NOBODY
    topics: Mapping[str, MetadataTopic] | ClusterError
    try:
        # The next group chooses a topic that none has yet.
        topics = await described(broker, (*probed.topics, _stand_in(share.dlq_prefix)))
    except ClusterError as failure:
        topics = failure
    asked = dead_letters.needed_rights(auto_create=share.dlq_auto_create)
    answers = await ask_all(broker, asked, topics, probed, share.dlq_prefix)
    for finding in dead_letters.judge(answers, uses, tools, share.dlq_prefix):
        yield finding
    if uses is not None and not isinstance(topics, ClusterError):
        for finding in dead_letters.judge_topics(uses, topics, tools, auto_create=share.dlq_auto_create):
            yield finding


async def ask_all(
    broker: Broker,
    rights: Iterable[Right],
    topics: Mapping[str, MetadataTopic] | ClusterError,
    uses: Uses,
    dlq_prefix: str,
) -> dict[Right, Answer]:
    """An answer for each of them; a refusal names what is hit by it now."""
    answers: dict[Right, Answer] = {}
    for right in rights:
        try:
            if right.resource is not Resource.TOPIC:
                answers[right] = await _ask(broker, right, uses)
            elif isinstance(topics, ClusterError):
                answers[right] = Unknown(str(topics))
            else:
                answers[right] = await _ask_topics(broker, right.operation, topics, uses, dlq_prefix)
        except ClusterError as failure:
            answers[right] = Unknown(str(failure))
    return answers


async def _ask_topics(
    broker: Broker, operation: str, topics: Mapping[str, MetadataTopic], uses: Uses, dlq_prefix: str
) -> Answer:
    match operation:
        case "Create":
            # What is there need not be created; but the next group may choose a topic that is not.
            absent = {name: topic for name, topic in topics.items() if topic.error_code == UNKNOWN_TOPIC}
            topics = absent or {_stand_in(dlq_prefix): MetadataTopic()}
            answer = await may_create(broker, topics)
        case "DescribeConfigs":
            answer = await may_describe_configs(broker, topics)
        case _:
            answer = of_topics(topics, BITS[operation])
    if isinstance(answer, Refused):
        return Refused(tuple(name for name in answer.names or topics if name in uses.topics))
    return answer


async def _ask(broker: Broker, right: Right, uses: Uses) -> Answer:
    match right.resource, right.operation:
        case Resource.GROUP, "AlterConfigs":
            codes = await _alter_nothing(broker, (NOBODYS_GROUP, *uses.groups))
            refusal, needed_by_all = GROUP_AUTHORIZATION_FAILED, None
        case Resource.GROUP, _:
            codes = await _read_configs(broker, GROUP, (NOBODYS_GROUP, *uses.groups))
            refusal, needed_by_all = GROUP_AUTHORIZATION_FAILED, NOBODYS_GROUP
        case _:
            codes = await _read_configs(broker, BROKER, (_EVERY_BROKER,))
            refusal, needed_by_all = _CLUSTER_AUTHORIZATION_FAILED, _EVERY_BROKER
    refused = {name for name, code in codes.items() if code == refusal}
    if refused:
        # Without the defaults, and without the brokers' own, no group's limit is known.
        hits_all = needed_by_all in refused
        return Refused(tuple(group for group in uses.groups if hits_all or group in refused))
    others = sorted(set(codes.values()) - {0})
    if others or not codes:
        return Unknown(f"error {others[0]}" if others else "an empty answer")
    return Granted()


async def _alter_nothing(broker: Broker, groups: Iterable[str]) -> dict[str, int]:
    """No config is named, and it is only validated: what can go wrong is the right."""
    resources = tuple(IncrementalAlterConfigsResource(resource_type=GROUP, resource_name=group) for group in groups)
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=True)
    answer = await broker.call(request, 1)
    return {one.resource_name: one.error_code for one in answer.responses}


async def _read_configs(broker: Broker, kind: int, names: Iterable[str]) -> dict[str, int]:
    resources = tuple(
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=_A_KEY) for name in names
    )
    request = DescribeConfigsRequest(resources=resources)
    answer = await broker.call(request, 4)
    return {one.resource_name: one.error_code for one in answer.results}


def _stand_in(dlq_prefix: str) -> str:
    """A topic with the prefix that no group has; a prefix leaves room for one more letter."""
    return f"{dlq_prefix}x"


async def _known_uses(broker: Broker, config: Config, state: str, deadline_s: float) -> Uses:
    """`PermissionError` when the topic may not be read, `ClusterError` when it is not read in time."""
    found = await described(broker, [state, _OFFSETS])
    topic = found.get(state)
    if any(one.error_code == UNKNOWN_TOPIC for one in found.values()):
        return NOBODY  # Headgate has not run here yet, or nobody has ever had a group
    if topic is not None and topic.error_code == TOPIC_AUTHORIZATION_FAILED:
        raise PermissionError(state)
    settings = client_settings(config.upstream)
    states = await off_loop(lambda: _read(settings, state, deadline_s))
    return dead_letters.uses_of(states, config.share_groups.groups)


def _read(settings: Mapping[str, Any], state: str, deadline_s: float) -> ShareStates:
    """On a thread: everything from the beginning to the end. No group is joined, no offset committed."""
    until = time.monotonic() + deadline_s
    problem = "no answer"
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
        consumer.assign([TopicPartition(state, 0, OFFSET_BEGINNING)])
        while time.monotonic() < until:
            for message in next_batch(consumer):
                error = message.error()
                if error is None:
                    record = record_of(message)
                    fact = decode(STATE, record.key, record.value)
                    if isinstance(fact, ShareGroupFact):
                        states.apply(fact)
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
