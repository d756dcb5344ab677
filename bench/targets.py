"""The targets, each a figure with its limit: met, missed and by how much, or not measured."""

from collections.abc import Callable
from dataclasses import dataclass

from bench import metadata
from bench.figures import Figure, Rounds, memory, p50, proxy_cpu, throughput
from bench.record import Campaign
from bench.scenarios import BY_NAME

HEADGATE, DIRECT, HAPROXY, TUNED, KROXYLICIOUS = "headgate", "direct", "haproxy", "haproxy-tuned", "kroxylicious"

IDLE = int(str(BY_NAME["idle-1000"].words["connections"]))

Found = Callable[[Campaign], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    text: str
    limit: float
    at_least: bool
    suffix: str
    found: Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    target: Target
    value: float | None

    @property
    def text(self) -> str:
        target, value = self.target, self.value
        if value is None:
            return "not measured"
        if value >= target.limit if target.at_least else value <= target.limit:
            return "met"
        return f"**missed** by {abs(value - target.limit) / target.limit:.0%}"


def judge(campaign: Campaign) -> tuple[Verdict, ...]:
    return tuple(Verdict(target=target, value=target.found(campaign)) for target in TARGETS)


def _of_stage(stage: str, ask: Callable[[Rounds], float | None]) -> Found:
    def found(campaign: Campaign) -> float | None:
        record = campaign.stage(stage)
        return None if record is None else ask(Rounds(stage=record))

    return found


def _ratio(
    text: str,
    scenario: str,
    base: str,
    figure: Figure,
    limit: float,
    *,
    at_least: bool = False,
    stage: str = "plaintext",
) -> Target:
    return Target(
        text=text,
        limit=limit,
        at_least=at_least,
        suffix="x",
        found=_of_stage(stage, lambda rounds: rounds.ratio(scenario, HEADGATE, base, figure)),
    )


def _idle_connection_kb(rounds: Rounds) -> float | None:
    full, empty = (rounds.median("idle-1000", HEADGATE, memory(name)) for name in ("full_mb", "empty_mb"))
    return None if full is None or empty is None else (full - empty) * 1_000 / IDLE


TARGETS = (
    _ratio("fetch 1 MiB: CPU a GB against tuned haproxy", "fetch-1m", TUNED, proxy_cpu, 1.2),
    _ratio("fetch 1 MiB: throughput against direct", "fetch-1m", DIRECT, throughput, 0.5, at_least=True),
    _ratio("produce 64 KiB: CPU a GB against tuned haproxy", "produce-64k", TUNED, proxy_cpu, 1.3),
    _ratio("produce 1 KB: CPU a call against haproxy", "produce-1k", HAPROXY, proxy_cpu, 1.0),
    _ratio("200 clients: CPU a call against haproxy", "clients-200", HAPROXY, proxy_cpu, 1.4),
    *(
        _ratio(f"{title}: CPU against Kroxylicious", scenario, KROXYLICIOUS, proxy_cpu, 1.0)
        for scenario, title in (
            ("produce-64k", "produce 64 KiB"),
            ("produce-1k", "produce 1 KB"),
            ("fetch-1m", "fetch 1 MiB"),
            ("clients-200", "200 clients"),
            ("connections", "connection"),
            ("latency", "one client"),
            ("java-producer", "java-producer"),
            ("java-consumer", "java-consumer"),
        )
    ),
    Target(
        text="latency: p50 above direct",
        limit=60,
        at_least=False,
        suffix=" us",
        found=_of_stage("plaintext", lambda rounds: rounds.difference("latency", HEADGATE, DIRECT, p50)),
    ),
    _ratio("connection: CPU against haproxy", "connections", HAPROXY, proxy_cpu, 2.2),
    Target(
        text="memory of a worker with 1,000 idle connections",
        limit=50,
        at_least=False,
        suffix=" MB",
        found=_of_stage("plaintext", lambda rounds: rounds.median("idle-1000", HEADGATE, memory("largest_mb"))),
    ),
    Target(
        text="memory of an idle connection",
        limit=6,
        at_least=False,
        suffix=" KB",
        found=_of_stage("plaintext", _idle_connection_kb),
    ),
    Target(
        text="brokers of a 1,000 x 12 Metadata answer rewritten",
        limit=100,
        at_least=False,
        suffix=" us",
        found=lambda campaign: campaign.micro.get(metadata.NAME),
    ),
    *(
        _ratio(f"TLS, {title}: CPU against haproxy", scenario, HAPROXY, proxy_cpu, 1.5, stage="tls")
        for scenario, title in (
            ("produce-64k", "produce 64 KiB"),
            ("produce-1k", "produce 1 KB"),
            ("fetch-1m", "fetch 1 MiB"),
            ("clients-200", "200 clients"),
            ("connections", "connection"),
        )
    ),
    *(
        _ratio(f"TLS, {title}: CPU against Kroxylicious", scenario, KROXYLICIOUS, proxy_cpu, 1.0, stage="tls")
        for scenario, title in (
            ("produce-64k", "produce 64 KiB"),
            ("produce-1k", "produce 1 KB"),
            ("fetch-1m", "fetch 1 MiB"),
            ("clients-200", "200 clients"),
            ("connections", "connection"),
            ("latency", "one client"),
        )
    ),
)
