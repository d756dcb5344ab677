"""`[activity]` as a feature of the gateway: its watchers, and the tasks that stand behind them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from headgate.activity.connect_recording import Recorder, ended, following, records
from headgate.activity.coverage import CoverageTask, look_as_service
from headgate.activity.group_watcher import GroupWatcher
from headgate.activity.service import ActivityService, forever, writer_of
from headgate.activity.topic_names import Topics, ask_as_service
from headgate.activity.usage_tracker import Ledger
from headgate.activity.watchers import UseWatcher
from headgate.base.clock import SystemClock
from headgate.config.model import Config
from headgate.proxy.features import Feature
from headgate.proxy.principals import Principals


class ActivityFeature(Feature):
    """Made on the event loop of its worker; the first worker of a gateway looks at end offsets too.

    It has no problems: what is not written down is no reason to send clients away.
    """

    def __init__(self, config: Config, principals: Principals, *, worker: int = 0) -> None:
        self._config = config
        self._worker = worker
        self._clock = SystemClock()
        workers = {name for one in config.connect.values() for name in one.principals}
        self._topics = Topics(ask_as_service(config.upstream))
        ledger = Ledger(principals, self._topics, self._clock, workers=workers)
        watcher = UseWatcher(ledger)
        self.interceptors = (watcher, GroupWatcher(ledger))
        self._service = ActivityService(ledger, watcher, self._clock, writer_of(config, worker))
        self._recorder: Recorder | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._service.running())
            if any(records(one) for one in self._config.connect.values()):
                clusters = await stack.enter_async_context(following(self._config))
                self._recorder = Recorder(clusters, self._topics, self._clock)
                self._service.on_used = self._recorder.saw
                stack.push_async_callback(ended, asyncio.create_task(forever(self._recorder.run)))
            if self._worker == 0:
                coverage = CoverageTask(look_as_service(self._config), self._service.tell, self._clock)
                stack.push_async_callback(ended, asyncio.create_task(forever(coverage.run)))
            yield

    def samples(self) -> Mapping[tuple[str, tuple[str, ...]], float]:
        return self._service.samples(0 if self._recorder is None else self._recorder.recorded)
