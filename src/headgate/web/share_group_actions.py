"""`POST /api/v1/share-groups/NAME/pause` and `.../resume`: with a reason, as the operator's own user."""

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from headgate.share_groups.model.group_configs import MAX_REASON_CHARACTERS
from headgate.web.access import AccessControl, Caller
from headgate.web.api.models import ApiModel, errors
from headgate.web.api.share_group_models import PauseReasonModel
from headgate.web.operations import GroupOperation, OperationError, ShareGroupOperations
from headgate.web.operator_requests import (
    CREDENTIAL_HINT,
    OPERATION_HEADERS,
    CredentialModel,
    body_of,
    operator_of,
    read_body,
    refusal_of,
    require_own_page,
)
from headgate.web.paths import NameInPath


class OperationModel(ApiModel):
    reason: str = Field(min_length=1, max_length=MAX_REASON_CHARACTERS, description="printable; others will see it")
    credential: CredentialModel | None = None


class OperationDoneModel(ApiModel):
    """The group afterwards: a resume ends all pauses, so `remaining_reasons` are those of pauses that began since."""

    group: str
    paused: bool
    reason: str
    remaining_reasons: list[PauseReasonModel]


_BODY: Final = body_of(OperationModel)


def share_group_actions_router(operations: ShareGroupOperations, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["share groups"])

    async def act(operation: GroupOperation, request: Request, name: str, caller: Caller) -> JSONResponse:
        require_own_page(request.headers)
        if not caller.names.has(name):
            raise HTTPException(HTTPStatus.NOT_FOUND, f"There is no share group '{name}'")
        asked = await _body(request)
        by = operator_of(request, caller, asked.credential)
        try:
            return JSONResponse(await operations.run(operation, name, asked.reason, by), headers=OPERATION_HEADERS)
        except OperationError as refused:
            raise refusal_of(refused) from None

    answers: dict[int | str, dict[str, Any]] = {
        200: {"model": OperationDoneModel},
        **errors(404, 413, 415, 429, 502, 504),
    }

    @router.post("/share-groups/{name}/pause", response_class=JSONResponse, responses=answers, openapi_extra=_BODY)
    async def pause(
        request: Request, name: NameInPath, caller: Annotated[Caller, Depends(access.operator)]
    ) -> JSONResponse:
        """Pause a share group: its members get no records until it is resumed."""
        return await act(GroupOperation.PAUSE, request, name, caller)

    @router.post("/share-groups/{name}/resume", response_class=JSONResponse, responses=answers, openapi_extra=_BODY)
    async def resume(
        request: Request, name: NameInPath, caller: Annotated[Caller, Depends(access.operator)]
    ) -> JSONResponse:
        """End all pauses of a share group, also that of its breaker."""
        return await act(GroupOperation.RESUME, request, name, caller)

    return router


async def _body(request: Request) -> OperationModel:
    hint = f'{{"reason": "..."}} with 1 to {MAX_REASON_CHARACTERS:,} characters, and at most a {CREDENTIAL_HINT}'
    found = await read_body(request, OperationModel, hint)
    if not found.reason.strip() or not found.reason.isprintable():
        raise HTTPException(HTTPStatus.BAD_REQUEST, "The reason must have printable characters only, and not be blank")
    return found
