"""What topologies count: the metrics of KIP-1331 under Prometheus' names, and why members were not asked."""

from collections import Counter

from headgate.proxy.features import MetricFamily
from headgate.topologies.model.push_gate import Verdict

FAMILIES = (
    MetricFamily(
        "headgate_topologies_ready",
        "gauge",
        "1 when descriptions of Streams topologies can be asked for, stored and shown",
        merge="min",
    ),
    MetricFamily("headgate_topologies_groups", "gauge", "Streams groups known to this gateway", merge="min"),
    MetricFamily(
        "headgate_topologies_heartbeats",
        "counter",
        "Heartbeats of Streams members, by whether the member was asked for its topology or why not",
        ("verdict",),
    ),
    MetricFamily(
        "headgate_topologies_pushes",
        "counter",
        "Pushed topology descriptions, by error code of the response",
        ("error_code",),
    ),
    MetricFamily("headgate_topologies_store_calls", "counter", "Calls to the topology store", ("call", "outcome")),
    MetricFamily("headgate_topologies_cleanup_cycles", "counter", "Completed cleanups of topology descriptions"),
    MetricFamily("headgate_topologies_cleanup_eligible", "counter", "Groups that a cleanup found deleted"),
    MetricFamily(
        "headgate_topologies_gate_failures",
        "counter",
        "Heartbeats that were answered although the decision to ask for a topology failed",
    ),
)

# The KIP's sensor streams-group-topology-description-<call>-<outcome>-count, for calls of a store.
STORE_CALLS = tuple((call, outcome) for call in ("set", "get", "delete") for outcome in ("success", "error"))


class TopologyMeter:
    """Plain counters of one worker."""

    __slots__ = ("cleanup_cycles", "cleanup_eligible", "gate", "gate_failures", "pushes", "store")

    def __init__(self) -> None:
        self.store: Counter[tuple[str, str]] = Counter(dict.fromkeys(STORE_CALLS, 0))
        self.cleanup_cycles = 0
        self.cleanup_eligible = 0
        self.gate: Counter[Verdict] = Counter(dict.fromkeys(Verdict, 0))
        self.gate_failures = 0
        self.pushes: Counter[int] = Counter()  # by the error code that was answered

    def called(self, call: str, *, failed: bool) -> None:
        self.store[call, "error" if failed else "success"] += 1

    def samples(self, *, ready: bool, groups: int) -> dict[tuple[str, tuple[str, ...]], float]:
        """The current values of `FAMILIES`."""
        samples: dict[tuple[str, tuple[str, ...]], float] = {
            ("headgate_topologies_ready", ()): float(ready),
            ("headgate_topologies_groups", ()): groups,
            ("headgate_topologies_cleanup_cycles", ()): self.cleanup_cycles,
            ("headgate_topologies_cleanup_eligible", ()): self.cleanup_eligible,
            ("headgate_topologies_gate_failures", ()): self.gate_failures,
        }
        for (call, outcome), count in self.store.items():
            samples["headgate_topologies_store_calls", (call, outcome)] = count
        for verdict, count in self.gate.items():
            samples["headgate_topologies_heartbeats", (verdict.value,)] = count
        for code, count in self.pushes.items():
            samples["headgate_topologies_pushes", (str(code),)] = count
        return samples
