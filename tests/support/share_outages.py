"""Share groups under load whose dead-letter topics fail, at the default settings of gateway, broker and clients.

One rule: a run compares with itself. The same load runs through a healthy phase and through the outage, so a busy
machine does not decide; afterwards each rejected offset is judged by the broker's own states (`share_truth`): what the
broker archived has its dead letter, and nothing else has one.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace

from headgate.share_groups.spool.model.records import SpooledDeadLetter, SpoolTombstone, decode_spooled
from tests.support.share_consumers import Settings, ShareJvm
from tests.support.share_load import Load
from tests.support.share_scene import DLQ_TOPIC, ShareScene, until
from tests.support.share_truth import ACKNOWLEDGED, ARCHIVED, DeadLetter, Reading, Spot, share_states, spots_of

RATE = 1000  # records a second for each partition
REJECTS_PERCENT = 10
_WARM_UP_S = 3.0
_SETTLING_S = 5.0  # of load behind the outage: later dead letters follow those that wait
DEAD_LETTERS_S = 150.0  # a dead letter that was too large for its topic is tried again once a minute
_REPORTS_S = 10.0

Blow = tuple[float, Callable[[], object]]  # seconds after the outage began, and what happens then


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageLimits:
    """What an outage may cost; a commit also as long as in the control, or so many times as in the healthy phase."""

    commit_s: float = 1.0
    commit_ratio: float = 0.0
    throughput: float = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A way in which a dead-letter topic fails. With `is_read_before` its letters do not outlive the outage.

    With `is_control` the topic itself does not fail: what commits of this group wait for is not the dead-letter topic.
    `stopped` is the broker that stops: it does not keep the states of the group's records, because the commits of such
    a group wait for its next share coordinator, with a gateway and without.
    """

    kind: str
    dlq: str
    begin: Callable[[], object]
    end: Callable[[], object]
    is_read_before: bool = False
    is_control: bool = False
    replicas: Sequence[Sequence[int]] | None = None  # of the primary topic
    stopped: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """What a group did in one phase."""

    began: float  # wall clock, as the events of the members; of an outage when it was brought about
    ended: float
    seconds: float  # of the measurement of its throughput
    records: int

    @property
    def rate(self) -> float:
        return self.records / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Endured:
    """The figures of one group; `problems` is empty when every promise was kept."""

    kind: str
    partitions: int
    sent: int
    healthy_rate: float
    outage_rate: float
    healthy_commit_s: float
    outage_commit_s: float
    archived: int
    dead_letters: int
    repeated_dead_letters: int
    timed_out: int
    late: int
    withdrawn: int
    lost: int
    left_in_spool: int
    states_read: int
    dead_letters_after_s: float
    problems: tuple[str, ...] = ()

    @property
    def throughput(self) -> float:
        return self.outage_rate / self.healthy_rate

    def judged(self, limits: OutageLimits, control_commit_s: float) -> "Endured":
        """With what the outage has cost."""
        told = list(self.problems)
        allowed = max(limits.commit_s, limits.commit_ratio * self.healthy_commit_s, control_commit_s)
        if self.outage_commit_s > allowed:
            told.append(f"the longest commit took {self.outage_commit_s:.2f} s, {allowed:.2f} allowed")
        if self.throughput < limits.throughput:
            told.append(f"{self.throughput:.2f} of the healthy throughput, {limits.throughput} allowed")
        return replace(self, problems=tuple(told))


