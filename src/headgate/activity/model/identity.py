"""Identifies the actor behind the use of a topic: the rules of docs/activity.md, in their order, and their confidence.

A rule names an actor, or returns None and the next one is asked. A member's heartbeats and its fetches come on
different connections, which share principal, client id and host: `GroupMemberships` remembers under these what the
broker accepted.

Invariant: a name comes from what the broker accepted or from what the client sent, never from a choice between two.
If two groups fit, neither is named. Client ids are untrusted text, so all tables are bounded. Times are arguments.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from headgate.facts import Actor
from headgate.facts.observations import Confidence, Direction

GroupKind = Literal["streams", "share_group", "consumer_group"]

ANONYMOUS: Final = "User:ANONYMOUS"
_MOST_CLIENTS: Final = 100_000
_MOST_GROUPS: Final = 4  # of one client: two are ambiguous already
_MEMBERSHIP_S: Final = 300.0  # without a heartbeat
_MOST_STEMS: Final = 2  # of one principal: two make it shared
_LONGEST_STEM: Final = 256
_MOST_PRINCIPALS: Final = 10_000

UNATTRIBUTED: Final = Actor(kind="unattributed", name="unattributed", rule="none", confidence="guess")
OTHER: Final = Actor(kind="unattributed", name="other", rule="other", confidence="guess")  # uses that are added up


class ClientKey(NamedTuple):
    """What the connections of one client have in common."""

    principal: str | None
    client_id: str | None
    host: str


class GroupRef(NamedTuple):
    """A group that accepted the client as a member."""

    kind: GroupKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that is known of a client when it uses a topic.

    `groups` are the groups of clients with its key, `instance_groups` those of clients of its Streams instance.
    `group` is named by the request itself (ShareFetch). `is_worker`: its principal is listed for a Connect cluster.
    `principal_is_shared`: clients with other names log in as the same principal.
    """

    client: ClientKey
    direction: Direction
    groups: Sequence[GroupRef] = ()
    instance_groups: Sequence[GroupRef] = ()
    group: GroupRef | None = None
    transactional_id: str | None = None
    is_worker: bool = False
    principal_is_shared: bool = False


_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_CONNECTOR: Final = re.compile(r"connector-(?:dlq-)?(producer|consumer)-(.+)-(\d{1,9})", re.DOTALL)
_THREAD: Final = re.compile(
    r"(?P<instance>.+)-(?:(?:StreamThread|StateUpdater)-\d{1,9}-(?:restore-)?(?:consumer|producer)|global-consumer)",
    re.DOTALL,
)
_NAMED_INSTANCE: Final = re.compile(rf"(?P<app>.+)-{_UUID}", re.DOTALL)
_SPARK: Final = re.compile(
    rf"(?:consumer-)?(?P<prefix>.+)-{_UUID}(?:-(?P<checkpoint>-?\d{{1,10}}))?-(?:driver-\d+|executor)(?:-\d+)?",
    re.DOTALL,
)
_SPARK_PREFIX: Final = "spark-kafka-"
# The default client ids of libraries identify nothing.
_DEFAULT_ID: Final = re.compile(
    r"(?:producer|consumer|adminclient)-\d+|rdkafka|confluent-kafka-python|sarama|kgo|franz-go|aiokafka-.*|"
    r"kafka-python-.*|console-(?:producer|consumer)|perf-producer-client|kafkajs|kafka-go|",
    re.DOTALL,
)
# Parts that change with each start or instance: numbers, random ids, a pod and its replica set.
_SUFFIX: Final = re.compile(rf"(?:[-_.](?:{_UUID}|[0-9a-f]{{8,10}}-[a-z0-9]{{5}}|\d+))+$")


def identify(seen: Evidence) -> Actor:
    """The actor of the first rule that names one."""
    return next((actor for rule in _RULES if (actor := rule(seen)) is not None), UNATTRIBUTED)


class ConnectorClient(NamedTuple):
    """The task of a connector, as its client id names it."""

    connector: str
    task: int
    direction: Direction


def connector_client(client_id: str | None) -> ConnectorClient | None:
    """The connector and the task in Connect's own client ids; the name of a connector may contain dashes."""
    match = None if client_id is None else _CONNECTOR.fullmatch(client_id)
    if match is None:
        return None
    role, name, task = match.groups()
    return ConnectorClient(name, int(task), "write" if role == "producer" else "read")


def streams_instance(client_id: str | None) -> str | None:
    """The common prefix of the client ids of one Streams instance: its client.id, or application id and a UUID."""
    match = None if client_id is None else _THREAD.fullmatch(client_id)
    return None if match is None else match["instance"]


