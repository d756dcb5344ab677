"""The gateway with `[share_groups] enable = false`: what restoring the brokers' limits does when it fails."""

import asyncio

import pytest
from structlog.testing import capture_logs

from headgate.share_groups.feature import DisabledShareGroups
from tests.unit.proxy.stage import config, until


async def test_a_defect_while_limits_are_restored_is_logged_and_ends_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.share_groups.feature._DELAY_S", 0.0)

    async def fail(_: DisabledShareGroups) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(DisabledShareGroups, "_restore_once", fail)
    with capture_logs() as logs:
        async with DisabledShareGroups(config(9092)).running():
            await until(lambda: bool(logs))
            await asyncio.sleep(0)
    assert [(one["event"], str(one["exc_info"])) for one in logs] == [("task of the share groups failed", "'a defect'")]
