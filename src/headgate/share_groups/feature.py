"""`[share_groups]` as a feature of the gateway: the interceptors that follow from it, and its way out."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from headgate.base.clock import SystemClock
from headgate.proxy.features import Feature
from headgate.proxy.principals import Principals
from headgate.proxy.rights import Rights
from headgate.share_groups.acknowledges import AcknowledgeInterceptor
from headgate.share_groups.config_views import DescribeConfigsInterceptor, ListConfigResourcesInterceptor
from headgate.share_groups.configs import AlterConfigsInterceptor
from headgate.share_groups.describes import ShareGroupDescribeInterceptor
from headgate.share_groups.fetches import FetchInterceptor
from headgate.share_groups.isolation import IsolationInterceptor
from headgate.share_groups.service import ShareGroupService
from headgate.share_groups.share_metrics import FAMILIES


class ShareGroupFeature(Feature):
    """`enable = true`: dead letters, the breaker and the pause, for groups that have a config of ours."""

    families = FAMILIES

    def __init__(self, service: ShareGroupService, principals: Principals, *, dlq_auto_create: bool) -> None:
        self.service = service
        rights = Rights(SystemClock())
        operating = service.operating
        self.interceptors = (
            FetchInterceptor(service, rights),
            AcknowledgeInterceptor(service, rights),
            AlterConfigsInterceptor(operating, principals.principal_of, dlq_auto_create=dlq_auto_create),
            DescribeConfigsInterceptor(operating),
            ListConfigResourcesInterceptor(operating),
            ShareGroupDescribeInterceptor(operating),
            IsolationInterceptor(operating, rights),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.service.running():
            yield

    def problems(self) -> Mapping[str, str]:
        return self.service.problems()

    def samples(self) -> Mapping[tuple[str, tuple[str, ...]], float]:
        return self.service.samples()
