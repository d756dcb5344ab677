"""`GET /api/v1/health/leader`: the workers that may lead, their versions, and which of them leads.

The coordinator of the leaders' group is asked with the service account, which may read that group to elect a leader.
However many pages ask, the cluster is asked once in two seconds.
"""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse
from pydantic import Field

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.base.threads import off_loop
from headgate.config.model import Config
from headgate.kafka.leader_group import LeaderGroup, describe_leader_group
from headgate.kafka.leadership import LAGS_LEADER, LEADER
from headgate.kafka.shared_clients import SharedClients
from headgate.web.access import AccessControl
from headgate.web.api.models import ApiModel, Time, errors
from headgate.web.visible_names import VisibleNames

_FRESH_S: Final = 2.0
_CALL_S: Final = 4.0
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

Duty = Literal["breakers", "lags"]


class LeaderCandidateModel(ApiModel):
    """A worker of a gateway; name and version are null where its client id does not tell them."""

    worker: str | None
    version: str | None
    host: str
    is_leader: bool


class LeaderModel(ApiModel):
    """The leader: `off` where none is needed, and `unknown` for the reason in `problem`."""

    state: Literal["led", "electing", "nobody", "unknown", "off"]
    duty: Annotated[Duty | None, Field(description="what the leader does: evaluate breakers, or only poll lags")]
    workers: list[LeaderCandidateModel]
    truncated: bool
    at: Time
    problem: str | None


class LeaderStatus:
    """Used on the event loop."""

    def __init__(
        self,
        config: Config,
        clients: SharedClients,
        clock: Clock,
        *,
        describe: Callable[..., LeaderGroup] = describe_leader_group,
    ) -> None:
        self._describe = describe
        self._duty: Duty | None = None
        if config.share_groups.enable:
            self._duty, self._group = "breakers", config.facts.prefix + LEADER
        elif config.lags.enable:
            self._duty, self._group = "lags", config.facts.prefix + LAGS_LEADER
        self._clients = clients
        self._clock = clock
        self._kept: tuple[float, dict[str, Any]] | None = None
        self._asking = asyncio.Lock()

    async def now(self) -> dict[str, Any]:
        """The group, at most two seconds old."""
        if self._duty is None:
            return self._document("off")
        async with self._asking:
            if self._kept is None or self._clock.monotonic() - self._kept[0] >= _FRESH_S:
                found = await self._ask()
                self._kept = (self._clock.monotonic(), found)
            return self._kept[1]

    async def _ask(self) -> dict[str, Any]:
        try:
            found = await self._described()
        except ClusterError as failure:
            return self._document("unknown", problem=str(failure))
        workers = [asdict(one) for one in found.candidates]
        return self._document(found.state, workers=workers, truncated=found.is_truncated)

    async def _described(self) -> LeaderGroup:
        return await off_loop(lambda: self._describe(self._clients.admin, self._group, timeout_s=_CALL_S))

    def _document(self, state: str, **known: Any) -> dict[str, Any]:
        nothing = {"workers": [], "truncated": False, "problem": None}
        return {"state": state, "duty": self._duty, "at": self._clock.epoch_ms()} | nothing | known


def leader_router(status: LeaderStatus, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["health"])

    @router.get("/health/leader", response_class=JSONResponse, responses={200: {"model": LeaderModel}, **errors()})
    async def leader(_: Annotated[VisibleNames, Depends(access.visible_names)]) -> JSONResponse:
        """The workers that may lead, as Kafka's group has them now, and which of them leads."""
        return JSONResponse(await status.now(), headers=_HEADERS)

    return router
