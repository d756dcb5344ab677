"""`bench/SCALE.md` from what `bench.scale` measured, with the arithmetic for an estate that no bench can hold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SHARES = (0.25, 0.5)  # of a core, beside saturation
MOST_CONNECTIONS = 10_000
GROWTH_CALLS_S = 2_000
GROWTH_LIMIT = 1.3
IDLE_CONNECTIONS = 1_000  # for the memory of a connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured point."""

    name: str
    share: float | None  # of a core that was asked for; None: as much as is answered
    amount: float
    cpu_s: float  # of the gateway, in a second
    cpu_us_a_call: float
    p50_us: float
    p99_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    how: str
    units: Mapping[str, str]
    carried: Sequence[Row]
    growth: Sequence[tuple[int, Row]]
    scaling: Sequence[tuple[str, Row, Row]]
    memory: tuple[float, float]  # megabytes of the largest process, empty and with idle connections


# The arithmetic: an estate, what its clients do, and what follows from the figures above.
BROKERS, CLIENTS = 100, 50_000
CONNECTIONS_A_CLIENT = 4  # the brokers that lead its partitions, and its coordinator
HEARTBEAT_EVERY_S = 3.0
FETCHES_A_SECOND = 2.0  # an idle consumer asks again after 500 ms (fetch.max.wait.ms), on each connection
ESTATE_MB_S = 1_000.0  # read by consumers, in large fetches
HEADROOM = 0.5  # the share of a core that is planned for
UNIT_DESCRIPTORS = 32_768  # LimitNOFILE of deploy/headgate.service
WORKER_MB = 1_000.0


