"""Which workers take part in polling, and what they report."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from headgate.base.errors import ClusterError
from headgate.cli.features import make_features
from headgate.config.model import Config, LagsConfig, ShareGroupsConfig
from headgate.kafka.shared_clients import SharedClients
from headgate.lags.feature import LagFeature


def unreachable() -> tuple[SharedClients, asyncio.Event]:
    """Clients of a cluster that cannot be reached, and whether they were needed."""
    needed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def read_settings() -> Mapping[str, Any]:
        loop.call_soon_threadsafe(needed.set)
        raise ClusterError("away")

    return SharedClients(read_settings), needed


@pytest.mark.parametrize(
    ("worker", "has_share_groups", "takes_part"),
    [(0, False, True), (1, False, False), (0, True, True), (1, True, True)],
)
async def test_workers_that_may_lead_open_their_writer(worker: int, has_share_groups: bool, takes_part: bool) -> None:
    clients, needed = unreachable()
    is_leader = (lambda: False) if has_share_groups else None
    feature = LagFeature(Config(), worker=worker, clients=clients, is_leader=is_leader)
    with capture_logs() as logs:
        async with feature.running():
            if takes_part:
                await asyncio.wait_for(needed.wait(), 60)
                await asyncio.sleep(0.1)  # for the log line, which is not asked for below when it comes later
            assert not feature.problems()
    assert needed.is_set() == takes_part
    assert {line["event"] for line in logs} <= {"lags not polled yet, retrying"}


def test_every_family_has_its_samples() -> None:
    feature = LagFeature(Config(), worker=0, clients=SharedClients(dict), is_leader=None)
    assert {name for name, _ in feature.samples()} == {family.name for family in feature.families}


@pytest.mark.parametrize("share_groups", [False, True])
async def test_lags_can_be_disabled(share_groups: bool) -> None:
    for is_enabled in (False, True):
        config = Config(lags=LagsConfig(enable=is_enabled), share_groups=ShareGroupsConfig(enable=share_groups))
        features = make_features(config, worker=1)
        assert any(isinstance(one, LagFeature) for one in features) == is_enabled
