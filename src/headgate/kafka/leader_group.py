"""Finds which worker leads, from outside: by the leaders' consumer group as its coordinator describes it.

All workers that may lead are members of this group, and the one that has the partition leads (`leadership.py`). The
client id of a member says which worker it is and its version, so no topic of its own is needed, and the answer
is what Kafka has decided. Client ids are chosen by clients: nothing but what is shown depends on them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException

import headgate
from headgate.base.errors import ClusterError
from headgate.kafka.topics import TopicAdmin, reason

_PRODUCT: Final = "headgate"
_LONGEST: Final = 300  # characters of a name from a client id: that of a worker has a host name and a port
_MOST_CANDIDATES: Final = 1_000


class ElectionState(StrEnum):
    LED = "led"
    ELECTING = "electing"  # for moments, while members come and go
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderCandidate:
    """A worker that leads, or will when the leader ends; a name or version that is not known is None."""

    worker: str | None
    version: str | None
    host: str
    is_leader: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderGroup:
    state: ElectionState
    candidates: tuple[LeaderCandidate, ...] = ()
    is_truncated: bool = False


def candidate_client_id(worker: str) -> str:
    """`headgate/0.1.0/gw-a:9092/0`; without a worker the client id of all clients of Headgate."""
    return f"{_PRODUCT}/{headgate.__version__}/{worker}" if worker else _PRODUCT


def parse_client_id(text: str) -> tuple[str | None, str | None]:
    """The worker and its version; None and None for a client id of another form, such as of older releases."""
    product, _, rest = text.partition("/")
    version, _, worker = rest.partition("/")
    if product != _PRODUCT or not version or not worker:
        return None, None
    return worker[:_LONGEST], version[:_LONGEST]


def describe_leader_group(admin: TopicAdmin, group: str, *, timeout_s: float) -> LeaderGroup:
    """The group now; it blocks. `ClusterError` when it cannot be described."""
    try:
        described = admin.client.describe_consumer_groups([group], request_timeout=timeout_s)
        found = described[group].result(2 * timeout_s)
    except KafkaException as failure:
        error = failure.args[0] if failure.args else None
        if isinstance(error, KafkaError) and error.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return LeaderGroup(state=ElectionState.NOBODY)
        raise ClusterError(f"the group {group} cannot be described: {reason(failure)}") from None
    except TimeoutError:
        raise ClusterError(f"the group {group} was not described within {2 * timeout_s:g} s") from None
    return leader_group_of(found.state, found.members)


def leader_group_of(state: ConsumerGroupState, members: list[Any]) -> LeaderGroup:
    """The leader in a description. While the group rebalances, members have no assignments in it."""
    candidates = sorted(map(_candidate, members), key=lambda one: (not one.is_leader, one.worker or "", one.host))
    is_truncated = len(candidates) > _MOST_CANDIDATES
    shown = tuple(candidates[:_MOST_CANDIDATES])
    if any(one.is_leader for one in shown):
        return LeaderGroup(state=ElectionState.LED, candidates=shown, is_truncated=is_truncated)
    is_settled = not shown or state is ConsumerGroupState.STABLE
    found = ElectionState.NOBODY if is_settled else ElectionState.ELECTING
    return LeaderGroup(state=found, candidates=shown, is_truncated=is_truncated)


def _candidate(member: Any) -> LeaderCandidate:
    worker, version = parse_client_id(member.client_id or "")
    return LeaderCandidate(
        worker=worker,
        version=version,
        host=(member.host or "").removeprefix("/")[:_LONGEST],
        is_leader=bool(member.assignment.topic_partitions),
    )
