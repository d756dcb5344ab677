"""The shop of `tests/unit/lineage/shop.py` in tables, written once. Tests only read them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.config.addresses import Address
from headgate.config.model import Config, LagsConfig, ShareGroupsConfig, UpstreamConfig
from headgate.facts import EventHappened
from headgate.kafka.shared_clients import clients_of
from headgate.web.api.estate_tables import EstateTables
from headgate.web.breaker_statuses import BreakerStatuses
from headgate.web.gateway_leader import LeaderStatus
from headgate.web.operations import GatewayAccess, LoginRate, ShareGroupOperations
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import TWO, write_shop
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.replay_stage import replay_service
from tests.unit.web.share_port import FakeShares
from tests.unit.web.shop_rows import write_extra


@pytest.fixture(scope="session")
def shop_tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EstateTables, FakeClock]]:
    root: Path = tmp_path_factory.mktemp("shop")
    write_shop(root)
    write_extra(root)
    clock = FakeClock(TWO)
    tables = EstateTables(root, clock)
    yield tables, clock
    asyncio.run(tables.close())


@pytest.fixture(scope="session")
def shop(shop_tables: tuple[EstateTables, FakeClock]) -> ApiStage:
    """Made once: making an application takes longer than most tests."""
    shares, clock = FakeShares.of_the_shop(), shop_tables[1]
    # No gateway is there: what is asked of it is answered with 503.
    gateway = GatewayAccess(address=Address("127.0.0.1", 1), has_tls=False, tls_ca=None, has_sasl=False)
    operations = ShareGroupOperations(gateway, audit=_forget, port=shares, clock=clock, logins=LoginRate(clock))
    statuses = BreakerStatuses(gateway, UpstreamConfig(service_mechanism="none"), clock)
    # No cluster is there either, so nothing that needs a leader is enabled.
    config = Config(share_groups=ShareGroupsConfig(enable=False), lags=LagsConfig(enable=False))
    leader = LeaderStatus(config, clients_of(config), clock)
    replays = replay_service(shop_tables[0], gateway, _forget, clock)
    return ApiStage(
        *shop_tables, share_port=shares, operations=operations, statuses=statuses, leader=leader, replays=replays
    )


async def _forget(_: EventHappened) -> None:
    """Operations of these tests are not recorded."""
