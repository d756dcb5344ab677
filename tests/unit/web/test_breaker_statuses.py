"""The window of a breaker as a gateway tells it: asked once for many readers, and with a problem where none answers.

A real gateway is asked in `tests/integration/breaker/test_web_operations.py`; here it is replaced, to count requests.
"""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headgate.config.addresses import Address
from headgate.config.model import UpstreamConfig
from headgate.web.api.estate_tables import EstateTables
from headgate.web.breaker_statuses import AskStatus, BreakerStatuses, BreakerWindowModel
from headgate.web.operations import GatewayAccess
from headgate.web.tokens import TokenScope, add_token
from tests.support.clock import FakeClock
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.stage import NOW_MS

GATEWAY = GatewayAccess(address=Address("127.0.0.1", 1), has_tls=False, tls_ca=None, has_sasl=False)


def statuses(clock: FakeClock, ask: AskStatus | None = None) -> BreakerStatuses:
    return BreakerStatuses(GATEWAY, UpstreamConfig(service_mechanism="none"), clock, ask=ask)


async def test_without_a_gateway_the_answer_says_why_nothing_is_known() -> None:
    found = await statuses(FakeClock(NOW_MS)).of("billing")
    assert "127.0.0.1:1" in found["problem"]
    assert found["delivered"] is None
    BreakerWindowModel.model_validate(found)


async def test_many_readers_ask_the_gateway_once_a_second() -> None:
    clock, asked = FakeClock(NOW_MS), []

    async def ask(group: str) -> dict[str, Any]:
        asked.append(group)
        await asyncio.sleep(0)
        return {"problem": None}

    made = statuses(clock, ask)
    await asyncio.gather(*(made.of("billing") for _ in range(20)))
    await made.of("billing")
    assert asked == ["billing"]
    clock.now_ms += 1_001
    await made.of("billing")
    assert asked == ["billing", "billing"]


async def test_a_reader_that_goes_away_does_not_end_the_request_of_others() -> None:
    going = asyncio.Event()

    async def ask(_: str) -> dict[str, Any]:
        await going.wait()
        return {"problem": None}

    made = statuses(FakeClock(NOW_MS), ask)
    gone, stays = (asyncio.create_task(made.of("billing")) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    going.set()
    assert (await stays)["problem"] is None
    await made.close()


async def test_a_token_with_names_gets_no_other_names(
    shop_tables: tuple[EstateTables, FakeClock], tmp_path: Path
) -> None:
    file = tmp_path / "tokens.toml"
    expires = datetime(2100, 1, 1, tzinfo=UTC)
    token = add_token(file, name="team", scope=TokenScope.READ, expires=expires, names=["refund*"])

    async def ask(_: str) -> dict[str, Any]:
        return {"parked": [{"topic": "dlq.orders", "reason": "too_large", "number": 2}]}

    made = statuses(shop_tables[1], ask)
    stage = ApiStage(*shop_tables, tokens_file=file, is_read_open=False, statuses=made)
    assert (await stage.get("share-groups/billing/breaker", token=token)).status == 404
    answer = await stage.get("share-groups/refunds/breaker", token=token)
    assert answer.json["parked"] == [{"topic": None, "reason": "too_large", "number": 2}]
