"""The rights of the service account: one table, from which come the probes, the findings, the commands and the docs.

Invariant: Headgate itself needs no right that is not a row of `RIGHTS`. `docs/operate.md` shows the table (a test
compares the two). `probes.py` asks a broker for the rows that are always needed, and for those of share groups.
"""

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from headgate.config.model import Config
from headgate.doctor.findings import Check, DoctorFinding, KafkaTools, Resource, ok, problem, warning
from headgate.facts.replays import PROGRESS_TOPIC

# Names below facts.prefix that are no topics. Their rights are granted for the prefix, so the names may change.
LEADER_GROUP: Final = "leader"
LEADER_TRANSACTIONAL_ID: Final = "trips"

CLUSTER: Final = "kafka-cluster"  # Kafka's name of the one cluster resource
_ALTER = 7  # the bit of it, as org.apache.kafka.common.acl.AclOperation numbers them
_MOST_SHOWN = 5
_LONGEST_SHOWN = 100  # clients choose the names of groups
_NO_DEAD_LETTER = "without it rejected records are archived without a dead letter"
_UNPROTECTED = "without it brokers may drop a record at its limit before it is dead-lettered (`limit_unprotected`)"

Need = Literal["needed", "implied", "advised", "optional"]


class Scope(enum.Enum):
    """When a right is needed, as `docs/operate.md` says it."""

    ALWAYS = "always"
    SHARE_GROUPS = "`share_groups.enable`"
    DLQ_AUTO_CREATE = "`share_groups.dlq_auto_create`"
    TOPOLOGIES = '`topologies.owner = "gateway"`'
    ACTIVITY = "`activity.enable`"
    LAGS = "`lags.enable`"
    CONNECT = "`connect.NAME.record`"
    TRIAGE = "`headgate pipeline`, dead letters"


class Name(enum.Enum):
    """The names that a right is granted for; those that end in `*` are prefixes."""

    FACTS = "`facts.prefix`*"
    DEAD_LETTERS = "`dlq_prefix`*"
    PROGRESS = "`headgate-replay.progress`"
    ALL = "all"
    STATUS_TOPIC = "`status_topic`"
    CONFIG_TOPIC = "`config_topic`"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRight:
    """One operation on resources of one type.

    `needed`: its feature does not work without it. `implied`: comes with another row. `advised`: only the doctor or a
    detail is worse without it. `optional`: never probed.
    """

    scope: Scope
    resource: Resource
    name: Name
    operation: str  # as kafka-acls.sh writes it
    need: Need
    purpose: str


def _rights(scope: Scope, name: Name, *rows: tuple[Resource, str, Need, str]) -> Iterator[AclRight]:
    for resource, operation, need, purpose in rows:
        where = Name.CLUSTER if resource is Resource.CLUSTER else name
        yield AclRight(scope=scope, resource=resource, name=where, operation=operation, need=need, purpose=purpose)


