"""`POST /api/v1/plans`, and `/api/v1/replays`: what operators ask for, and what became of it.

A plan is made by the running pipeline and a replay by a process of this server, so both are answered with 202. A token
that is limited to names acts on groups of its names alone, and gets no text that may have others.
"""

import secrets
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import JSONResponse

from headgate.base.clock import Clock
from headgate.base.errors import UsageError
from headgate.dead_letters.model.plans import ORIGINAL, WHERE_COLUMNS, PlanMismatchError, new_plan_id
from headgate.dead_letters.model.where import parse_where
from headgate.dead_letters.plan_store import load_answered_plan, plan_of_row, tables_id
from headgate.dead_letters.plan_topic import SILENCE_S
from headgate.facts.plan_requests import REQUEST_LIFE_MS, PlanOption, PlanRequested
from headgate.web.access import AccessControl, Caller
from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.models import errors
from headgate.web.api.parameters import Limit, parse_api_time
from headgate.web.api.plan_models import (
    AbortBodyModel,
    EmptyBodyModel,
    PlanBodyModel,
    PlanRequestedModel,
    PlanRequestModel,
    ReplayBodyModel,
    ReplayModel,
    ReplaysModel,
)
from headgate.web.api.plans import head_of, plan_head, plan_heads, plan_row
from headgate.web.operations import OperationError
from headgate.web.operator_requests import (
    CREDENTIAL_HINT,
    OPERATION_HEADERS,
    AsciiResponse,
    body_of,
    operator_of,
    read_body,
    refusal_of,
    require_own_page,
)
from headgate.web.paths import NameInPath
from headgate.web.replay_runs.job import ReplayCommand, ReplayKind
from headgate.web.replay_runs.progress import PlanRequestStatus
from headgate.web.replay_runs.replay_operations import ReplayOperations, ReplayOrder
from headgate.web.replay_runs.view import ReplayView
from headgate.web.visible_names import VisibleNames

_CODES: Final = (404, 409, 413, 415, 429)
_PLAN_HINT: Final = (
    '{"group": "..." or "topic": "...", "to": "original" or a topic} and at most where, since, until, cluster, '
    "accept_fanout and include_superseded"
)
_REPLAY_HINT: Final = (
    '{"plan": "..."} and at most rate (above 0, at most 1000000), timestamp ("original" or "now"), dry_run and a '
    + CREDENTIAL_HINT
)
_LIMITED: Final = "The text may have names that the token does not show: see `headgate dlq plan`"
_NO_PIPELINE: Final = (
    "No pipeline has taken the request yet: is `headgate pipeline run` running, and may its service account read and "
    "write headgate-replay.progress?"
)


