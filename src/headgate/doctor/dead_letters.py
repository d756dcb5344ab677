"""Dead letters of share groups: the rights that they need beyond the prefix, and the topics that groups have.

One rule: what is missing is a problem where a group has a dead-letter topic and is hit by it; before that it is a
warning, because nothing is lost yet. Nothing here asks anybody: that is `dead_letter_probing`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.config.values import GroupPatterns
from headgate.doctor.commands import KafkaTools, Resource
from headgate.doctor.findings import Check, Finding, ok, problem, warning
from headgate.doctor.probing import TOPIC_AUTHORIZATION_FAILED
from headgate.doctor.rights import CLUSTER, Answer, Granted, Refused, Right, Unknown
from headgate.doctor.topics import UNKNOWN_TOPIC
from headgate.share_groups.model.group_state import ShareStates
from headgate.wire.messages.cluster import MetadataTopic

MOST_TOPICS: Final = 100
MOST_GROUPS: Final = 100
EVERY_GROUP: Final = "*"
_MOST_SHOWN: Final = 5
_LONGEST_SHOWN: Final = 100  # clients choose the names of groups
_UNPROTECTED = "without it brokers may drop a record at its limit before it is dead-lettered (limit_unprotected)"

RIGHTS: tuple[Right, ...] = (
    Right(
        resource=Resource.TOPIC,
        operation="Describe",
        need="needed",
        purpose="find the dead-letter topics; without it rejected records are archived without a dead letter",
    ),
    Right(
        resource=Resource.TOPIC,
        operation="Write",
        need="needed",
        purpose="write dead letters; without it rejected records are archived without one",
    ),
    Right(
        resource=Resource.TOPIC,
        operation="DescribeConfigs",
        need="advised",
        purpose="know the largest record that a topic takes; without it 1 MiB is taken for that",
    ),
    Right(
        resource=Resource.GROUP,
        operation="DescribeConfigs",
        need="needed",
        purpose=f"see the delivery count limits of groups; {_UNPROTECTED}",
    ),
    Right(
        resource=Resource.GROUP,
        operation="AlterConfigs",
        need="needed",
        purpose=f"keep the delivery count limits of groups; {_UNPROTECTED}",
    ),
    Right(
        resource=Resource.CLUSTER,
        operation="DescribeConfigs",
        need="needed",
        purpose=f"know the highest delivery count limit that brokers take; {_UNPROTECTED}",
    ),
)
CREATE = Right(
    resource=Resource.TOPIC,
    operation="Create",
    need="needed",
    purpose="create dead-letter topics (dlq_auto_create); without it rejected records are archived without one",
)


def needed_rights(*, auto_create: bool) -> tuple[Right, ...]:
    return (*RIGHTS, CREATE) if auto_create else RIGHTS


def commands(tools: KafkaTools, dlq_prefix: str) -> tuple[str, ...]:
    """The lines that grant what is needed without `dlq_auto_create`: one for each kind of resource."""
    operations: dict[Resource, list[str]] = {}
    for right in RIGHTS:
        operations.setdefault(right.resource, []).append(right.operation)
    return tuple(_grant(tools, resource, granted, dlq_prefix) for resource, granted in operations.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Which groups have which dead-letter topic; what is more than the bounds is only counted."""

    topics: Mapping[str, tuple[str, ...]]
    groups: tuple[str, ...] = ()
    topics_left_out: int = 0
    groups_left_out: int = 0


NOBODY = Uses(topics={})


def uses_of(states: ShareStates, selected: GroupPatterns) -> Uses:
    """Those of the groups that `[share_groups] groups` selects, by name."""
    found: dict[str, list[str]] = {}
    for group in sorted(states.groups()):
        topic = states.of(group).settings.dlq_topic
        if topic is not None and selected.matches(group):
            found.setdefault(topic, []).append(group)
    groups = sorted(group for each in found.values() for group in each)
    return Uses(
        topics={topic: tuple(found[topic]) for topic in sorted(found)[:MOST_TOPICS]},
        groups=tuple(groups[:MOST_GROUPS]),
        topics_left_out=max(0, len(found) - MOST_TOPICS),
        groups_left_out=max(0, len(groups) - MOST_GROUPS),
    )


