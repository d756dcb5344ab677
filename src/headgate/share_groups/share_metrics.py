"""The metrics of share groups, three of them those of KIP-1316 under Prometheus' names.

Group and topic names come from group configs: only managed groups are labels. `proxy/metric_series.py` bounds them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from headgate.proxy.features import MetricFamily
from headgate.proxy.metric_series import MOST_SERIES, OTHERS, short_label
from headgate.share_groups.spool.model.index import SpoolTotals

FAMILIES: Final = (
    MetricFamily(
        "headgate_share_groups_ready",
        "gauge",
        "1 when the state of share groups (dead letters, breaker, pause) is known",
        merge="min",
    ),
    MetricFamily("headgate_share_groups_leading", "gauge", "1 when a worker of this gateway evaluates the breakers"),
    MetricFamily("headgate_share_groups_paused", "gauge", "Paused share groups", merge="min"),
    MetricFamily("headgate_share_groups_held_ranges", "gauge", "Ranges of records that members have acquired"),
    MetricFamily("headgate_share_groups_acquired_records", "counter", "Records that members acquired"),
    MetricFamily(
        "headgate_share_groups_stripped_records",
        "counter",
        "Records that were not delivered again because of their delivery count",
    ),
    MetricFamily(
        "headgate_share_groups_late_dead_letters",
        "counter",
        "Dead letters that were written after their deadline",
    ),
    MetricFamily(
        "headgate_share_groups_withdrawn_dead_letters",
        "counter",
        "Dead letters that were withdrawn because their record was not archived",
    ),
    MetricFamily(
        "headgate_share_groups_ignored_records",
        "counter",
        "Records that breaker windows did not count, by reason: acquired before a trip, or older than the window",
        ("why",),
    ),
    MetricFamily("headgate_share_groups_facts_lost", "counter", "Counts and events that could not be written"),
    MetricFamily(
        "headgate_share_groups_unwritten_facts",
        "gauge",
        "Decisions that hold and that their topic lost: they are written again",
    ),
    MetricFamily("headgate_share_groups_failures", "counter", "Failed background tasks of share groups"),
    MetricFamily(
        "headgate_share_group_dead_letters",
        "counter",
        "Dead letters written to their topic or to the spool",
        ("group",),
    ),
    MetricFamily(
        "headgate_share_group_moved_dead_letters",
        "counter",
        "Dead letters that were moved from the spool to their topics",
        ("group",),
    ),
    MetricFamily(
        "headgate_share_group_spooled_dead_letters",
        "gauge",
        "Dead letters in the spool that wait for their topic",
        ("group",),
        merge="min",
    ),
    MetricFamily(
        "headgate_share_group_spooled_bytes",
        "gauge",
        "Bytes of dead letters in the spool, also of parked ones",
        ("group",),
        merge="min",
    ),
    MetricFamily(
        "headgate_share_group_oldest_spooled_seconds",
        "gauge",
        "Age of the oldest dead letter in the spool that waits for its topic",
        ("group",),
        merge="min",
    ),
    MetricFamily(
        "headgate_share_group_parked_dead_letters",
        "gauge",
        "Dead letters in the spool that cannot be moved to their topics",
        ("group",),
        merge="min",
    ),
    MetricFamily(
        "headgate_share_group_dlq_circuit_breaker_tripped",
        "counter",
        "Trips of the circuit breaker (DlqCircuitBreakerTripped)",
        ("group",),
    ),
    MetricFamily(
        "headgate_share_group_dlq_write_timeouts",
        "counter",
        "Dead letters that were not in their topic within write.timeout.ms (DlqWriteTimeouts)",
        ("group",),
    ),
    MetricFamily(
        "headgate_dlq_topic_shared_by_multiple_groups",
        "gauge",
        "Share groups of a dead-letter topic that has more than one (DlqTopicSharedByMultipleGroups)",
        ("topic",),
        merge="min",
    ),
)

Samples = dict[tuple[str, tuple[str, ...]], float]


class ShareMeter:
    """Plain counters of one worker."""

    def __init__(self) -> None:
        self.trips: Counter[str] = Counter()
        self.write_timeouts: Counter[str] = Counter()
        self.dead_letters: Counter[str] = Counter()
        self.moved: Counter[str] = Counter()
        self.late_writes = 0
        self.withdrawn = 0
        self.stripped = 0
        self.acquired = 0
        self.failures = 0

    def samples(
        self,
        *,
        ready: bool,
        leading: bool,
        paused: int,
        ledger: int,
        lost: int,
        unwritten: int = 0,
        shared: Iterable[tuple[str, int]],
        ignored: Mapping[str, int],
        spooled: Iterable[tuple[str, SpoolTotals]],
        now_ms: int,
    ) -> Samples:
        """The current values of `FAMILIES`."""
        samples: Samples = {
            ("headgate_share_groups_ready", ()): float(ready),
            ("headgate_share_groups_leading", ()): float(leading),
            ("headgate_share_groups_paused", ()): paused,
            ("headgate_share_groups_held_ranges", ()): ledger,
            ("headgate_share_groups_acquired_records", ()): self.acquired,
            ("headgate_share_groups_stripped_records", ()): self.stripped,
            ("headgate_share_groups_late_dead_letters", ()): self.late_writes,
            ("headgate_share_groups_withdrawn_dead_letters", ()): self.withdrawn,
            ("headgate_share_groups_facts_lost", ()): lost,
            ("headgate_share_groups_unwritten_facts", ()): unwritten,
            ("headgate_share_groups_failures", ()): self.failures,
        }
        for name, counts in (
            ("headgate_share_group_dlq_circuit_breaker_tripped", self.trips),
            ("headgate_share_group_dlq_write_timeouts", self.write_timeouts),
            ("headgate_share_group_dead_letters", self.dead_letters),
            ("headgate_share_group_moved_dead_letters", self.moved),
        ):
            for group, count in counts.items():
                samples[name, (group,)] = count
        for why, count in ignored.items():
            samples["headgate_share_groups_ignored_records", (why,)] = count
        for topic, groups in shared:
            samples["headgate_dlq_topic_shared_by_multiple_groups", (topic,)] = groups
        for group, totals in spooled:
            age_ms = 0 if totals.oldest_at is None else max(0, now_ms - totals.oldest_at)
            samples["headgate_share_group_spooled_dead_letters", (group,)] = totals.dead_letters
            samples["headgate_share_group_spooled_bytes", (group,)] = totals.bytes + totals.parked_bytes
            samples["headgate_share_group_oldest_spooled_seconds", (group,)] = age_ms / 1000
            samples["headgate_share_group_parked_dead_letters", (group,)] = totals.parked_dead_letters
        return samples

    def count(self, counter: "Counter[str]", group: str, number: int) -> None:
        """A label for each group, and one for all that come after a thousand."""
        label = short_label(group)
        counter[label if label in counter or len(counter) < MOST_SERIES else OTHERS] += number