def replay_actions_router(
    tables: EstateTables, operations: ReplayOperations, view: ReplayView, access: AccessControl, clock: Clock
) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["plans"])

    @router.post(
        "/plans",
        status_code=HTTPStatus.ACCEPTED,
        response_class=JSONResponse,
        responses={202: {"model": PlanRequestedModel}, **errors(*_CODES)},
        openapi_extra=body_of(PlanBodyModel),
    )
    async def request_plan(request: Request, caller: Annotated[Caller, Depends(access.operator)]) -> JSONResponse:
        """Ask the running pipeline for a plan; nothing is replayed."""
        require_own_page(request.headers)
        asked = await read_body(request, PlanBodyModel, _PLAN_HINT)
        wanted = _plan_requested(asked, caller, clock.epoch_ms())
        wanted = replace(wanted, tables=await tables.run(lambda: tables_id(tables.root)))
        try:
            await operations.request_plan(wanted, operator_of(request, caller, None))
        except OperationError as refused:
            raise refusal_of(refused) from None
        return JSONResponse({"request": wanted.request}, HTTPStatus.ACCEPTED, OPERATION_HEADERS)

    @router.get(
        "/plan-requests/{name}",
        response_class=JSONResponse,
        responses={200: {"model": PlanRequestModel}, **errors(404)},
    )
    async def plan_request(
        name: NameInPath, names: Annotated[VisibleNames, Depends(access.visible_names)]
    ) -> JSONResponse:
        """The state of a request for a plan."""
        found = view.records.request(name)
        group = None if found is None else found.request.group
        if found is None or (names.are_limited and (group is None or not names.has(group))):
            if view.problem is not None:
                raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, f"Requests are not known yet: {view.problem}")
            raise HTTPException(HTTPStatus.NOT_FOUND, f"There is no request '{name}'")
        mismatch = None if found.plan is None else await tables.run(lambda: _mismatch(tables, found))
        return AsciiResponse(_request_row(found, mismatch, names, clock.epoch_ms()), headers=OPERATION_HEADERS)

    @router.get("/replays", response_class=JSONResponse, responses={200: {"model": ReplaysModel}, **errors()})
    async def replays(
        names: Annotated[VisibleNames, Depends(access.visible_names)], limit: Limit = 100
    ) -> JSONResponse:
        """Replays of commands and of this server, those that changed last first."""
        heads = await tables.run(lambda: plan_heads(tables))
        return AsciiResponse(view.document(heads, names, limit), headers=OPERATION_HEADERS)

    @router.post(
        "/replays",
        status_code=HTTPStatus.ACCEPTED,
        response_class=JSONResponse,
        responses={202: {"model": ReplayModel}, **errors(*_CODES, 502, 504)},
        openapi_extra=body_of(ReplayBodyModel),
    )
    async def start(request: Request, caller: Annotated[Caller, Depends(access.operator)]) -> JSONResponse:
        """Replay a plan in a process of this server, as the operator's own user of the cluster."""
        require_own_page(request.headers)
        asked = await read_body(request, ReplayBodyModel, _REPLAY_HINT)
        by = operator_of(request, caller, asked.credential)
        kind = ReplayKind.DRY_RUN if asked.dry_run else ReplayKind.REPLAY
        order = ReplayOrder(kind=kind, rate=asked.rate, timestamps=asked.timestamp)
        row = await tables.run(lambda: plan_row(tables, asked.plan, caller.names))
        try:
            await operations.start(plan_of_row(row), order, by)
        except OperationError as refused:
            raise refusal_of(refused) from None
        return _answer(view.replay(asked.plan, head_of(row), caller.names), HTTPStatus.ACCEPTED)

    @router.get("/replays/{name}", response_class=JSONResponse, responses={200: {"model": ReplayModel}, **errors(404)})
    async def replay(name: NameInPath, names: Annotated[VisibleNames, Depends(access.visible_names)]) -> JSONResponse:
        """The progress of a plan's replays, and how to continue."""
        return _answer(await _replay(name, names))

    async def _replay(name: str, names: VisibleNames) -> dict[str, Any]:
        found = view.replay(name, await tables.run(lambda: plan_head(tables, name)), names)
        if found is None and view.problem is not None:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, f"Replays are not known yet: {view.problem}")
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"There is no replay of a plan '{name}'")
        return found

    async def command(request: Request, name: str, caller: Caller, wanted: ReplayCommand) -> JSONResponse:
        require_own_page(request.headers)
        await read_body(request, EmptyBodyModel, "{}")
        found = await _replay(name, caller.names)
        try:
            await operations.command(name, found["group"] or "", wanted, operator_of(request, caller, None))
        except OperationError as refused:
            raise refusal_of(refused) from None
        return _answer(await _replay(name, caller.names))

    commanded: dict[str, Any] = {
        "response_class": JSONResponse,
        "responses": {200: {"model": ReplayModel}, **errors(*_CODES)},
        "openapi_extra": body_of(EmptyBodyModel),
    }

    @router.post("/replays/{name}/pause", **commanded)
    async def pause(
        request: Request, name: NameInPath, caller: Annotated[Caller, Depends(access.operator)]
    ) -> JSONResponse:
        """Pause a replay of this server after its running transaction."""
        return await command(request, name, caller, ReplayCommand.PAUSE)

    @router.post("/replays/{name}/resume", **commanded)
    async def resume(
        request: Request, name: NameInPath, caller: Annotated[Caller, Depends(access.operator)]
    ) -> JSONResponse:
        """Let a paused replay of this server go on."""
        return await command(request, name, caller, ReplayCommand.RESUME)

    @router.post("/replays/{name}/stop", **commanded)
    async def stop(
        request: Request, name: NameInPath, caller: Annotated[Caller, Depends(access.operator)]
    ) -> JSONResponse:
        """End a replay of this server after its running transaction; it can be started again."""
        return await command(request, name, caller, ReplayCommand.STOP)

    @router.post(
        "/replays/{name}/abort",
        status_code=HTTPStatus.ACCEPTED,
        response_class=JSONResponse,
        responses={202: {"model": ReplayModel}, **errors(*_CODES, 502, 504)},
        openapi_extra=body_of(AbortBodyModel),
    )
    async def abort(
        request: Request, name: NameInPath, caller: Annotated[Caller, Depends(access.operator)]
    ) -> JSONResponse:
        """End a plan for good, and the replay of it that runs anywhere."""
        require_own_page(request.headers)
        asked = await read_body(request, AbortBodyModel, "{} with at most a " + CREDENTIAL_HINT)
        by = operator_of(request, caller, asked.credential)
        row = await tables.run(lambda: plan_row(tables, name, caller.names))
        try:
            await operations.start(plan_of_row(row), ReplayOrder(kind=ReplayKind.ABORT), by)
        except OperationError as refused:
            raise refusal_of(refused) from None
        return _answer(view.replay(name, head_of(row), caller.names), HTTPStatus.ACCEPTED)

    return router