@dataclass(slots=True)
class _DeadLetters:
    """Every dead letter that was seen, also those of a topic that is gone."""

    scene: ShareScene
    topic: str
    spots: Counter[Spot] = field(default_factory=Counter)
    over_limit: set[Spot] = field(default_factory=set)
    _reader: Reading | None = None

    def read(self) -> Counter[Spot]:
        if self._reader is None:
            self._reader = Reading(self.scene.direct, self.topic)
        for partition, key, value, headers in self._reader.to_the_end():
            texts = {name: (held or b"").decode(errors="backslashreplace") for name, held in headers}
            dead_letter = DeadLetter(partition=partition, key=key, value=value, headers=texts)
            self.spots[dead_letter.spot] += 1
            if texts["__dlq.errors.message"].startswith("Offset delivery count"):
                self.over_limit.add(dead_letter.spot)
        return self.spots

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class LoadedGroup:
    """One group with its load, a member of each JVM that commits after each poll, and its dead-letter topic."""

    def __init__(
        self,
        scene: ShareScene,
        outage: Outage,
        jvms: Sequence[ShareJvm],
        addresses: Sequence[Settings],
        *,
        partitions: int,
        rate: int,
    ) -> None:
        self.outage = outage
        self._scene, self._partitions = scene, partitions
        self._topic = scene.new_topic(partitions=partitions, replicas=outage.replicas)
        self._topic_id = scene.topic_id(self._topic)
        self._group = self._new_group()
        self._dead_letters = _DeadLetters(scene, outage.dlq)
        self._states: dict[Spot, int] = {}
        self._members = [
            jvm.join(
                f"{self._group}-{at}",
                addresses[at % len(addresses)],
                self._group,
                [self._topic],
                commit="sync",
                rejects_percent=REJECTS_PERCENT,
                each=False,
            )
            for at, jvm in enumerate(jvms)
        ]
        self.load = Load(scene, self._topic, rate=rate * partitions, partitions=partitions)

    def _new_group(self) -> str:
        """A group whose states are not kept by the broker that stops."""
        scene, stopped = self._scene, self.outage.stopped
        while True:
            group = scene.new_group({DLQ_TOPIC: self.outage.dlq})
            if stopped is None:
                return group
            address = scene.cluster.bootstrap.split(",")[stopped]
            if all(scene.share_coordinator(group, self._topic_id, one) != address for one in range(self._partitions)):
                return group

    def is_busy(self) -> bool:
        return all(member.events("committed") for member in self._members) and self._lag() >= 0

    def done(self) -> int:
        """How many records the broker is done with."""
        until(lambda: self._lag() >= 0)
        sent = self.load.sent
        return sent - self._lag()

    def _lag(self) -> int:
        return self._scene.lag(self._group, self._topic, self._partitions)

    def look(self) -> None:
        """Keep the broker's answer to ReadShareGroupState: what is acknowledged or archived stays so."""
        with suppress(OSError, EOFError):
            for partition in range(self._partitions):
                address = self._scene.share_coordinator(self._group, self._topic_id, partition)
                found = share_states(address, self._group, self._topic_id, partition)
                self._states |= {spot: state for spot, state in found.items() if state in {ACKNOWLEDGED, ARCHIVED}}

    def keep_history(self) -> None:
        """Read the broker's log of states on, before the broker prunes it."""
        self._scene.fate(self._group, self._topic)

    def read_dead_letters(self) -> None:
        """At a moment when nothing is under way: all dead letters so far."""
        self._scene.wait_for_end(self._group, self._topic, self.load.sent)
        archived = self._scene.fate(self._group, self._topic).archived
        until(
            lambda: archived <= set(self._dead_letters.read()),
            what=lambda: (
                f"{len(archived)} archived, without a dead letter: {sorted(archived - set(self._dead_letters.read()))}"
            ),
        )
        self._dead_letters.close()

    def longest_commit(self, spell: Spell) -> float:
        """Of the commits that were under way in the phase, whenever they ended."""
        begin, end = spell.began * 1000, spell.ended * 1000
        return max(
            (
                event["took_ms"] / 1000
                for member in self._members
                for event in member.events("committed")
                if event["at_ms"] >= begin and event["at_ms"] - event["took_ms"] <= end
            ),
            default=0.0,
        )

    def finish(self, healthy: Spell, outage: Spell, *, with_kills: bool, dead_letters_s: float) -> Endured:
        """Stop the load, wait until the broker is done with everything, and judge each offset."""
        sent = self.load.stop()
        ended = time.monotonic()
        fate = self._scene.wait_for_end(self._group, self._topic, sent)
        for member in self._members:
            member.close()
        with suppress(AssertionError):  # missing dead letters are reported below
            until(lambda: fate.archived <= set(self._dead_letters.read()), dead_letters_s)
        after_s = time.monotonic() - ended
        with suppress(AssertionError):
            until(lambda: not self._left_in_spool(), _REPORTS_S)
        with suppress(AssertionError):
            until(
                lambda: self._told("write_timeout") & set(self._dead_letters.spots) <= self._told("late_write"),
                _REPORTS_S,
            )
        left = self._left_in_spool()
        dead_letters, over = self._dead_letters.read(), self._dead_letters.over_limit
        self._dead_letters.close()
        rejected = self.load.rejected(REJECTS_PERCENT)
        timed_out, late = self._told("write_timeout"), self._told("late_write")
        withdrawn = self._told("dead_letter_withdrawn")
        wrong = {
            "archived without a dead letter": fate.archived - set(dead_letters) - left,
            "left in the spool": left,
            "rejected and not archived": rejected - fate.archived,
            "archived, neither rejected nor over the limit": fate.archived - rejected - over,
            "a dead letter of a record that is not archived": set(dead_letters) - fate.archived - withdrawn,
            "timed out, arrived, and not reported as late": (timed_out & set(dead_letters)) - late,
            "reported as late and never timed out": late - timed_out,
            "ReadShareGroupState and the log of states differ": {
                spot for spot, state in self._states.items() if fate.last[spot].state != state
            },
        }
        told = [f"{what}: {sorted(spots)[:5]} ({len(spots)})" for what, spots in wrong.items() if spots]
        if not with_kills:
            told += [f"a member: {error}" for member in self._members for error in member.errors[:3]]
        if not rejected:
            told.append("too short: nothing was rejected")
        return Endured(
            kind=self.outage.kind,
            partitions=self._partitions,
            sent=sent,
            healthy_rate=healthy.rate,
            outage_rate=outage.rate,
            healthy_commit_s=self.longest_commit(healthy),
            outage_commit_s=self.longest_commit(outage),
            archived=len(fate.archived),
            dead_letters=len(dead_letters),
            repeated_dead_letters=dead_letters.total() - len(dead_letters),
            timed_out=len(timed_out),
            late=len(late),
            withdrawn=len(withdrawn),
            lost=len(fate.archived - set(dead_letters) - left),
            left_in_spool=len(left),
            states_read=len(self._states),
            dead_letters_after_s=after_s,
            problems=tuple(told),
        )

    def close(self) -> None:
        self.load.stop()
        self._dead_letters.close()

    def _told(self, event: str) -> set[Spot]:
        return {spot for told in self._scene.events(self._group, event) for spot in spots_of(told["detail"])}

    def _left_in_spool(self) -> set[Spot]:
        """The places of this group's dead letters in the spool that are no tombstone in a partition of it."""
        reader = Reading(self._scene.direct, f"{self._scene.facts}spool")
        last: dict[tuple[int, Spot], bool] = {}
        try:
            for spool_partition, key, value, headers in reader.to_the_end():
                record = decode_spooled(key, value, headers)
                if isinstance(record, SpooledDeadLetter | SpoolTombstone) and record.identity[0] == self._group:
                    *_, partition, offset = record.identity
                    last[spool_partition, (partition, offset)] = isinstance(record, SpooledDeadLetter)
        finally:
            reader.close()
        return {spot for (_, spot), is_there in last.items() if is_there}