def is_configured(client_id: str | None) -> bool:
    """Whether the client id was configured, and is not the default of a library."""
    return client_id is not None and _DEFAULT_ID.fullmatch(client_id) is None


def stem(client_id: str) -> str:
    """The client id without the parts that change with each start or instance."""
    return _SUFFIX.sub("", client_id) or client_id


# The rules.


def _connector(seen: Evidence) -> Actor | None:
    found = connector_client(seen.client.client_id)
    if found is None or found.direction != seen.direction:
        return None
    return Actor(
        kind="connector",
        name=found.connector,
        rule="connector-client-id",
        confidence="certain" if seen.is_worker else "likely",
    )


def _connect_group(seen: Evidence) -> Actor | None:
    """A sink whose client.id is overridden is still a member of the group `connect-NAME`."""
    name = _only_name(seen.groups, "consumer_group")
    if seen.direction != "read" or not seen.is_worker or name is None or not name.startswith("connect-"):
        return None
    return Actor(kind="connector", name=name.removeprefix("connect-"), rule="connect-group", confidence="likely")


def _streams(seen: Evidence) -> Actor | None:
    """A Streams instance, by the group of its consumers, else by the application id in its client ids."""
    declared = _only_name(seen.groups, "streams")
    instance = streams_instance(seen.client.client_id)
    if declared is not None:
        unique = instance is not None and _NAMED_INSTANCE.fullmatch(instance) is not None
        return Actor(kind="streams", name=declared, rule="streams-group", confidence="certain" if unique else "likely")
    if instance is None:
        return None
    application = _only_name(seen.instance_groups)
    if application is not None:
        return Actor(kind="streams", name=application, rule="streams-thread-group", confidence="likely")
    named = _NAMED_INSTANCE.fullmatch(instance)
    if named is not None:
        return Actor(kind="streams", name=named["app"], rule="streams-client-id", confidence="likely")
    return Actor(kind="streams", name=stem(instance), rule="streams-client-id", confidence="guess")


def _share_group(seen: Evidence) -> Actor | None:
    if seen.group is not None and seen.group.kind == "share_group":
        return Actor(kind="share_group", name=seen.group.name, rule="share-fetch", confidence="certain")
    return None


def _spark(seen: Evidence) -> Actor | None:
    """Spark uses a random group for each run, followed by a number that identifies the checkpoint of the query.

    A prefix that the job chose (`groupIdPrefix`) is the name alone: with the query's own name, its description and its
    use have one.
    """
    match = None if seen.client.client_id is None else _SPARK.fullmatch(seen.client.client_id)
    if match is None:
        return None
    prefix, checkpoint = match["prefix"], match["checkpoint"]
    is_chosen = not prefix.startswith(_SPARK_PREFIX)
    if is_chosen and checkpoint is None:
        return None
    name = prefix if is_chosen or checkpoint is None else f"{prefix}-{checkpoint}"
    sure: Confidence = "likely" if checkpoint is not None else "guess"
    return Actor(kind="spark", name=name, rule="spark-client-id", confidence=sure)


def _consumer_group(seen: Evidence) -> Actor | None:
    if seen.direction != "read":
        return None
    name = _only_name(seen.groups, "consumer_group")
    if name is not None:
        return Actor(kind="consumer_group", name=name, rule="group-member", confidence="likely")
    # Of several groups, the default client id of a Java consumer names one: consumer-GROUP-1.
    fitting = [one.name for one in seen.groups if _names_group(seen.client.client_id, one.name)]
    if len(fitting) == 1:
        return Actor(kind="consumer_group", name=fitting[0], rule="group-member-client-id", confidence="likely")
    return None


def _transactional(seen: Evidence) -> Actor | None:
    """The broker fences transactional ids, so that one application owns a prefix."""
    if seen.direction != "write" or not seen.transactional_id:
        return None
    return Actor(kind="client", name=stem(seen.transactional_id), rule="transactional-id", confidence="likely")


def _principal(seen: Evidence) -> Actor | None:
    principal = seen.client.principal
    if (
        principal is None
        or principal == ANONYMOUS
        or (seen.principal_is_shared and is_configured(seen.client.client_id))
    ):
        return None
    sure: Confidence = "guess" if seen.principal_is_shared else "likely"
    return Actor(kind="client", name=principal, rule="principal", confidence=sure)


