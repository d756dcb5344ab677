"""`[activity]` as a feature of the gateway."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from headgate.base.clock import SystemClock
from headgate.config.model import Config
from headgate.gateway.activity.groups import GroupWatcher
from headgate.gateway.activity.ledger import Ledger
from headgate.gateway.activity.service import ActivityService, writer_of
from headgate.gateway.activity.topics import Topics, ask_as_service
from headgate.gateway.activity.watching import UseWatcher
from headgate.gateway.interceptor import Interceptor
from headgate.gateway.principals import Principals


class ActivityFeature:
    """Made on the event loop of its worker."""

    def __init__(self, config: Config, principals: Principals, *, worker: int = 0) -> None:
        clock = SystemClock()
        workers = {name for one in config.connect.values() for name in one.principals}
        ledger = Ledger(principals, Topics(ask_as_service(config.upstream)), clock, workers=workers)
        watcher = UseWatcher(ledger)
        self.interceptors: Sequence[Interceptor] = (watcher, GroupWatcher(ledger))
        self._service = ActivityService(ledger, watcher, clock, writer_of(config, worker))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._service.running():
            yield

    def samples(self) -> Mapping[tuple[str, tuple[str, ...]], float]:
        return self._service.samples()

    def problems(self) -> Mapping[str, str]:
        """None: what is not written down is no reason to send clients away."""
        return {}