def judge(answers: Mapping[Right, Answer], uses: Uses | None, tools: KafkaTools, dlq_prefix: str) -> Iterator[Finding]:
    """A finding for each right that was asked for. `Refused` names what is hit by it now: topics, else groups.

    `uses` None: nobody knows which groups have a dead-letter topic.
    """
    nobody = "" if uses is None else ", which hits nobody yet"
    for right, answer in answers.items():
        subject = f"{right.operation} on {_where(right.resource, dlq_prefix)}"
        match answer:
            case Granted():
                yield ok(Check.SHARE_GROUPS, subject, f"{tools.principal} may")
            case Refused(names):
                told = problem if names and right.need == "needed" else warning
                hit = f", and it hits {shown(names)}" if names else nobody
                text = f"{tools.principal} may not{hit}: needed to {right.purpose}"
                yield told(Check.SHARE_GROUPS, subject, text, mend=_mend(right, names, tools, dlq_prefix))
            case Unknown(reason):
                text = f"not found out ({reason}): needed to {right.purpose}"
                mend = f"grant it to be sure: {_mend(right, (), tools, dlq_prefix)}"
                yield warning(Check.SHARE_GROUPS, subject, text, mend=mend)


def judge_topics(
    uses: Uses, described: Mapping[str, MetadataTopic], tools: KafkaTools, *, auto_create: bool
) -> Iterator[Finding]:
    """One finding for all that are there, and one for each that is not; those that may not be seen are left out."""
    there = [topic for topic in uses.topics if topic in described and not described[topic].error_code]
    if there:
        verb = "is" if len(there) == 1 else "are"
        yield ok(Check.SHARE_GROUPS, "dead-letter topics", f"{shown(there)} {verb} there")
    elif not uses.topics:
        yield ok(Check.SHARE_GROUPS, "dead-letter topics", "no group has one yet")
    for topic, groups in uses.topics.items():
        found = described.get(topic)
        code = None if found is None else found.error_code
        if code == UNKNOWN_TOPIC and auto_create:
            yield ok(Check.SHARE_GROUPS, topic, "is not there yet: Headgate makes it for the first dead letter")
        elif code == UNKNOWN_TOPIC:
            text = (
                f"is not there, and share_groups.dlq_auto_create is off: rejected records of {shown(groups)} are "
                "archived without a dead letter"
            )
            yield problem(Check.SHARE_GROUPS, topic, text, mend=tools.create_topic(topic))
        elif code not in {0, TOPIC_AUTHORIZATION_FAILED}:
            text = f"cannot be looked at ({'no answer' if code is None else f'error {code}'})"
            yield warning(Check.SHARE_GROUPS, topic, text, mend=tools.describe_topic(topic))
    if uses.topics_left_out or uses.groups_left_out:
        text = (
            f"there are many: {uses.topics_left_out} topics and {uses.groups_left_out} groups beyond the first "
            f"{MOST_TOPICS} of each were not looked at"
        )
        mend = "see them all with: headgate share-groups --bootstrap-server GATEWAY --describe --dlq-topology"
        yield warning(Check.SHARE_GROUPS, "dead-letter topics", text, mend=mend)


def shown(names: Collection[str]) -> str:
    """The first few of them, each cut to a length that a line takes."""
    cut = [name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..." for name in names]
    more = f" and {len(cut) - _MOST_SHOWN} more" if len(cut) > _MOST_SHOWN else ""
    return ", ".join(cut[:_MOST_SHOWN]) + more


def _where(resource: Resource, dlq_prefix: str) -> str:
    match resource:
        case Resource.TOPIC:
            return f"topic {dlq_prefix}*"
        case Resource.GROUP:
            return f"group {EVERY_GROUP}"
        case _:
            return CLUSTER


def _mend(right: Right, names: Sequence[str], tools: KafkaTools, dlq_prefix: str) -> str:
    """A topic can lie outside of a prefix that was changed after a group had chosen it."""
    outside = [name for name in names if right.resource is Resource.TOPIC and not name.startswith(dlq_prefix)]
    lines = [tools.allow_named(Resource.TOPIC, [right.operation], name) for name in outside[:_MOST_SHOWN]]
    if not names or len(outside) < len(names):
        lines.insert(0, _grant(tools, right.resource, [right.operation], dlq_prefix))
    return " && ".join(lines)


def _grant(tools: KafkaTools, resource: Resource, operations: Sequence[str], dlq_prefix: str) -> str:
    if resource is Resource.TOPIC:
        return tools.allow(resource, operations, dlq_prefix)
    return tools.allow_named(resource, operations, EVERY_GROUP)
