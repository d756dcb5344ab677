"""`/api/v1/health/leader`: asked once for many readers, with a problem where the cluster does not respond."""

import asyncio
from collections.abc import Callable

from headgate.base.errors import ClusterError
from headgate.config.model import Config, LagsConfig, ShareGroupsConfig
from headgate.kafka.leader_group import ElectionState, LeaderCandidate, LeaderGroup, describe_leader_group
from headgate.kafka.shared_clients import clients_of
from headgate.web.api.estate_tables import EstateTables
from headgate.web.gateway_leader import LeaderModel, LeaderStatus
from tests.support.clock import FakeClock
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.stage import NOW_MS

LED = LeaderGroup(
    state=ElectionState.LED,
    candidates=(LeaderCandidate(worker="gw-a/0", version="0.1.0", host="10.0.0.7", is_leader=True),),
)


def status_of(
    clock: FakeClock,
    describe: Callable[..., LeaderGroup] = describe_leader_group,
    *,
    has_shares: bool = True,
    has_lags: bool = True,
) -> LeaderStatus:
    config = Config(share_groups=ShareGroupsConfig(enable=has_shares), lags=LagsConfig(enable=has_lags))
    return LeaderStatus(config, clients_of(config), clock, describe=describe)


async def test_the_workers_with_their_versions_and_the_leader(shop_tables: tuple[EstateTables, FakeClock]) -> None:
    status = status_of(shop_tables[1], lambda *_, **__: LED)
    answer = await ApiStage(*shop_tables, leader=status).get("health/leader")
    found = LeaderModel.model_validate(answer.json)
    assert (found.state, found.duty, found.problem) == ("led", "breakers", None)
    assert [(one.worker, one.version, one.is_leader) for one in found.workers] == [("gw-a/0", "0.1.0", True)]
    assert answer.headers["cache-control"] == "no-store"


async def test_many_readers_ask_the_cluster_once_in_two_seconds() -> None:
    clock, asked = FakeClock(NOW_MS), []

    def describe(*_: object, **__: object) -> LeaderGroup:
        asked.append(1)
        return LED

    status = status_of(clock, describe)
    await asyncio.gather(*(status.now() for _ in range(20)))
    assert len(asked) == 1
    clock.now_ms += 2_001
    await status.now()
    assert len(asked) == 2


async def test_what_cannot_be_asked_is_unknown_for_a_reason() -> None:
    def fail(*_: object, **__: object) -> LeaderGroup:
        raise ClusterError("timed out")

    status = status_of(FakeClock(NOW_MS), fail, has_shares=False)
    found = LeaderModel.model_validate(await status.now())
    assert (found.state, found.duty, found.problem, found.workers) == ("unknown", "lags", "timed out", [])


async def test_without_breakers_and_lags_no_leader_is_needed() -> None:
    found = await status_of(FakeClock(NOW_MS), has_shares=False, has_lags=False).now()
    assert (found["state"], found["duty"]) == ("off", None)
