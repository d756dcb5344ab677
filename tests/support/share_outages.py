"""A dead-letter topic that fails while a share group of twenty partitions rejects a tenth of its records.

One rule: the primary stream must go on whatever the outage is and however long it lasts. What could not be written is
archived, told as timed out, and never counted in the rate; when the outage is over, dead letters are written again.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.share_consumers import Settings, ShareJvm, is_rejected
from tests.support.share_scene import (
    BREAKER,
    DLQ_TOPIC,
    MINIMUM,
    THRESHOLD,
    WRITE_TIMEOUT,
    ShareScene,
    until,
)
from tests.support.share_truth import Spot

PARTITIONS, REJECTS_PERCENT = 20, 10
TIMEOUT_MS = 1000
PACE_S = 0.2  # a record for each partition
# The write timeout, and a machine on which others work too.
LONGEST_SILENCE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endured:
    """The figures of one group; the silence is the longest time without a delivery during the outage."""

    sent: int
    timed_out: int
    written_late: int
    longest_silence_s: float


class Ordeal:
    """One group with its dead-letter topic; a breaker that would trip at the first dead letter watches."""

    def __init__(
        self,
        scene: ShareScene,
        jvm: ShareJvm,
        dlq: str,
        *,
        settings: Settings | None = None,
        replicas: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.scene, self.dlq = scene, dlq
        self.topic = scene.new_topic(partitions=PARTITIONS, replicas=replicas)
        self.group = scene.new_group(
            {DLQ_TOPIC: dlq, WRITE_TIMEOUT: str(TIMEOUT_MS), BREAKER: "true", THRESHOLD: "1", MINIMUM: "1"}
        )
        self._rejected: set[Spot] = set()
        self._sent = 0
        self._silent_s = 0.0
        self._member = jvm.join(
            self.group, settings or scene.bootstrap, self.group, [self.topic], rejects_percent=REJECTS_PERCENT
        )

    def send(self, value: str = "x") -> None:
        """A record for each partition."""
        keys = [str(self._sent + at).encode() for at in range(PARTITIONS)]
        self.scene.send(self.topic, [value] * PARTITIONS, partitions=PARTITIONS, keys=keys)
        offset = self._sent // PARTITIONS
        if value == "x":
            self._rejected |= {(at, offset) for at, key in enumerate(keys) if is_rejected(key, REJECTS_PERCENT)}
        self._sent += PARTITIONS

    def warm_up(self) -> None:
        """Until a record of each partition is done with, all of them accepted: a dead letter would trip the breaker."""
        self.send("A:")
        self.scene.wait_for_end(self.group, self.topic, self._sent)

    def check_during_the_outage(self) -> Endured:
        """Everything that was sent is done with, while no dead letter can be written."""
        fate = self.scene.wait_for_end(self.group, self.topic, self._sent)
        assert self._rejected, "too short: nothing was rejected"
        assert fate.archived == self._rejected
        assert len(fate.acknowledged) == self._sent - len(self._rejected)
        until(lambda: self._told("write_timeout") >= self._rejected, what=lambda: str(self._told("write_timeout")))
        assert self._told("write_timeout") == self._rejected, "and nothing else"
        status = self.scene.status(self.group)
        assert (status["dlq_written"], status["paused"]) == (0, False), "never in the rate"
        timeouts = "headgate_share_group_dlq_write_timeouts_total"
        until(lambda: self.scene.gateway.metric(timeouts, group=self.group) == len(self._rejected))
        assert self._member.errors == []
        self._silent_s = self._silence()
        return self._endured(self._rejected, set())

    def check_afterwards(self) -> Endured:
        """Dead letters are written again; one of those that were given up may come, and is told to be late."""
        self.scene.configure(self.group, {BREAKER: "false"})
        before = set(self._rejected)

        def is_written_again() -> bool:
            self.send()
            return bool(self._letters() - before)

        until(is_written_again, 60)
        fate = self.scene.wait_for_end(self.group, self.topic, self._sent)
        self._member.close()
        assert self._member.errors == []
        timed_out, written = self._told("write_timeout"), self._letters()
        assert fate.archived == self._rejected
        assert self._rejected <= written | timed_out
        late = written & timed_out
        until(lambda: late <= self._told("late_write"), what=lambda: f"{late} of {self._told('late_write')}")
        return self._endured(timed_out, late)

    def _endured(self, timed_out: set[Spot], late: set[Spot]) -> Endured:
        return Endured(
            sent=self._sent, timed_out=len(timed_out), written_late=len(late), longest_silence_s=self._silent_s
        )

    def _letters(self) -> set[Spot]:
        return {letter.spot for letter in self.scene.letters(self.dlq)}

    def _told(self, event: str) -> set[Spot]:
        return {spot for told in self.scene.events(self.group, event) for spot in spots_of(told["detail"])}

    def _silence(self) -> float:
        """The longest time without a delivery while there was something to deliver."""
        times = [event["at_ms"] / 1000 for event in self._member.events("polled")]
        return max((later - sooner for sooner, later in itertools.pairwise(times)), default=0.0)


def spots_of(detail: dict[str, Any]) -> set[Spot]:
    """The places that an event's detail names."""
    return {(detail["partition"], offset) for first, last in detail["offsets"] for offset in range(first, last + 1)}


def endure(
    ordeals: Sequence[Ordeal], break_it: Callable[[], object], mend_it: Callable[[], object], *, seconds: float
) -> list[Endured]:
    """All of them through one outage of so many seconds; the figures at its end."""
    for ordeal in ordeals:
        ordeal.warm_up()
    break_it()
    by = time.monotonic() + seconds
    while time.monotonic() < by:
        began = time.monotonic()
        for ordeal in ordeals:
            ordeal.send()
        time.sleep(max(0.0, began + PACE_S - time.monotonic()))
    figures = [ordeal.check_during_the_outage() for ordeal in ordeals]
    for one in figures:
        assert one.longest_silence_s < LONGEST_SILENCE_S, one
    mend_it()
    return [ordeal.check_afterwards() for ordeal in ordeals]
