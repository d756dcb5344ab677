"""Who is it that uses a topic: the rules, in the order in which they are asked, and how sure each of them is.

`RULES` of the page docs/activity.md is this module in words. A rule either names an actor or passes on to the next:
connector; streams application, share group, consumer group; Spark; transactional id; principal; client id and
principal; nobody. Group calls and fetches run on different connections, so a group is known by what both connections
share: principal, client id and host (`activity_groups`).

One rule: a name comes from what somebody proved or said, never from a guess between two. Where two groups could be
meant, neither is named and the next rule is asked. Pure; client ids are text that anybody may have chosen.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

Kind = Literal["connector", "streams", "share_group", "consumer_group", "spark", "client", "unattributed"]
Confidence = Literal["certain", "likely", "guess"]
Direction = Literal["read", "write"]
GroupKind = Literal["streams", "share_group", "consumer_group"]

ANONYMOUS: Final = "User:ANONYMOUS"
OTHER_RULE: Final = "other"  # of what is counted together because there are too many to tell apart


class ClientKey(NamedTuple):
    """What two connections of one client have in common; a client may leave its id out."""

    principal: str | None
    client_id: str | None
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """An actor, the rule that named it, and how sure that is."""

    kind: Kind
    name: str
    rule: str
    confidence: Confidence


class Group(NamedTuple):
    """A group that a client with the same key has been a member of; the broker accepted it."""

    kind: GroupKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that is known of one client when it uses a topic.

    `groups` are those of clients with its key, `thread_groups` those of clients of the same Streams instance.
    `group` is what the call itself names (ShareFetch), `is_worker` says that its principal is a Connect worker's, and
    `principal_is_shared` that other clients, with other names, log in as the same principal.
    """

    client: ClientKey
    direction: Direction
    groups: Sequence[Group] = ()
    thread_groups: Sequence[Group] = ()
    group: Group | None = None
    transactional_id: str | None = None
    is_worker: bool = False
    principal_is_shared: bool = False


_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_CONNECTOR: Final = re.compile(r"connector-(?:dlq-)?(producer|consumer)-(.+)-(\d{1,9})", re.DOTALL)
_THREAD: Final = re.compile(
    r"(?P<instance>.+)-(?:StreamThread-\d{1,9}-(?:restore-)?(?:consumer|producer)|global-consumer)", re.DOTALL
)
_NAMED_INSTANCE: Final = re.compile(rf"(?P<app>.+)-{_UUID}", re.DOTALL)
_SPARK: Final = re.compile(
    rf"(?:consumer-)?(?P<prefix>.+)-{_UUID}(?:-(?P<checkpoint>-?\d{{1,10}}))?-(?:driver-\d+|executor)(?:-\d+)?",
    re.DOTALL,
)
_SPARK_PREFIX: Final = "spark-kafka-"
# What libraries call themselves when nobody gave them a name: that is no identity.
_DEFAULT_ID: Final = re.compile(
    r"(?:producer|consumer|adminclient)-\d+|rdkafka|confluent-kafka-python|sarama|kgo|franz-go|aiokafka-.*|"
    r"kafka-python-.*|console-(?:producer|consumer)|perf-producer-client|kafkajs|kafka-go|",
    re.DOTALL,
)
# Numbers that each start or each instance changes: of a thread, a random id, a pod and its replica set.
_SUFFIX: Final = re.compile(rf"(?:[-_.](?:{_UUID}|[0-9a-f]{{8,10}}-[a-z0-9]{{5}}|\d+))+$")


def identify(seen: Evidence) -> Who:
    """The first rule that names somebody."""
    for rule in _RULES:
        who = rule(seen)
        if who is not None:
            return who
    return NOBODY


NOBODY: Final = Who(kind="unattributed", name="unattributed", rule="none", confidence="guess")
OTHER: Final = Who(kind="unattributed", name="other", rule=OTHER_RULE, confidence="guess")


class ConnectorClient(NamedTuple):
    """A client of a connector's task, as its client id says."""

    connector: str
    task: int
    direction: Direction


def connector_client(client_id: str | None) -> ConnectorClient | None:
    """The connector and the task in Connect's own client ids; a connector's name may have dashes."""
    match = None if client_id is None else _CONNECTOR.fullmatch(client_id)
    if match is None:
        return None
    role, name, task = match.groups()
    return ConnectorClient(name, int(task), "write" if role == "producer" else "read")


def streams_instance(client_id: str | None) -> str | None:
    """What all clients of one Streams instance begin with: its client.id, or its application id and a random one."""
    match = None if client_id is None else _THREAD.fullmatch(client_id)
    return None if match is None else match["instance"]


def is_telling(client_id: str | None) -> bool:
    """Whether somebody gave this client a name."""
    return client_id is not None and _DEFAULT_ID.fullmatch(client_id) is None


def stem(client_id: str) -> str:
    """The client id without what changes from one start or instance to the next."""
    return _SUFFIX.sub("", client_id) or client_id


