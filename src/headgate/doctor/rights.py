"""The rights of the service account: the one list of them, and what is said when one is missing.

One rule: `RIGHTS` is the whole truth. `docs/operate.md` shows it to operators (a test holds the two equal), `probing`
asks a broker for each row, and nothing that Headgate does for itself may need more. The exceptions are beyond the
prefix: what dead letters need (`dead_letters`), and what the page calls optional, which nobody asks for here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headgate.doctor.commands import KafkaTools, Resource
from headgate.doctor.findings import Check, Finding, ok, problem, warning

# Names below the prefix that are no topics. Their rights are given for the prefix, so the names may change.
LEADER_GROUP = "leader"
LEADER_TRANSACTIONAL_ID = "trips"

CLUSTER = "kafka-cluster"  # Kafka's name of the one cluster resource
_ALTER = 7  # the bit of it, as org.apache.kafka.common.acl.AclOperation numbers them
Need = Literal["needed", "implied", "advised"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One operation on what begins with `[facts] prefix`, or on the cluster.

    `needed`: its feature does not work without it. `implied`: comes with another row. `advised`: only the doctor sees
    less without it.
    """

    resource: Resource
    operation: str  # as kafka-acls.sh writes it
    need: Need
    purpose: str


RIGHTS: tuple[Right, ...] = (
    Right(resource=Resource.TOPIC, operation="Describe", need="needed", purpose="find its topics"),
    Right(resource=Resource.TOPIC, operation="Create", need="needed", purpose="create those that are absent"),
    Right(resource=Resource.TOPIC, operation="Write", need="needed", purpose="write facts"),
    Right(resource=Resource.TOPIC, operation="Read", need="needed", purpose="read them back at every start"),
    Right(
        resource=Resource.TOPIC,
        operation="DescribeConfigs",
        need="needed",
        purpose="see that nobody lets decisions expire",
    ),
    Right(
        resource=Resource.GROUP,
        operation="Read",
        need="needed",
        purpose="agree on the leader among all gateways",
    ),
    Right(
        resource=Resource.TRANSACTIONAL_ID,
        operation="Describe",
        need="needed",
        purpose="find the coordinator of the leader's transactions",
    ),
    Right(
        resource=Resource.TRANSACTIONAL_ID,
        operation="Write",
        need="needed",
        purpose="let Kafka fence a leader that is one no more",
    ),
    Right(
        resource=Resource.CLUSTER,
        operation="IdempotentWrite",
        need="implied",
        purpose="write each fact once; brokers take Write on any topic for it",
    ),
    Right(
        resource=Resource.CLUSTER,
        operation="Describe",
        need="advised",
        purpose="let `headgate doctor` read the cluster's clock",
    ),
)


@dataclass(frozen=True, slots=True)
class Granted:
    """The broker says yes for every name that was asked."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker says no, for these names."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """The broker did not say."""

    reason: str


Answer = Granted | Refused | Unknown


def commands(tools: KafkaTools, prefix: str) -> tuple[str, ...]:
    """The lines that grant everything that is not implied: one for each kind of resource."""
    lines = []
    for resource in Resource:
        operations = [right.operation for right in RIGHTS if right.resource is resource and right.need != "implied"]
        lines.append(tools.allow(resource, operations, prefix))
    return tuple(lines)


def judge(answers: Mapping[Right, Answer], tools: KafkaTools, prefix: str) -> Iterator[Finding]:
    """A finding for each right, in the list's order."""
    for right in RIGHTS:
        where = CLUSTER if right.resource is Resource.CLUSTER else f"{right.resource} {prefix}*"
        subject = f"{right.operation} on {where}"
        mend = tools.allow(right.resource, [right.operation], prefix)
        if right.need == "implied":
            mend = f"comes with Write on a topic; by itself: {mend}"
        match answers[right]:
            case Granted():
                yield ok(Check.RIGHTS, subject, f"{tools.principal} may")
            case Refused(names):
                told = problem if right.need != "advised" else warning
                text = f"{tools.principal} may not{_where(names, prefix)}: needed to {right.purpose}"
                yield told(Check.RIGHTS, subject, text, mend=mend)
            case Unknown(reason):
                text = f"not found out ({reason}): needed to {right.purpose}"
                yield warning(Check.RIGHTS, subject, text, mend=f"grant it to be sure: {mend}")


def excess(operations: int, tools: KafkaTools, *, anonymous: bool) -> Iterator[Finding]:
    """Whether the account could rule the cluster; `operations` is the cluster's bit field of what it may."""
    if not operations & (1 << _ALTER):
        return
    what = f"{tools.principal} may alter the cluster: it is a super user, or the cluster has no authorizer"
    if anonymous:
        text = f"{what}; without SASL every client that comes through the gateway is {tools.principal} too"
        mend = "give the brokers a SASL listener and set upstream.service_user and upstream.service_password_file"
    else:
        text = f"{what}; Headgate needs far less"
        mend = "use an account with only the rights of docs/operate.md: set upstream.service_user to it"
    yield warning(Check.RIGHTS, "least privilege", text, mend=mend)


def _where(names: Sequence[str], prefix: str) -> str:
    """Which names, unless it is simply all that begin with the prefix."""
    shown = [name for name in names if name not in {prefix, CLUSTER}]
    return f" on {', '.join(shown)}" if shown else ""
