"""The metrics of topologies: those of KIP-1331 under Prometheus' names, and why members were not solicited."""

from collections import Counter

from headgate.proxy.features import MetricFamily
from headgate.topologies.model.push_gate import Solicitation
from headgate.topologies.model.streams_groups import GroupCounts

FAMILIES = (
    MetricFamily(
        "headgate_topologies_ready",
        "gauge",
        "1 when topology descriptions of Streams groups can be requested, stored and shown",
        merge="min",
    ),
    MetricFamily("headgate_topologies_groups", "gauge", "Streams groups known to this gateway", merge="min"),
    MetricFamily(
        "headgate_topologies_unconfirmed_groups",
        "gauge",
        "Streams groups whose stored description is unconfirmed or uncertain: a member has to push it",
        merge="min",
    ),
    MetricFamily(
        "headgate_topologies_failed_groups",
        "gauge",
        "Streams groups whose description failed permanently at their epoch: its members are not asked again",
        merge="min",
    ),
    MetricFamily(
        "headgate_topologies_backing_off_groups",
        "gauge",
        "Streams groups whose members are not asked for their topology until a back-off ends",
    ),
    MetricFamily(
        "headgate_topologies_mismatched_groups",
        "gauge",
        "Streams groups whose members run different topologies: refused by the broker, joined with different ones,"
        " or pushed different descriptions",
        ("kind",),
    ),
    MetricFamily(
        "headgate_topologies_heartbeats",
        "counter",
        "Heartbeats of Streams members: ask when the member was asked for its topology, else the reason why not",
        ("verdict",),
    ),
    MetricFamily(
        "headgate_topologies_pushes",
        "counter",
        "Pushed topology descriptions, by error code of the response",
        ("error_code",),
    ),
    MetricFamily("headgate_topologies_store_calls", "counter", "Calls to the topology store", ("call", "outcome")),
    MetricFamily(
        "headgate_topologies_hanging_store_calls",
        "gauge",
        "Calls to the topology store that were cancelled and have not ended; from 64 on a worker does not call it",
    ),
    MetricFamily(
        "headgate_topologies_lost_descriptions",
        "counter",
        "Topology descriptions that their topic lost; members push them again",
    ),
    MetricFamily("headgate_topologies_cleanup_cycles", "counter", "Completed cleanups of topology descriptions"),
    MetricFamily(
        "headgate_topologies_cleanup_eligible",
        "counter",
        "Groups that a cleanup found deleted and whose descriptions it deleted",
    ),
    MetricFamily(
        "headgate_topologies_removed_records",
        "counter",
        "Records of topologies that were removed from the topics: of deleted groups, and versions beyond versions_kept",
        ("reason",),
    ),
    MetricFamily(
        "headgate_topologies_gate_failures",
        "counter",
        "Heartbeats that were answered although the decision to ask for a topology failed",
    ),
    MetricFamily("headgate_topologies_failures", "counter", "Failed background tasks of topologies"),
)


class TopologyMetrics:
    """The counters of one worker."""

    def __init__(self) -> None:
        # The KIP's sensor streams-group-topology-description-<call>-<outcome>-count, for calls of a store.
        calls = [(call, outcome) for call in ("set", "get", "delete") for outcome in ("success", "error")]
        self.store_calls: Counter[tuple[str, str]] = Counter(dict.fromkeys(calls, 0))
        self.cleanup_cycles = 0
        self.cleanup_eligible = 0
        self.removed_records: Counter[str] = Counter(dict.fromkeys(("deleted", "versions"), 0))
        self.heartbeats: Counter[Solicitation] = Counter(dict.fromkeys(Solicitation, 0))
        self.gate_failures = 0
        self.failures = 0  # of background tasks
        self.pushes: Counter[int] = Counter()  # by error code

    def count_store_call(self, call: str, *, failed: bool) -> None:
        self.store_calls[call, "error" if failed else "success"] += 1

    def samples(
        self, *, ready: bool, groups: GroupCounts, backing_off: int, lost_descriptions: int, hanging: int
    ) -> dict[tuple[str, tuple[str, ...]], float]:
        samples: dict[tuple[str, tuple[str, ...]], float] = {
            ("headgate_topologies_ready", ()): float(ready),
            ("headgate_topologies_groups", ()): groups.known,
            ("headgate_topologies_unconfirmed_groups", ()): groups.unconfirmed,
            ("headgate_topologies_failed_groups", ()): groups.failed,
            ("headgate_topologies_backing_off_groups", ()): backing_off,
            ("headgate_topologies_lost_descriptions", ()): lost_descriptions,
            ("headgate_topologies_hanging_store_calls", ()): hanging,
            ("headgate_topologies_cleanup_cycles", ()): self.cleanup_cycles,
            ("headgate_topologies_cleanup_eligible", ()): self.cleanup_eligible,
            ("headgate_topologies_gate_failures", ()): self.gate_failures,
            ("headgate_topologies_failures", ()): self.failures,
        }
        for (call, outcome), count in self.store_calls.items():
            samples["headgate_topologies_store_calls", (call, outcome)] = count
        for solicitation, count in self.heartbeats.items():
            samples["headgate_topologies_heartbeats", (solicitation.value,)] = count
        for reason, count in self.removed_records.items():
            samples["headgate_topologies_removed_records", (reason,)] = count
        for code, count in self.pushes.items():
            samples["headgate_topologies_pushes", (str(code),)] = count
        return samples
