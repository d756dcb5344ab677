"""`POST /api/v1/dead-letters/record`: the content of one record, for an operator who may READ its topic."""

from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from headgate.dead_letters.model.plans import PlanRecord
from headgate.dead_letters.model.topic_ids import replayed_topic_id
from headgate.tables.definitions import TABLES
from headgate.tables.reader import Condition
from headgate.web.access import AccessControl, Caller
from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.models import ApiModel, Name, Time, errors
from headgate.web.operations import OperationError
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
from headgate.web.record_view import RecordViewer

_DEAD_LETTERS: Final = TABLES["dead_letters"]
_COLUMNS: Final = (
    *("topic", "topic_id", "partition", "offset", "dlq_topic", "dlq_topic_id", "dlq_partition", "dlq_offset"),
    *("copied", "reason", "dead_lettered_at"),
)
_MOST_TOPIC_IDS: Final = 100
_MAX_OFFSET: Final = 2**63 - 1
_HINT: Final = (
    '{"group": "...", "topic": "...", "partition": 0, "offset": 0} and at most topic_id and a ' + CREDENTIAL_HINT
)


class RecordBodyModel(ApiModel):
    """Without `topic_id`, the last topic of this name."""

    group: str = Field(max_length=4_096)
    topic: str = Field(min_length=1, max_length=249)
    partition: int = Field(ge=0, le=2**31 - 1)
    offset: int = Field(ge=0, le=_MAX_OFFSET)
    topic_id: str | None = Field(default=None, max_length=254)
    credential: CredentialModel | None = None


class RecordContentModel(ApiModel):
    """The first bytes; `text` is null where they are not UTF-8."""

    size: int
    hex: str
    text: str | None
    truncated: bool


class RecordHeaderModel(ApiModel):
    name: str
    value: RecordContentModel | None


class RecordDeadLetterModel(ApiModel):
    topic: Name
    partition: int
    offset: int
    reason: str | None


class RecordModel(ApiModel):
    """A record at its source, or the copy in its dead letter where the source is gone."""

    group: str
    topic: str
    partition: int
    offset: int
    from_: Literal["source", "dead_letter"] = Field(alias="from")
    timestamp: Time | None
    size: int
    key: RecordContentModel | None
    value: RecordContentModel | None
    headers: list[RecordHeaderModel]
    headers_truncated: bool
    dead_letter: RecordDeadLetterModel


def record_router(tables: EstateTables, viewer: RecordViewer, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["dead letters"])

    @router.post(
        "/dead-letters/record",
        response_class=JSONResponse,
        responses={200: {"model": RecordModel}, **errors(404, 413, 415, 429, 502, 504)},
        openapi_extra=body_of(RecordBodyModel),
    )
    async def record(request: Request, caller: Annotated[Caller, Depends(access.operator)]) -> JSONResponse:
        """The key, value and headers of a record that became a dead letter, bounded, read as the operator."""
        require_own_page(request.headers)
        asked = await read_body(request, RecordBodyModel, _HINT)
        operator = operator_of(request, caller, asked.credential)
        row = await tables.run(lambda: _dead_letter(tables, asked, caller))
        try:
            shown = await viewer.show(asked.group, _planned(row), operator)
        except OperationError as refused:
            raise refusal_of(refused) from None
        dead_letter = {
            "topic": row["dlq_topic"] if caller.names.has(row["dlq_topic"]) else None,
            "partition": row["dlq_partition"],
            "offset": row["dlq_offset"],
            "reason": row["reason"],
        }
        return JSONResponse(shown | {"dead_letter": dead_letter}, headers=OPERATION_HEADERS)

    return router


def _dead_letter(tables: EstateTables, asked: RecordBodyModel, caller: Caller) -> dict[str, Any]:
    """The row of the dead letter; 404 where there is none that the caller may see."""
    where = [
        Condition("group", "=", asked.group),
        Condition("topic", "=", asked.topic),
        Condition("partition", "=", asked.partition),
        Condition("offset", "=", asked.offset),
        Condition("withdrawn", "=", False),
        *([] if asked.topic_id is None else [Condition("topic_id", "=", asked.topic_id)]),
    ]
    rows: tuple[dict[str, Any], ...] = ()
    if caller.names.has(asked.group) and caller.names.has(asked.topic):
        rows = tables.reader.rows(_DEAD_LETTERS, where=where, columns=_COLUMNS, limit=_MOST_TOPIC_IDS).rows
    if not rows:
        raise HTTPException(HTTPStatus.NOT_FOUND, "There is no such dead letter of the group")
    return max(rows, key=lambda row: (row["dead_lettered_at"], row["topic_id"]))


def _planned(row: dict[str, Any]) -> PlanRecord:
    """The record as a replay would read it."""
    places = {name: row[name] for name in _COLUMNS if name not in {"reason", "dead_lettered_at"}}
    places["topic_id"] = replayed_topic_id(row["topic_id"])
    return PlanRecord(position=0, action="leave_out", why=None, target_topic="", target_partition=0, **places)
