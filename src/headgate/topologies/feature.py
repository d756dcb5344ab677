"""`[topologies]` as a feature of the gateway: who owns descriptions, and the interceptors that follow from it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from headgate.base.clock import SystemClock
from headgate.proxy.features import Feature
from headgate.proxy.interceptor import Interceptor
from headgate.proxy.rights import Rights
from headgate.topologies.cleanup import Cleanup, DescribeGroups
from headgate.topologies.deletions import ClassicJoinInterceptor, DeleteInterceptor
from headgate.topologies.describes import DescribeInterceptor
from headgate.topologies.heartbeats import HeartbeatInterceptor
from headgate.topologies.pushes import PushInterceptor
from headgate.topologies.service import TopologyService
from headgate.topologies.topology_metrics import FAMILIES
from headgate.topologies.versions import HIDDEN, Versions


class HideInterceptor(Interceptor[None]):
    """`owner = "off"`: nobody keeps descriptions, so no client is told that it could push or read any."""

    def version_limits(self, broker: Versions) -> Mapping[int, int]:  # noqa: ARG002
        return HIDDEN


class HiddenTopologies(Feature):
    """A feature without a life."""

    interceptors = (HideInterceptor(),)


class TopologyFeature(Feature):
    """`owner = "gateway"`: the gateway keeps descriptions. `describe` is the cleanup's, None where another cleans."""

    families = FAMILIES

    def __init__(self, service: TopologyService, *, max_bytes: int, describe: DescribeGroups | None = None) -> None:
        self.service = service
        rights = Rights(SystemClock())
        self.interceptors = (
            HeartbeatInterceptor(service),
            PushInterceptor(service, rights, max_bytes=max_bytes),
            DescribeInterceptor(service),
            DeleteInterceptor(service, rights),
            ClassicJoinInterceptor(service, rights),
        )
        self._cleanup = None if describe is None else Cleanup(service, describe)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.service.running():
            if self._cleanup is not None and self.service.has_store:
                self.service.spawn(self._cleanup.run())
            yield

    def samples(self) -> Mapping[tuple[str, tuple[str, ...]], float]:
        return self.service.samples()
