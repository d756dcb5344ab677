"""`POST /api/v1/topologies:parse`: a text of `Topology#describe()` as a topology. Nothing is kept."""

from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Request, Response

from headgate.facts.topology import DESCRIPTION, content_hash, findings
from headgate.topologies.model.topology_parser import Unreadable, parse
from headgate.web.access import AccessControl
from headgate.web.api.answers import Rendered, json_answer
from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.models import ParsedModel, errors
from headgate.web.visible_names import VisibleNames

MAX_TEXT: Final = 1024 * 1024
_MOST_FINDINGS: Final = 100
_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {"text/plain": {"schema": {"type": "string", "maxLength": MAX_TEXT}}}}
}


def topologies_router(tables: EstateTables, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["topologies"])

    @router.post(
        "/topologies:parse",
        response_class=Response,
        responses={200: {"model": ParsedModel}, **errors(413)},
        openapi_extra=_BODY,
    )
    async def parse_topology(
        request: Request, names: Annotated[VisibleNames, Depends(access.visible_names)]
    ) -> Response:
        """A text of `Topology#describe()`, of at most 1 MiB, as a description. It is not kept."""
        del names  # the text is the caller's own
        text = await _text(request)
        made = await tables.run(lambda: _parsed(text))
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return Response(made.body, media_type=made.media_type, headers=headers)

    return router


async def _text(request: Request) -> str:
    """The body, refused before more than its bound is in memory."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_TEXT:
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The text has more than {MAX_TEXT:,} bytes, too many here"
            )
    try:
        return body.decode()
    except UnicodeDecodeError as failure:
        line = body.count(b"\n", 0, failure.start) + 1
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"The text is not UTF-8: line {line}") from None


def _parsed(text: str) -> Rendered:
    found = parse(text)
    if isinstance(found, Unreadable):
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"Line {found.line}, column {found.column}: {found.text}")
    flaws = list(islice(findings(found), _MOST_FINDINGS))
    return json_answer(
        {
            "hash": content_hash(found),
            "description": DESCRIPTION.write(found),
            "findings": [
                {"flaw": one.flaw.value, "subtopology": one.subtopology, "node": one.node, "text": one.text}
                for one in flaws
            ],
        }
    )
