"""Decides which groups a round polls, in which requests, and when it has read enough.

Invariant: a group that a round leaves out comes before those that it has polled in the next round, so that a cluster
beyond the limits is polled in turn and no group is left out for ever.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from headgate.facts.lags import GroupKind

# Of one request: its response has some 100 kB. A share group's offsets cost the broker a read of its state each.
_GROUPS_PER_REQUEST: Final = 200
_PARTITIONS_PER_REQUEST: Final = 5_000
_SHARE_GROUPS_PER_REQUEST: Final = 50
_SHARE_PARTITIONS_PER_REQUEST: Final = 500
_GUESSED_PARTITIONS: Final = 20  # of a group that was not polled yet
_FORGOTTEN_AFTER: Final = 100  # rounds in which a group was not listed


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLimits:
    """The most that one round reads and writes; `fact_bytes` are those of all facts, as if each was written."""

    groups: int = 20_000
    partitions: int = 200_000
    fact_bytes: int = 16 * 1024 * 1024


class LagGroup(NamedTuple):
    """A group that its coordinator has listed; `node` is the coordinator."""

    name: str
    kind: GroupKind
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """The requests of a round by node, each a tuple of groups, and the number of groups that are left out."""

    requests: Mapping[int, Sequence[tuple[LagGroup, ...]]]
    left_out: int


class RoundPlanner:
    """Remembers in which round each group was polled last, and how many partitions it had.

    A group is forgotten when a complete list lacks it, or all lists of a hundred rounds do: while a broker cannot be
    reached no list is complete, and the names of short-lived groups must not grow without bound.
    """

    def __init__(self, limits: RoundLimits) -> None:
        self._limits = limits
        self._round = 0
        self._last: dict[str, tuple[int, int]] = {}
        self._listed: dict[str, int] = {}  # in which round

    @property
    def known(self) -> Collection[str]:
        """The groups that are not forgotten."""
        return self._listed.keys()

    def plan(self, listed: Iterable[LagGroup], *, is_complete: bool) -> RoundPlan:
        """Plan the next round; `is_complete`: these are all groups, so that others can be forgotten."""
        self._round += 1
        groups = {one.name: one for one in listed}
        self._listed.update(dict.fromkeys(groups, self._round))
        since = self._round if is_complete else self._round - _FORGOTTEN_AFTER
        self._listed = {name: listed for name, listed in self._listed.items() if listed > since or name in groups}
        self._last = {name: last for name, last in self._last.items() if name in self._listed}
        never = (0, _GUESSED_PARTITIONS)
        ordered = sorted(groups.values(), key=lambda one: (self._last.get(one.name, never)[0], one.name))
        chosen = ordered[: self._limits.groups]
        by_node: dict[int, list[LagGroup]] = defaultdict(list)
        for one in chosen:
            by_node[one.node].append(one)
        return RoundPlan(
            requests={node: self._requests(some) for node, some in by_node.items()},
            left_out=len(ordered) - len(chosen),
        )

    def on_polled(self, group: str, partitions: int) -> None:
        self._last[group] = self._round, partitions

    def _requests(self, groups: Sequence[LagGroup]) -> list[tuple[LagGroup, ...]]:
        """Share groups in requests of their own, which another api takes."""
        made: list[tuple[LagGroup, ...]] = []
        for is_share in (False, True):
            most = _SHARE_GROUPS_PER_REQUEST if is_share else _GROUPS_PER_REQUEST
            most_partitions = _SHARE_PARTITIONS_PER_REQUEST if is_share else _PARTITIONS_PER_REQUEST
            some: list[LagGroup] = []
            partitions = 0
            for one in groups:
                if (one.kind == "share") is not is_share:
                    continue
                size = self._last.get(one.name, (0, _GUESSED_PARTITIONS))[1]
                if some and (len(some) == most or partitions + size > most_partitions):
                    made.append(tuple(some))
                    some, partitions = [], 0
                some.append(one)
                partitions += size
            if some:
                made.append(tuple(some))
        return made


class RoundBudget:
    """What is left of a round's limits. The group that exceeds them is still taken, so that none is too large."""

    def __init__(self, limits: RoundLimits) -> None:
        self._partitions = limits.partitions
        self._bytes = limits.fact_bytes

    @property
    def is_used_up(self) -> bool:
        return self._partitions <= 0 or self._bytes <= 0

    def take(self, *, partitions: int, fact_bytes: int) -> None:
        self._partitions -= partitions
        self._bytes -= fact_bytes