# The rules.


def _connector(seen: Evidence) -> Who | None:
    found = connector_client(seen.client.client_id)
    if found is None or found.direction != seen.direction:
        return None
    return Who(
        kind="connector",
        name=found.connector,
        rule="connector-client-id",
        confidence="certain" if seen.is_worker else "likely",
    )


def _connect_group(seen: Evidence) -> Who | None:
    """A sink whose client.id was overridden is still a member of `connect-NAME`, as a listed worker's client."""
    name = _only_name(seen.groups, "consumer_group")
    if seen.direction != "read" or not seen.is_worker or name is None or not name.startswith("connect-"):
        return None
    return Who(kind="connector", name=name.removeprefix("connect-"), rule="connect-group", confidence="likely")


def _streams(seen: Evidence) -> Who | None:
    """A Streams instance: by the group that its consumers are in, else by the application id in its client ids."""
    declared = _only_name(seen.groups, "streams")
    instance = streams_instance(seen.client.client_id)
    if declared is not None:
        unique = instance is not None and _NAMED_INSTANCE.fullmatch(instance) is not None
        return Who(kind="streams", name=declared, rule="streams-group", confidence="certain" if unique else "likely")
    if instance is None:
        return None
    application = _only_name(seen.thread_groups)
    if application is not None:
        return Who(kind="streams", name=application, rule="streams-thread-group", confidence="likely")
    named = _NAMED_INSTANCE.fullmatch(instance)
    if named is not None:
        return Who(kind="streams", name=named["app"], rule="streams-client-id", confidence="likely")
    return Who(kind="streams", name=stem(instance), rule="streams-client-id", confidence="guess")


def _share_group(seen: Evidence) -> Who | None:
    if seen.group is not None and seen.group.kind == "share_group":
        return Who(kind="share_group", name=seen.group.name, rule="share-fetch", confidence="certain")
    return None


def _spark(seen: Evidence) -> Who | None:
    """Spark's consumers have a random group for each run; the number behind it stands for the query's checkpoint."""
    match = None if seen.client.client_id is None else _SPARK.fullmatch(seen.client.client_id)
    if match is None:
        return None
    prefix, checkpoint = match["prefix"], match["checkpoint"]
    if not prefix.startswith(_SPARK_PREFIX) and checkpoint is None:
        return None
    name = prefix if checkpoint is None else f"{prefix}-{checkpoint}"
    sure: Confidence = "likely" if checkpoint is not None else "guess"
    return Who(kind="spark", name=name, rule="spark-client-id", confidence=sure)


def _consumer_group(seen: Evidence) -> Who | None:
    if seen.direction != "read":
        return None
    name = _only_name(seen.groups, "consumer_group")
    if name is not None:
        return Who(kind="consumer_group", name=name, rule="group-member", confidence="likely")
    # Several groups, and Java's own client ids say which: consumer-GROUP-1.
    fitting = [one.name for one in seen.groups if _names_group(seen.client.client_id, one.name)]
    if len(fitting) == 1:
        return Who(kind="consumer_group", name=fitting[0], rule="group-member-client-id", confidence="likely")
    return None


def _transactional(seen: Evidence) -> Who | None:
    """Transactional ids are fenced by the broker: what they begin with is one application's."""
    if seen.direction != "write" or not seen.transactional_id:
        return None
    return Who(kind="client", name=stem(seen.transactional_id), rule="transactional-id", confidence="likely")


def _principal(seen: Evidence) -> Who | None:
    principal = seen.client.principal
    if principal is None or principal == ANONYMOUS or (seen.principal_is_shared and is_telling(seen.client.client_id)):
        return None
    sure: Confidence = "guess" if seen.principal_is_shared else "likely"
    return Who(kind="client", name=principal, rule="principal", confidence=sure)


def _client_and_principal(seen: Evidence) -> Who | None:
    client_id, principal = seen.client.client_id, seen.client.principal
    if client_id is None or not is_telling(client_id):
        return None
    has_proof = principal is not None and principal != ANONYMOUS
    name = f"{principal}/{stem(client_id)}" if has_proof else stem(client_id)
    return Who(kind="client", name=name, rule="client-id-and-principal", confidence="likely" if has_proof else "guess")


_RULES: Final[tuple[Callable[[Evidence], Who | None], ...]] = (
    _connector,
    _connect_group,
    _streams,
    _share_group,
    _spark,
    _consumer_group,
    _transactional,
    _principal,
    _client_and_principal,
)


def _only_name(groups: Sequence[Group], kind: GroupKind | None = None) -> str | None:
    """The name of the one group of this kind; None when there is none, or when there are several."""
    names = {one.name for one in groups if kind is None or one.kind == kind}
    return names.pop() if len(names) == 1 else None


def _names_group(client_id: str | None, group: str) -> bool:
    begin = f"consumer-{group}-"
    return client_id is not None and client_id.startswith(begin) and client_id[len(begin) :].isdecimal()