def endure(
    scene: ShareScene,
    outages: Sequence[Outage],
    jvms: Sequence[ShareJvm],
    *,
    healthy_s: float,
    outage_s: float,
    partitions: int = 1,
    rate: int = RATE,
    addresses: Sequence[Settings] = (),
    blows: Sequence[Blow] = (),
    blows_after: Sequence[Blow] = (),
    limits: OutageLimits | None = None,
    dead_letters_s: float = DEAD_LETTERS_S,
) -> list[Endured]:
    """A group for each outage, all at the same time: healthy, then the outage, then the judgement.

    `blows` come during the outage, `blows_after` behind its end, while what waits is written. Every dead letter is in
    its topic `letters_s` after the load has ended, or counts as lost.
    """
    with _loaded(scene, outages, jvms, addresses or [scene.bootstrap], partitions, rate) as groups:
        until(lambda: all(group.is_busy() for group in groups))
        _pass(groups, _WARM_UP_S)
        healthy = _spells(groups, healthy_s)
        for group in groups:
            if group.outage.is_read_before:
                group.load.pause()
                group.read_dead_letters()
        began = time.time()
        for begin in _distinct(group.outage.begin for group in groups):
            begin()
        for group in groups:
            group.load.resume()
        outage = [replace(one, began=began) for one in _spells(groups, outage_s, blows)]
        for end in _distinct(group.outage.end for group in groups):
            end()
        _pass(groups, _SETTLING_S, blows_after)
        for group in groups:
            group.load.stop()
        with_kills = bool(blows or blows_after)
        found = [
            group.finish(before, during, with_kills=with_kills, dead_letters_s=dead_letters_s)
            for group, before, during in zip(groups, healthy, outage, strict=True)
        ]
    if with_kills:  # a kill ends connections, which takes its time
        return found
    controls = [one.outage_commit_s for one, group in zip(found, groups, strict=True) if group.outage.is_control]
    return [one.judged(limits or OutageLimits(), max(controls, default=0.0)) for one in found]


@contextmanager
def _loaded(
    scene: ShareScene,
    outages: Sequence[Outage],
    jvms: Sequence[ShareJvm],
    addresses: Sequence[Settings],
    partitions: int,
    rate: int,
) -> Iterator[list[LoadedGroup]]:
    with ExitStack() as stack:
        groups: list[LoadedGroup] = []
        for outage in outages:
            groups.append(LoadedGroup(scene, outage, jvms, addresses, partitions=partitions, rate=rate))
            stack.callback(groups[-1].close)
        yield groups


def _spells(groups: Sequence[LoadedGroup], seconds: float, blows: Sequence[Blow] = ()) -> list[Spell]:
    begun = [(group.done(), time.time()) for group in groups]
    _pass(groups, seconds, blows)
    ended = [(group.done(), time.time()) for group in groups]
    for group in groups:
        group.keep_history()
    return [
        Spell(began=began, ended=end, seconds=end - began, records=after - before)
        for (before, began), (after, end) in zip(begun, ended, strict=True)
    ]


def _pass(groups: Sequence[LoadedGroup], seconds: float, blows: Sequence[Blow] = ()) -> None:
    """So many seconds, with a look at the broker's states about once in two."""
    end = time.monotonic() + seconds
    for at_s, blow in [*blows, (seconds, lambda: None)]:
        while (left := end - seconds + at_s - time.monotonic()) > 0:
            time.sleep(min(2.0, left))
            for group in groups:
                group.look()
        blow()


def _distinct(actions: Iterator[Callable[[], object]]) -> list[Callable[[], object]]:
    """Two groups can share an outage: it begins and ends once."""
    return list(dict.fromkeys(actions))
