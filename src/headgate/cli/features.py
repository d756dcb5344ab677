"""Creates the features of one worker from the configuration."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from headgate.activity.feature import ActivityFeature
from headgate.base.clock import SystemClock
from headgate.config.model import Config
from headgate.kafka.connections import Dialler, dialler_of
from headgate.kafka.group_admin import GroupOutline, describe_groups, describe_streams_groups
from headgate.kafka.shared_clients import SharedClients, clients_of
from headgate.lags.feature import LagFeature
from headgate.proxy.features import Feature
from headgate.proxy.principals import Principals, PrincipalsFeature
from headgate.share_groups.feature import DisabledShareGroups, ReservedNames, ShareGroupFeature
from headgate.share_groups.resources import open_resources as open_share_groups
from headgate.share_groups.service import ShareGroupService
from headgate.topologies.feature import DescribeGroups, HiddenTopologies, TopologyFeature
from headgate.topologies.resources import open_resources as open_topologies
from headgate.topologies.retention import Retention
from headgate.topologies.service import TopologyService
from headgate.topologies.stores.loading import find_plugin

# Of all features, also of those that the configuration does not enable: `/metrics` always shows the same families.
FAMILIES: Final = (
    *TopologyFeature.families,
    *ShareGroupFeature.families,
    *ActivityFeature.families,
    *LagFeature.families,
)


def check_features(config: Config) -> None:
    """Raise `UsageError` for a store plugin that no worker could load, before workers are started.

    The plugin is not created here: each worker creates it once, and closes it.
    """
    store = config.topologies.store
    if config.topologies.owner == "gateway" and store.scheme == "plugin":
        find_plugin(store.target)


def make_features(config: Config, *, worker: int = 0, row: int = 0) -> tuple[Feature, ...]:
    """The features; `row` distinguishes a worker from the one that it replaces, because both run for a while."""
    principals = Principals()
    clients = clients_of(config)
    share_groups = _share_group_service(config, worker, clients)
    asking = (
        *_share_groups(config, share_groups, principals),
        *_activity(config, worker, principals, clients),
    )
    lags = _lags(config, worker, share_groups, clients)
    topologies = _topologies(config, worker, row, clients, principals)
    who = (PrincipalsFeature(principals),) if asking or config.topologies.owner == "gateway" else ()
    left = (DisabledShareGroups(config),) if worker == 0 and not config.share_groups.enable else ()
    # First: what is refused is not shown to the others.
    refusing = ReservedNames(config.facts.prefix)
    return (_ClientsFeature(clients), refusing, *who, *asking, *left, *topologies, *lags)


class _ClientsFeature(Feature):
    """The clients that the features share; before them, so that it ends after them."""

    def __init__(self, clients: SharedClients) -> None:
        self._clients = clients

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self._clients.close()


def _share_group_service(config: Config, worker: int, clients: SharedClients) -> ShareGroupService | None:
    if not config.share_groups.enable:
        return None
    return ShareGroupService(config, worker=worker, open_with=partial(open_share_groups, clients=clients))


def _share_groups(config: Config, service: ShareGroupService | None, principals: Principals) -> tuple[Feature, ...]:
    if service is None:
        return ()
    return (ShareGroupFeature(service, principals, dlq_auto_create=config.share_groups.dlq_auto_create),)


def _activity(config: Config, worker: int, principals: Principals, clients: SharedClients) -> tuple[Feature, ...]:
    if not config.activity.enable:
        return ()
    return (ActivityFeature(config, principals, worker=worker, clients=clients),)


def _lags(
    config: Config, worker: int, share_groups: ShareGroupService | None, clients: SharedClients
) -> tuple[Feature, ...]:
    """The leader of the breakers polls, so that workers need no second election."""
    if not config.lags.enable:
        return ()
    is_leader = None if share_groups is None else lambda: share_groups.is_leading
    return (LagFeature(config, worker=worker, clients=clients, is_leader=is_leader),)


def _topologies(
    config: Config, worker: int, row: int, clients: SharedClients, principals: Principals
) -> tuple[Feature, ...]:
    match config.topologies.owner:
        case "broker":
            return ()
        case "off":
            return (HiddenTopologies(),)
        case "gateway":
            cache = f"topologies-{config.gateway.listen.port}-{row}.db"
            describe = _describe_as_service(config, describe_streams_groups) if worker == 0 else None
            describe_any = _describe_as_service(config, describe_groups)
            opening = partial(
                open_topologies,
                config,
                worker=worker,
                clients=clients,
                cache_name=cache,
                clock=SystemClock(),
                environment=os.environ,
            )
            service = TopologyService(config, opening)
            retention = Retention(
                service,
                deleted_retention_ms=config.topologies.deleted_retention_ms,
                versions_kept=config.topologies.versions_kept,
                clock=SystemClock(),
            )
            feature = TopologyFeature(
                service,
                max_bytes=config.topologies.max_bytes,
                describe=describe,
                describe_any=describe_any if worker == 0 else None,
                describe_lost=describe_any,
                cleanup_interval_s=config.topologies.cleanup_interval_ms / 1000,
                worker=worker,
                retention=retention,
                principals=principals,
                watch_tasks=True,
            )
            return (feature,)


def _describe_as_service(
    config: Config, describe_by: Callable[[Dialler, Sequence[str]], Awaitable[Mapping[str, GroupOutline]]]
) -> DescribeGroups:
    """Describe groups as the service account, for the cleanup of topologies."""

    async def describe(groups: Sequence[str]) -> Mapping[str, GroupOutline]:
        dialler = await asyncio.to_thread(dialler_of, config.upstream)
        return await describe_by(dialler, groups)

    return describe