def page(found: Found) -> str:
    carried, growth, units = found.carried, found.growth, found.units
    lines = [
        "# Scale",
        "",
        "Written by `python -m bench.scale`.",
        "",
        f"{found.how} CPU is user and system time of all processes of the gateway.",
        "",
        "## What one worker carries",
        "",
        (
            'The gateway is pinned to one core; the loader and the broker share the other. "All" repeats a call as '
            "soon as it is answered; the gateway then waits for the other core when that is the scarcer one, and uses "
            "less than its own. The other rows are paced."
        ),
        "",
        "| load | core asked for | core used | carried | CPU us a call | p50 us | p99 us |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in carried:
        asked = "all" if row.share is None else f"{row.share:.0%}"
        lines.append(
            f"| {row.name} | {asked} | {row.cpu_s:.0%} | {row.amount:,.0f} {units[row.name]} | {row.cpu_us_a_call:.1f} "
            f"| {row.p50_us:,.0f} | {row.p99_us:,.0f} |"
        )
    costs = [row.cpu_us_a_call for _, row in growth]
    worst = max(more / fewer for at, fewer in enumerate(costs) for more in costs[at:])
    lines += [
        "",
        "## Growth with connections",
        "",
        (
            f"{GROWTH_CALLS_S:,} heartbeats a second in all, over more and more connections of one worker. A "
            "connection takes two descriptors of its worker; the last row is what the limit of this machine allows, "
            f"up to {MOST_CONNECTIONS:,}."
        ),
        "",
        "| connections | CPU us a call | of the row above | p50 us | p99 us |",
        "|---|---|---|---|---|",
        *(
            f"| {count:,} | {row.cpu_us_a_call:.1f} | {row.cpu_us_a_call / above:.2f} | {row.p50_us:,.0f} "
            f"| {row.p99_us:,.0f} |"
            for above, (count, row) in zip((costs[0], *costs), growth, strict=False)
        ),
        "",
        (
            f"The dearest row costs {worst:.2f} of a row with fewer connections (target: at most {GROWTH_LIMIT}): "
            f"{'met' if worst <= GROWTH_LIMIT else '**missed**'}."
        ),
        "",
        "## Two workers",
        "",
        (
            "Loader, broker and gateway share two cores here, so this shows what a second worker costs rather than "
            "what it gives: it needs a core that is free."
        ),
        "",
        "| load | one worker | two workers | ratio | CPU us a call, one | two |",
        "|---|---|---|---|---|---|",
        *(
            f"| {name} | {one.amount:,.0f} | {two.amount:,.0f} | {two.amount / one.amount:.2f} "
            f"| {one.cpu_us_a_call:.1f} | {two.cpu_us_a_call:.1f} |"
            for name, one, two in found.scaling
        ),
        "",
        *arithmetic(carried, growth[-1], found.memory),
    ]
    return "\n".join(lines) + "\n"


def arithmetic(carried: Sequence[Row], largest: tuple[int, Row], memory: tuple[float, float]) -> list[str]:
    half = {row.name: row for row in carried if row.share == SHARES[-1]}
    call_us = largest[1].cpu_us_a_call  # the dearest: few calls on many connections
    connections = CLIENTS * CONNECTIONS_A_CLIENT
    calls = CLIENTS / HEARTBEAT_EVERY_S + CLIENTS * (CONNECTIONS_A_CLIENT - 1) * FETCHES_A_SECOND
    bytes_row = half["fetch 1 MiB"]
    cores_calls = calls * call_us / 1e6
    cores_bytes = ESTATE_MB_S * bytes_row.cpu_s / bytes_row.amount
    workers = math.ceil((cores_calls + cores_bytes) / HEADROOM)
    connect_us = half["new connections"].cpu_us_a_call
    empty, full = memory
    kb_a_connection = (full - empty) * 1_000 / IDLE_CONNECTIONS
    worker_mb = empty + kb_a_connection * connections / workers / 1_000
    limits = sorted(
        [
            (workers / (cores_calls + cores_bytes), "the whole core of each worker"),
            (UNIT_DESCRIPTORS * workers / (2 * connections), f"{UNIT_DESCRIPTORS:,} descriptors of a worker"),
            ((WORKER_MB - empty) / (worker_mb - empty), f"{WORKER_MB:,.0f} MB of memory of a worker"),
        ]
    )
    return [
        f"## {BROKERS} brokers and {CLIENTS:,} clients",
        "",
        (
            f"Assumed: {CONNECTIONS_A_CLIENT} connections a client, a heartbeat every {HEARTBEAT_EVERY_S:g} s, "
            f"{FETCHES_A_SECOND:g} fetches a second on each of the other connections, {ESTATE_MB_S:,.0f} MB/s read, "
            f"workers planned for {HEADROOM:.0%} of a core. A small fetch counts like a heartbeat of the "
            "largest row above."
        ),
        "",
        "| | |",
        "|---|---|",
        f"| connections | {connections:,} |",
        f"| small calls a second | {calls:,.0f} |",
        f"| cores for them at {call_us:.1f} us | {cores_calls:.1f} |",
        f"| cores for {ESTATE_MB_S:,.0f} MB/s at {1e3 * cores_bytes / ESTATE_MB_S:.2f} s/GB | {cores_bytes:.1f} |",
        f"| workers at {HEADROOM:.0%} of a core | {workers} |",
        f"| connections a worker | {connections / workers:,.0f} |",
        f"| descriptors a worker | {2 * connections / workers:,.0f} |",
        f"| memory a worker, with {kb_a_connection:.1f} KB a connection | {worker_mb:,.0f} MB |",
        (
            f"| all clients connect again after a failure, at {connect_us:.0f} us | "
            f"{connections * connect_us / 1e6 / workers:.1f} s of each worker's core |"
        ),
        "",
        "## Where it breaks first",
        "",
        (
            "With so many workers, and more and more clients that do the same. Before these, configured limits apply: "
            "`gateway.max_connections`, by default 10,000 for all workers of a gateway, has to be raised."
        ),
        "",
        "| limit | reached with |",
        "|---|---|",
        *(f"| {limit} | {times * CLIENTS:,.0f} clients, {times:.1f} times as many |" for times, limit in limits),
    ]
