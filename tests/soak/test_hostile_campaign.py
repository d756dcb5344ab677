"""The whole hostile-input campaign, with its figures recorded before they are judged."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.soak.page import table, write_section
from tests.support.cluster import Cluster
from tests.support.hostile import WHOLE, against_brokers, against_clients
from tests.support.hostile_campaign import MIB, Limits, Outcome, Phase
from tests.support.hostile_share_requests import ShareRequestsSize, with_share_requests

pytestmark = pytest.mark.timeout(0)  # they end by themselves: every attack is bounded in count and time
LIMITS = Limits()
_SHARE = 0.4  # of the minutes of the run
HOW_TO_READ = (
    "Times are milliseconds. *Canary*: Metadata, Produce and Fetch of a healthy client through the attacked gateway. "
    "*Twin*: the same work past the gateway, at the broker itself: what it waits is the broker's and the machine's. "
    "*Ping*: a call that the gateway answers alone, 200 a second, so one wait for its event loop; *echo*: the same to "
    "an idle event loop in another process, so what the machine's scheduler adds: the canary passes the gateway twice, "
    "the twin never, and so it may have two p99 of an echo more. *Over 100 ms*: wake-ups of the event "
    "loop by its own histogram (`headgate_added_seconds`, wall clock). *Held* is the most that memory grew, *received* "
    "the bytes that came meanwhile. *Cores* are processor time by the gateway and by everything on the machine, the "
    "attacker (at nice 10) and the broker too: the attack shares two cores with what it attacks. *Before* is behind a "
    "first wave of as many connections as the attacks open, whose memory the allocator keeps for the next: 16 MiB more "
    "may be held at the end."
)


def test_hostile_clients(cluster: Cluster, tmp_path: Path, minutes: float) -> None:
    outcome = against_clients(cluster.bootstrap, tmp_path, WHOLE.lasting(minutes * _SHARE))
    report("Hostile clients", outcome, "A real broker; every attack that a client can make, one after the other.")
    assert outcome.problems(LIMITS) == []


def test_a_hostile_broker(cluster: Cluster, tmp_path: Path) -> None:
    outcome = against_brokers(cluster.bootstrap, tmp_path, WHOLE)
    what = (
        "The hostile broker is a fake, because no real one sends such bytes; the canary's broker, the other node of "
        "the cluster, is real. No address of a broker reached a client, and every lawful answer arrived."
    )
    report("Hostile broker", outcome, what)
    assert outcome.problems(LIMITS) == []


def test_hostile_share_requests(cluster: Cluster, tmp_path: Path) -> None:
    size = ShareRequestsSize()
    outcome = with_share_requests(cluster, tmp_path, size)
    what = (
        f"A SASL listener. Once a second {size.connections} clients that have not logged in send a ShareAcknowledge of "
        f"{size.partitions:,} partitions, which is not decoded. Then a client with READ on the group sends 1 MB after "
        "the other, each decoded on the thread beside the event loop; the latency of that is for the record only."
    )
    report("Hostile share requests", outcome, what)
    assert outcome.problems(LIMITS) == []


def report(name: str, outcome: Outcome, what: str) -> None:
    lines = list(_lines(outcome, what))
    print("\n".join(lines))
    write_section(name, lines)


def _lines(outcome: Outcome, what: str) -> Iterator[str]:
    assert outcome.before
    assert outcome.after
    yield f"{what} {HOW_TO_READ}"
    yield ""
    waits = (
        "phase",
        "s",
        "canary p50",
        "p99",
        "x quiet",
        "max",
        "twin p99",
        "x quiet",
        "ping p99",
        "max",
        "echo p99",
        "max",
    )
    quiet = outcome.phases[0].seen
    yield from table(waits, (_latency(phase, quiet) for phase in outcome.phases))
    yield ""
    costs = ("phase", "over 100 ms", "held MiB", "received MiB", "gateway cores", "all cores", "canary errors")
    yield from table(costs, (_costs(phase) for phase in outcome.phases))
    yield ""
    for phase in outcome.phases:
        if phase.counts:
            yield f"- {phase.name}: {_in_words(phase.counts.items())}"
    ended = {cause: count for cause, count in outcome.after.ended.items() if count}
    yield f"- connections ended: {_in_words(ended.items())}"
    before, after = outcome.before, outcome.after
    yield (
        f"- before and after: {before.sockets} and {after.sockets} sockets, {before.pipes} and {after.pipes} "
        f"descriptors of pipes, {before.memory_bytes // MIB} and {after.memory_bytes // MIB} MiB; "
        f"back after {outcome.recovered_after} s (60 allowed)"
    )
    yield f"- spliced: {(after.spliced_bytes - before.spliced_bytes) / MIB:,.1f} MiB"
    yield f"- errors and tracebacks in the gateway's log: {len(outcome.defects)}"
    problems = outcome.problems(LIMITS)
    yield f"- promises broken: {'; '.join(problems) if problems else 'none'}"


def _latency(phase: Phase, quiet: Mapping[str, Mapping[str, float]]) -> tuple[object, ...]:
    canary, twin, ping, echo = (phase.seen[kind] for kind in ("canary", "twin", "ping", "echo"))
    return (
        phase.name,
        phase.seconds,
        canary["p50"],
        canary["p99"],
        f"{canary['p99'] / quiet['canary']['p99']:.1f}",
        canary["max"],
        twin["p99"],
        f"{twin['p99'] / quiet['twin']['p99']:.1f}",
        ping["p99"],
        ping["max"],
        echo["p99"],
        echo["max"],
    )


def _costs(phase: Phase) -> tuple[object, ...]:
    return (
        phase.name,
        phase.long_wake_ups,
        round(phase.memory_growth / MIB, 1),
        round(phase.received_bytes / MIB, 1),
        phase.gateway_cores,
        phase.busy_cores,
        len(phase.seen["errors"]),
    )


def _in_words(counts: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in counts)
