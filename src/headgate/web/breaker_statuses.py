"""`GET /api/v1/share-groups/NAME/breaker`: the breaker of a share group as a gateway counts it now.

Only gateways know the counts of the window and the spool, so one of them is asked, as `headgate share-groups
--describe --circuit-breaker` does it, with the service account: that only reads. However many pages ask, the gateway is
asked once a second for a group, and for a few groups at a time.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException
from fastapi.responses import JSONResponse

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError, UsageError
from headgate.config.model import UpstreamConfig
from headgate.kafka.connections import Connections, Dialler, credentials_of
from headgate.share_groups.admin import breaker_status, parked_dead_letters
from headgate.share_groups.model.breaker import json_of
from headgate.web.access import AccessControl
from headgate.web.api.models import ApiModel, Time, errors
from headgate.web.operations import GatewayAccess, OperationError
from headgate.web.paths import NameInPath
from headgate.web.visible_names import VisibleNames

_FRESH_S: Final = 1.0
_MOST_KEPT: Final = 500
_AT_ONCE: Final = 4
_MOST_WAITING: Final = 50
_CALL_S: Final = 8.0
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_SHOWN: Final = (
    *("window_ms", "delivered", "dlq_written", "dlq_rate", "threshold_percent", "min_messages"),
    *("last_resume", "limit_unprotected", "spooled", "oldest_spooled_at"),
)


class LastResumeModel(ApiModel):
    reason: str | None
    by: str | None
    at: Time | None


class ParkedModel(ApiModel):
    """`topic` is null where the caller may not see its name."""

    topic: str | None
    reason: str
    number: int


class BreakerWindowModel(ApiModel):
    """The window; null is not known, or not allowed to the service account; `problem` says why all of it is."""

    window_ms: int | None
    delivered: int | None
    dlq_written: int | None
    dlq_rate: float | None
    threshold_percent: int | None
    min_messages: int | None
    last_resume: LastResumeModel | None
    limit_unprotected: bool | None
    spooled: int | None
    oldest_spooled_at: Time | None
    parked: list[ParkedModel]
    at: Time
    problem: str | None


AskStatus = Callable[[str], Awaitable[dict[str, Any]]]


class BreakerStatuses:
    """Used on the event loop."""

    def __init__(
        self, gateway: GatewayAccess, upstream: UpstreamConfig, clock: Clock, *, ask: AskStatus | None = None
    ) -> None:
        """`ask` returns what is known of a group, instead of the gateway."""
        self._ask_status = ask or self._ask_gateway
        self._gateway = gateway
        self._upstream = upstream
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def of(self, group: str) -> dict[str, Any]:
        """The status, at most a second old; with a `problem` where there is none."""
        kept = self._kept.get(group)
        if kept is not None and self._clock.monotonic() - kept[0] < _FRESH_S:
            return kept[1]
        task = self._asking.get(group)
        if task is None:
            if len(self._asking) >= _MOST_WAITING:
                return self._document(problem="too many share groups are asked for at once")
            task = self._asking[group] = asyncio.create_task(self._ask(group))
            task.add_done_callback(lambda _: self._asking.pop(group, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, group: str) -> dict[str, Any]:
        async with self._slots:
            try:
                found = self._document(**await self._ask_status(group))
            except (ClusterError, OperationError, UsageError) as failure:
                found = self._document(problem=str(failure))
        self._kept[group] = (self._clock.monotonic(), found)
        self._kept.move_to_end(group)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return found

    async def _ask_gateway(self, group: str) -> dict[str, Any]:
        dialler = await asyncio.to_thread(self._dialler)
        async with Connections(dialler) as connections:
            status = (await breaker_status(connections, group)).status
            parked = await parked_dead_letters(connections, group)
        shown = {name: json_of(getattr(status, name)) for name in _SHOWN}
        if shown["last_resume"] is not None:  # without what a newer gateway adds
            shown["last_resume"] = {name: shown["last_resume"][name] for name in LastResumeModel.model_fields}
        dead_letters = [{"topic": topic, "reason": one.reason, "number": one.number} for topic, one in parked]
        return {**shown, "parked": dead_letters}

    def _dialler(self) -> Dialler:
        return self._gateway.dialler(credentials_of(self._upstream), timeout_s=_CALL_S)

    def _document(self, *, problem: str | None = None, **known: Any) -> dict[str, Any]:
        nothing: dict[str, Any] = dict.fromkeys(_SHOWN)
        return nothing | {"parked": []} | known | {"at": self._clock.epoch_ms(), "problem": problem}


def breaker_statuses_router(statuses: BreakerStatuses, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["share groups"])

    @router.get(
        "/share-groups/{name}/breaker",
        response_class=JSONResponse,
        responses={200: {"model": BreakerWindowModel}, **errors(404)},
    )
    async def breaker(name: NameInPath, names: Annotated[VisibleNames, Depends(access.visible_names)]) -> JSONResponse:
        """The counts of the breaker's window, and the dead letters of the group in the spool, now."""
        if not names.has(name):
            raise HTTPException(HTTPStatus.NOT_FOUND, f"There is no share group '{name}'")
        found = await statuses.of(name)
        if names.are_limited:
            parked = [one if names.has(one["topic"]) else {**one, "topic": None} for one in found["parked"]]
            found = {**found, "parked": parked}
        return JSONResponse(found, headers=_HEADERS)

    return router