def _client_and_principal(seen: Evidence) -> Actor | None:
    client_id, principal = seen.client.client_id, seen.client.principal
    if client_id is None or not is_configured(client_id):
        return None
    has_proof = principal is not None and principal != ANONYMOUS
    name = f"{principal}/{stem(client_id)}" if has_proof else stem(client_id)
    return Actor(
        kind="client", name=name, rule="client-id-and-principal", confidence="likely" if has_proof else "guess"
    )


_RULES: Final[tuple[Callable[[Evidence], Actor | None], ...]] = (
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


def _only_name(groups: Sequence[GroupRef], kind: GroupKind | None = None) -> str | None:
    """The name of the only group of this kind; None if there is none or more than one."""
    names = {one.name for one in groups if kind is None or one.kind == kind}
    return names.pop() if len(names) == 1 else None


def _names_group(client_id: str | None, group: str) -> bool:
    begin = f"consumer-{group}-"
    return client_id is not None and client_id.startswith(begin) and client_id[len(begin) :].isdecimal()


@dataclass(slots=True, eq=False)
class _Membership:
    at: float = float("-inf")  # of the last heartbeat
    connections: int = 0


_Table = OrderedDict[ClientKey, dict[GroupRef, _Membership]]


class GroupMemberships:
    """The groups of clients, and the principals that several clients share.

    A membership ends with its last connection, or without heartbeats. The longest idle client is evicted first.
    """

    def __init__(self, most: int = _MOST_CLIENTS) -> None:
        self._most = most
        self._by_client: _Table = OrderedDict()
        self._by_instance: _Table = OrderedDict()
        self._stems: OrderedDict[str, set[str]] = OrderedDict()  # of the names of a principal's clients

    def __len__(self) -> int:
        return len(self._by_client) + len(self._by_instance) + len(self._stems)

    def add(self, client: ClientKey, group: GroupRef, now: float, *, is_first: bool = True) -> bool:
        """The broker accepted this client as a member; True if that is new. `is_first`: on this connection."""
        is_new = False
        for table, key in zip((self._by_client, self._by_instance), related_keys(client), strict=False):
            groups = table.setdefault(key, {})
            table.move_to_end(key)
            if len(table) > self._most:
                table.popitem(last=False)
            if group not in groups and len(groups) >= _MOST_GROUPS:
                del groups[min(groups, key=lambda one: groups[one].at)]
            membership = groups.setdefault(group, _Membership())
            is_new = is_new or membership.at < now - _MEMBERSHIP_S
            membership.at = now
            membership.connections += is_first
        return is_new

    def remove(self, client: ClientKey, group: GroupRef) -> None:
        """A connection with this membership has closed."""
        for table, key in zip((self._by_client, self._by_instance), related_keys(client), strict=False):
            groups = table.get(key, {})
            membership = groups.get(group)
            if membership is not None:
                membership.connections -= 1
                if membership.connections <= 0:
                    del groups[group]
                    if not groups:
                        del table[key]

    def groups_of(self, client: ClientKey, now: float) -> tuple[GroupRef, ...]:
        return _active(self._by_client.get(client), now)

    def instance_groups_of(self, client: ClientKey, now: float) -> tuple[GroupRef, ...]:
        """The groups of all clients of its Streams instance: producers and restore consumers are in none."""
        keys = related_keys(client)
        return _active(self._by_instance.get(keys[-1]), now) if len(keys) > 1 else ()

    def add_client(self, client: ClientKey) -> bool:
        """Note the name of a client; True if its principal became a shared one."""
        principal, client_id = client.principal, client.client_id
        if principal is None or principal == ANONYMOUS or client_id is None or not is_configured(client_id):
            return False
        stems = self._stems.setdefault(principal, set())
        self._stems.move_to_end(principal)
        if len(self._stems) > min(self._most, _MOST_PRINCIPALS):
            self._stems.popitem(last=False)
        if len(stems) >= _MOST_STEMS:
            return False
        stems.add(stem(streams_instance(client_id) or client_id)[:_LONGEST_STEM])
        return len(stems) == _MOST_STEMS

    def is_shared_principal(self, principal: str | None) -> bool:
        return principal is not None and len(self._stems.get(principal, ())) >= _MOST_STEMS


def related_keys(client: ClientKey) -> tuple[ClientKey, ...]:
    """The key of the client, and that of the Streams instance that it is part of."""
    instance = streams_instance(client.client_id)
    return (client,) if instance is None else (client, client._replace(client_id=instance))


def _active(groups: dict[GroupRef, _Membership] | None, now: float) -> tuple[GroupRef, ...]:
    return tuple(one for one, found in (groups or {}).items() if found.at >= now - _MEMBERSHIP_S)