def _answer(row: dict[str, Any] | None, status: int = HTTPStatus.OK) -> JSONResponse:
    assert row is not None
    return AsciiResponse(row, status, OPERATION_HEADERS)


def _plan_requested(asked: PlanBodyModel, caller: Caller, now_ms: int) -> PlanRequested:
    """The request; what cannot be a plan is refused before it is written."""
    if (asked.group is None) == (asked.topic is None):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "Specify either group or topic")
    if caller.names.are_limited and (asked.group is None or not caller.names.has(asked.group)):
        raise HTTPException(HTTPStatus.FORBIDDEN, "The token is limited to names: specify a group that it shows")
    if asked.to != ORIGINAL and not caller.names.has(asked.to):
        raise HTTPException(HTTPStatus.FORBIDDEN, "The token is limited to names, and `to` is not one of them")
    if asked.where is not None:
        try:
            parse_where(asked.where, WHERE_COLUMNS)
        except UsageError as problem:
            raise HTTPException(HTTPStatus.BAD_REQUEST, str(problem)) from None
    since, until = _time("since", asked.since), _time("until", asked.until)
    if since is not None and until is not None and since >= until:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "since must be before until")
    flags: dict[PlanOption, bool] = {
        "accept_fanout": asked.accept_fanout,
        "include_superseded": asked.include_superseded,
    }
    return PlanRequested(
        at=now_ms,
        request=new_plan_id(now_ms, secrets.token_bytes(6)),
        by=caller.name,
        group=asked.group,
        dlq_topic=asked.topic,
        where=asked.where,
        since=since,
        until=until,
        episode=asked.cluster,
        to=asked.to,
        options=tuple(name for name, is_set in flags.items() if is_set),
        topics=caller.names.patterns,  # what a token does not see is not counted for it either
    )


def _time(name: str, given: int | str | None) -> int | None:
    return None if given is None else parse_api_time(name, str(given))


def _mismatch(tables: EstateTables, found: PlanRequestStatus) -> str | None:
    """Why the plan of the answer is not the one that was asked for; None when it is."""
    try:
        if found.plan is not None:
            load_answered_plan(tables.reader, found.plan, found.request)
    except PlanMismatchError as mismatch:
        return str(mismatch)
    return None


def _request_row(found: PlanRequestStatus, mismatch: str | None, names: VisibleNames, now_ms: int) -> dict[str, Any]:
    request, state, text = found.request, found.state, found.text
    waits_ms = now_ms - request.at
    if found.taken_at is None and waits_ms > REQUEST_LIFE_MS:
        state, text = "FAILED", _NO_PIPELINE
    elif found.taken_at is None and waits_ms > SILENCE_S * 1000:
        text = _NO_PIPELINE
    elif mismatch is not None:
        state, text = "FAILED", mismatch
    elif text is not None and names.are_limited:
        text = _LIMITED
    return {
        "request": request.request,
        "state": state,
        "plan": None if mismatch is not None else found.plan,
        "text": text,
        "group": request.group,
        "at": request.at,
        "by": request.by,
    }