RIGHTS: Final[tuple[AclRight, ...]] = (
    *_rights(
        Scope.ALWAYS,
        Name.FACTS,
        (Resource.TOPIC, "Describe", "needed", "find its topics"),
        (Resource.TOPIC, "Create", "needed", "create topics that do not exist"),
        (Resource.TOPIC, "Write", "needed", "write facts"),
        (Resource.TOPIC, "Read", "needed", "read facts back at every start"),
        (Resource.TOPIC, "DescribeConfigs", "needed", "check that decisions do not expire"),
        (Resource.GROUP, "Read", "needed", "elect the leader among all gateways"),
        (Resource.TRANSACTIONAL_ID, "Describe", "needed", "find the coordinator of the leader's transactions"),
        (Resource.TRANSACTIONAL_ID, "Write", "needed", "let Kafka fence a former leader"),
        (Resource.CLUSTER, "IdempotentWrite", "implied", "write each fact once; brokers accept Write on any topic"),
        (
            Resource.CLUSTER,
            "Describe",
            "advised",
            "let `headgate doctor` read the cluster's clock, and who may write its topics",
        ),
    ),
    *_rights(
        Scope.SHARE_GROUPS,
        Name.DEAD_LETTERS,
        (Resource.TOPIC, "Describe", "needed", f"find the dead-letter topics; {_NO_DEAD_LETTER}"),
        (Resource.TOPIC, "Write", "needed", f"write dead letters; {_NO_DEAD_LETTER}"),
        (
            Resource.TOPIC,
            "DescribeConfigs",
            "advised",
            "know the largest record that a topic accepts; without it 1 MiB is assumed",
        ),
    ),
    *_rights(
        Scope.SHARE_GROUPS,
        Name.ALL,
        (Resource.GROUP, "DescribeConfigs", "needed", f"read the delivery count limits of groups; {_UNPROTECTED}"),
        (Resource.GROUP, "AlterConfigs", "needed", f"set the delivery count limits of groups; {_UNPROTECTED}"),
        (
            Resource.GROUP,
            "Describe",
            "optional",
            "know whether other groups of a dead-letter topic exist (`strict.isolation`); without it all count as such",
        ),
        (
            Resource.CLUSTER,
            "DescribeConfigs",
            "needed",
            f"know the highest delivery count limit that brokers accept; {_UNPROTECTED}",
        ),
    ),
    *_rights(
        Scope.DLQ_AUTO_CREATE,
        Name.DEAD_LETTERS,
        (Resource.TOPIC, "Create", "needed", f"create dead-letter topics; {_NO_DEAD_LETTER}"),
    ),
    *_rights(
        Scope.TOPOLOGIES,
        Name.ALL,
        (Resource.GROUP, "Describe", "advised", "find groups that no longer exist and delete their descriptions"),
    ),
    *_rights(
        Scope.ACTIVITY,
        Name.ALL,
        (Resource.TOPIC, "Describe", "optional", "know the names and end offsets of topics"),
    ),
    *_rights(
        Scope.LAGS,
        Name.ALL,
        (
            Resource.GROUP,
            "Describe",
            "advised",
            "read the committed offsets of groups; the lags of others are not known",
        ),
        (Resource.TOPIC, "Describe", "advised", "read the end offsets of topics; lags on others are not known"),
    ),
    *_rights(
        Scope.CONNECT,
        Name.STATUS_TOPIC,
        (Resource.TOPIC, "Read", "needed", "know which active topics are recorded"),
        (Resource.TOPIC, "Write", "needed", "record active topics"),
    ),
    *_rights(
        Scope.CONNECT,
        Name.CONFIG_TOPIC,
        (Resource.TOPIC, "Read", "needed", "clear the active topics of deleted connectors"),
    ),
    *_rights(
        Scope.TRIAGE,
        Name.DEAD_LETTERS,
        (Resource.TOPIC, "Read", "advised", "read dead letters; without it there is no triage"),
    ),
    *_rights(
        Scope.TRIAGE,
        Name.ALL,
        (
            Resource.TOPIC,
            "Read",
            "optional",
            "compare dead letters with their records; without it `source_state` is unreadable, and no content is found",
        ),
        (Resource.TOPIC, "DescribeConfigs", "optional", "warn of dead letters and records that expire soon"),
    ),
    *_rights(
        Scope.TRIAGE,
        Name.PROGRESS,
        (Resource.TOPIC, "Read", "optional", "make plans that are asked for, and show replays on the page"),
        (Resource.TOPIC, "Write", "optional", "answer requests for plans, and pass on those of the page"),
        (Resource.TOPIC, "Create", "optional", "create the topic for the first plan that the page asks for"),
    ),
)


def rights_in(*scopes: Scope) -> tuple[AclRight, ...]:
    return tuple(right for right in RIGHTS if right.scope in scopes)


def own_rights(config: Config) -> tuple[AclRight, ...]:
    """The rights that are not about dead letters: on `facts.prefix`, for the cleanup of topologies, and for lags."""
    topologies = config.topologies
    is_stored = topologies.owner == "gateway" and topologies.store.scheme != "none"
    scopes = {Scope.ALWAYS: True, Scope.TOPOLOGIES: is_stored, Scope.LAGS: config.lags.enable}
    first: dict[tuple[Resource, Name, str], AclRight] = {}  # a right that several features need is checked once
    for right in rights_in(*(scope for scope, is_on in scopes.items() if is_on)):
        first.setdefault((right.resource, right.name, right.operation), right)
    return tuple(first.values())


def share_group_rights(config: Config) -> tuple[AclRight, ...]:
    """The rights beyond `facts.prefix` that this configuration needs for dead letters."""
    share = config.share_groups
    scopes = {
        Scope.SHARE_GROUPS: share.enable,
        Scope.DLQ_AUTO_CREATE: share.enable and share.dlq_auto_create,
        Scope.TRIAGE: share.enable,  # where the pipeline runs is not known here
    }
    chosen = rights_in(*(scope for scope, is_on in scopes.items() if is_on))
    return tuple(right for right in chosen if right.need != "optional")


@dataclass(frozen=True, slots=True, kw_only=True)
class AclNames:
    """The names and prefixes of one configuration."""

    facts_prefix: str = "headgate."
    dlq_prefix: str = "dlq."
    status_topic: str = "connect-status"
    config_topic: str = "connect-configs"

    def of(self, name: Name) -> tuple[str, bool]:
        """The name, and whether it is a prefix."""
        return {
            Name.FACTS: (self.facts_prefix, True),
            Name.DEAD_LETTERS: (self.dlq_prefix, True),
            Name.PROGRESS: (PROGRESS_TOPIC, False),
            Name.ALL: ("*", False),
            Name.STATUS_TOPIC: (self.status_topic, False),
            Name.CONFIG_TOPIC: (self.config_topic, False),
            Name.CLUSTER: ("", False),
        }[name]

    def subject(self, right: AclRight) -> str:
        name, is_prefix = self.of(right.name)
        where = CLUSTER if right.resource is Resource.CLUSTER else f"{right.resource} {name}{'*' if is_prefix else ''}"
        return f"{right.operation} on {where}"


