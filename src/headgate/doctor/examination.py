"""The whole examination, in order: this machine, the addresses, the cluster, the rights, the topics, the clock.

Invariants: one failure never hides another; checks that need a broker are skipped only when none responds, which the
findings on the addresses report. Nothing here changes the cluster, and every step has a timeout.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError
from headgate.config.addresses import MAX_NODES, Address
from headgate.config.model import Config
from headgate.doctor import cluster, machine, probes, rights, topics, writers
from headgate.doctor.brokers import AddressCheck, Broker, Visit, close
from headgate.doctor.findings import Check, DoctorFinding, KafkaTools, warning
from headgate.doctor.rights import AclNames

LONGEST_STEP_S = 10.0
_SILENCE_S = 2.0
_AT_ONCE = 16


@dataclass(slots=True)
class SlowSteps:
    """Reports the steps that take longer than two seconds."""

    tell: Callable[[str], None]
    clock: Clock
    _steps: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._steps[name] = self.clock.monotonic()
        try:
            yield
        finally:
            del self._steps[name]

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(_SILENCE_S / 4)
            now = self.clock.monotonic()
            slow = [name for name, began in self._steps.items() if now - began >= _SILENCE_S]
            if slow:
                more = f" and {len(slow) - 1} more" if len(slow) > 1 else ""
                self.tell(f"still {slow[0]}{more} ({now - self._steps[slow[0]]:.0f} s)")
                await asyncio.sleep(_SILENCE_S)


async def examine(
    config: Config, tell: Callable[[str], None], time: Clock | None = None
) -> AsyncIterator[DoctorFinding]:
    """Yield every finding as soon as it is known."""
    clock = time or SystemClock()
    progress = SlowSteps(tell, clock)
    watching = asyncio.create_task(progress.watch())
    try:
        async for finding in _Examination(config, progress, clock).run():
            yield finding
    finally:
        watching.cancel()


@dataclass(frozen=True, slots=True)
class _Examination:
    config: Config
    progress: SlowSteps
    time: Clock

    @property
    def _step_s(self) -> float:
        return min(self.config.gateway.connect_timeout_ms / 1000, LONGEST_STEP_S)

    async def run(self) -> AsyncIterator[DoctorFinding]:
        with self.progress.step("checking this machine"):
            async for finding in machine.examine(self.config, deadline_s=self._step_s):
                yield finding
        brokers: list[Broker] = []
        try:
            async for visit in self._visits():
                yield visit.finding
                if visit.broker is not None:
                    brokers.append(visit.broker)
            now = machine.now_utc(self.time.epoch_ms())
            for finding in (
                *machine.examine_certificates(self.config, now),
                *machine.broker_certificates(brokers, now),
            ):
                yield finding
            if brokers:
                async for finding in self._ask(brokers):
                    yield finding
        finally:
            for broker in brokers:
                await close(broker.writer)

    async def _visits(self) -> AsyncIterator[Visit]:
        """Check the bootstrap addresses, then the advertised addresses of the nodes: the gateway connects to both."""
        bootstrap = {address: f"{address}" for address in self.config.upstream.bootstrap}
        first = await self._visit_all(bootstrap, "upstream.bootstrap")
        for visit in first:
            yield visit
        announced: dict[Address, str] = {}
        for visit in first:
            if visit.broker is not None:
                for node, address in visit.broker.nodes.items():
                    if address not in bootstrap and len(announced) < MAX_NODES:
                        announced[address] = f"node {node} ({address})"
        for visit in await self._visit_all(announced, "the broker's advertised.listeners"):
            yield visit

    async def _visit_all(self, addresses: dict[Address, str], source: str) -> list[Visit]:
        check = AddressCheck(upstream=self.config.upstream, deadline_s=self._step_s)
        crowd = asyncio.Semaphore(_AT_ONCE)

        async def visit(address: Address, label: str) -> Visit:
            async with crowd:
                with self.progress.step(f"asking {label}"):
                    return await check.visit(address, label=label, source=source)

        return await asyncio.gather(*(visit(address, label) for address, label in addresses.items()))

    async def _ask(self, brokers: list[Broker]) -> AsyncIterator[DoctorFinding]:
        broker = brokers[0]
        tools = KafkaTools.of(self.config.upstream, str(broker.address))
        for finding in (*cluster.same_cluster(brokers), *cluster.ports_of(broker.nodes, self.config)):
            yield finding
        for each in brokers:
            for finding in cluster.examine_apis(str(each.address), each.versions, each.levels, self.config, tools):
                yield finding
        with self.progress.step("checking the rights of the service account"):
            async for finding in self._own_topics(broker, tools):
                yield finding
        if self.config.share_groups.enable:
            with self.progress.step("checking the rights for dead letters"):
                async for finding in topics.examine_dead_letters(broker, self.config, tools, deadline_s=self._step_s):
                    yield finding
        with self.progress.step("reading the cluster's clock"):
            yield await cluster.examine_clock(broker, self.time, tools)

    async def _own_topics(self, broker: Broker, tools: KafkaTools) -> AsyncIterator[DoctorFinding]:
        """Check the rights on Headgate's own topics, and the topics."""
        prefix = self.config.facts.prefix
        specs = topics.wanted(self.config, len(broker.nodes))
        try:
            described = await probes.describe_topics(broker, [spec.name for spec in specs])
            operations = await probes.cluster_operations(broker)
            names = AclNames(facts_prefix=prefix)
            probing = probes.RightProbes(broker=broker, names=names, topics=described, cluster=operations)
            statuses = await probing.probe_all(rights.own_rights(self.config))
            for finding in rights.judge(statuses, tools, names):
                yield finding
            for finding in rights.excess(operations, tools, anonymous=self.config.upstream.service_user is None):
                yield finding
            for finding in await topics.examine(broker, self.config, described, tools):
                yield finding
            for finding in await writers.examine_writers(broker, [spec.name for spec in specs], prefix, tools):
                yield finding
        except ClusterError as failure:
            mend = "run headgate doctor again; see the broker's log"
            yield warning(Check.TOPICS, f"{prefix}*", f"cannot be checked: {failure}", mend=mend)
