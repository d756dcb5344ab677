"""`[lags]` as a feature of the gateway: one worker of all gateways polls, and the metrics of its rounds."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import structlog

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError
from headgate.base.tasks import TaskSet, retry, run_forever
from headgate.config.model import Config
from headgate.facts import GroupLagsObserved
from headgate.kafka.connections import Dialler, dialler_of
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.leadership import LAGS_LEADER, LEADER, Leadership
from headgate.kafka.shared_clients import SharedClients
from headgate.kafka.topics import find_origin, worker_name
from headgate.lags.poller import LagPoller
from headgate.proxy.features import Feature, MetricFamily

log = structlog.get_logger()

LAGS: Final = "lags"
_RETRY_S: Final = 10.0
_OUTCOMES: Final = ("polled", "not_visible", "failed", "left_out")


class LagFeature(Feature):
    """`is_leader` says whether this worker leads the share groups' breakers; None where they are disabled.

    Then workers 0 of all gateways elect one of themselves. It reports no problems: clients do not depend on it.
    """

    families = (
        MetricFamily("headgate_lags_groups", "gauge", "Groups in the last round of polling lags", ("outcome",)),
        MetricFamily("headgate_lags_partitions", "gauge", "Partitions of groups in the last round of polling lags"),
        MetricFamily("headgate_lags_round_seconds", "gauge", "How long the last round of polling lags took"),
        MetricFamily("headgate_lags_rounds", "counter", "Rounds of polling lags"),
        MetricFamily("headgate_lags_facts", "counter", "Facts of lags, written or lost", ("outcome",)),
    )

    def __init__(
        self,
        config: Config,
        *,
        worker: int,
        clients: SharedClients,
        is_leader: Callable[[], bool] | None,
        clock: Clock | None = None,
    ) -> None:
        self._config = config
        self._worker = worker
        self._clients = clients
        self._is_leader = is_leader
        self._leadership: Leadership | None = None
        self._writer: FactWriter | None = None
        self._tasks = TaskSet(_log_failure)
        self._poller = LagPoller(self._dial, self._write, self._leads, clock or SystemClock())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self._is_leader is not None or self._worker == 0:
                stack.push_async_callback(self._close)
                self._tasks.spawn(run_forever(self._run, pause_s=_RETRY_S, on_failure=_log_failure))
                stack.push_async_callback(self._tasks.cancel_all)
            yield

    async def _run(self) -> None:
        await retry(
            self._open,
            pause_s=_RETRY_S,
            on_problem=lambda problem: log.warning("lags not polled yet, retrying", problem=problem),
            errors=ClusterError,
        )
        await self._poller.run()

    async def _open(self) -> None:
        await self._clients.open()
        prefix = self._config.facts.prefix
        if self._writer is None:
            origin = await find_origin(self._config, self._worker, self._clients.admin, LAGS)
            self._writer = FactWriter(self._clients.producer, prefix=prefix, origin=origin)
        if self._is_leader is None and self._leadership is None:
            self._leadership = Leadership(
                self._clients.settings,
                topic=prefix + LEADER,
                group=prefix + LAGS_LEADER,
                worker=worker_name(self._config, self._worker),
                on_gained=_do_nothing,
                on_lost=_do_nothing,
            )
            self._leadership.start()

    async def _close(self) -> None:
        if self._leadership is not None:
            await self._leadership.close()
        if self._writer is not None:
            await self._writer.close()

    def _leads(self) -> bool:
        if self._is_leader is not None:
            return self._is_leader()
        return self._leadership is not None and self._leadership.is_leader

    async def _dial(self) -> Dialler:
        return await asyncio.to_thread(dialler_of, self._config.upstream)

    async def _write(self, fact: GroupLagsObserved) -> object:
        if self._writer is None:
            raise ClusterError("the writer of lags is not open")
        return await self._writer.write(fact)

    def samples(self) -> Mapping[tuple[str, tuple[str, ...]], float]:
        poller = self._poller
        return {
            **{("headgate_lags_groups", (name,)): getattr(poller.last, name) for name in _OUTCOMES},
            ("headgate_lags_partitions", ()): poller.last.partitions,
            ("headgate_lags_round_seconds", ()): poller.last.seconds,
            ("headgate_lags_rounds", ()): poller.rounds,
            ("headgate_lags_facts", ("written",)): poller.facts_written,
            ("headgate_lags_facts", ("lost",)): poller.facts_lost,
        }


async def _do_nothing() -> None:
    """The poller asks who leads."""


def _log_failure(failure: BaseException) -> None:
    log.error("polling lags failed", exc_info=failure)