def grant_commands(scope: Scope, tools: KafkaTools, names: AclNames) -> tuple[str, ...]:
    """The commands that grant all rights of a scope: one for each type and name of resource."""
    operations: dict[tuple[Resource, Name], list[str]] = {}
    for right in rights_in(scope):
        if right.need != "implied":
            operations.setdefault((right.resource, right.name), []).append(right.operation)
    return tuple(_grant(tools, names, *what, granted) for what, granted in operations.items())


def _grant(tools: KafkaTools, names: AclNames, resource: Resource, name: Name, operations: Sequence[str]) -> str:
    text, is_prefix = names.of(name)
    return tools.allow(resource, operations, text, is_prefix=is_prefix)


# What a broker said.


@dataclass(frozen=True, slots=True)
class Granted:
    """The account has the right for every name that was asked."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The account does not have the right.

    `names` of rights on `facts.prefix` are those that are denied, none when all are. Those of dead letters are the
    topics or groups that are affected now.
    """

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """The broker did not say."""

    reason: str


RightStatus = Granted | Denied | Unknown


def judge(
    statuses: Mapping[AclRight, RightStatus], tools: KafkaTools, names: AclNames, *, uses_are_known: bool = True
) -> Iterator[DoctorFinding]:
    """A finding for each right, in the order of the table.

    `uses_are_known` False: it is not known which groups have a dead-letter topic.
    """
    for right, status in statuses.items():
        is_own = right.scope in {Scope.ALWAYS, Scope.TOPOLOGIES, Scope.LAGS}
        check = Check.RIGHTS if is_own else Check.SHARE_GROUPS
        subject = names.subject(right)
        match status:
            case Granted():
                yield ok(check, subject, f"{tools.principal} is authorized")
            case Denied(denied):
                is_problem = right.need != "advised" and (is_own or denied)
                where = _own(denied, names) if is_own else _affected(denied, uses_are_known=uses_are_known)
                text = f"{tools.principal} is not authorized{where}: needed to {right.purpose}"
                yield (problem if is_problem else warning)(
                    check, subject, text, mend=_mend(right, denied, tools, names)
                )
            case Unknown(reason):
                text = f"could not be checked ({reason}): needed to {right.purpose}"
                yield warning(check, subject, text, mend=f"grant it to be sure: {_mend(right, (), tools, names)}")


def _own(denied: Sequence[str], names: AclNames) -> str:
    """Names the denied resources; empty when everything with the prefix is denied."""
    some = [name for name in denied if name not in {names.facts_prefix, CLUSTER}]
    return f" for {shown(some)}" if some else ""


def _affected(denied: Sequence[str], *, uses_are_known: bool) -> str:
    if denied:
        return f", which affects {shown(denied)}"
    return ", which affects no group yet" if uses_are_known else ""


def _mend(right: AclRight, denied: Sequence[str], tools: KafkaTools, names: AclNames) -> str:
    """A topic can lie outside a prefix that was changed after a group had chosen the topic."""
    prefix, is_prefix = names.of(right.name)
    is_topic = is_prefix and right.resource is Resource.TOPIC
    outside = [name for name in denied if is_topic and not name.startswith(prefix)]
    lines = [tools.allow(Resource.TOPIC, [right.operation], name) for name in outside[:_MOST_SHOWN]]
    if not denied or len(outside) < len(denied):
        lines.insert(0, _grant(tools, names, right.resource, right.name, [right.operation]))
    line = " && ".join(lines)
    return f"comes with Write on a topic; by itself: {line}" if right.need == "implied" else line


def shown(names: Collection[str]) -> str:
    """The first few names, each cut to a length that fits a line."""
    cut = [name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..." for name in names]
    more = f" and {len(cut) - _MOST_SHOWN} more" if len(cut) > _MOST_SHOWN else ""
    return ", ".join(cut[:_MOST_SHOWN]) + more


def excess(operations: int, tools: KafkaTools, *, anonymous: bool) -> Iterator[DoctorFinding]:
    """Warn about an account that may alter the cluster; `operations` are its authorized operations on the cluster."""
    if not operations & (1 << _ALTER):
        return
    what = f"{tools.principal} may alter the cluster: it is a super user, or the cluster has no authorizer"
    if anonymous:
        text = f"{what}; without SASL every client of the gateway is {tools.principal} too"
        mend = "give the brokers a SASL listener and set upstream.service_user and upstream.service_password_file"
    else:
        text = f"{what}; Headgate needs far less"
        mend = "use an account with only the rights of docs/operate.md: set upstream.service_user to it"
    yield warning(Check.RIGHTS, "least privilege", text, mend=mend)
