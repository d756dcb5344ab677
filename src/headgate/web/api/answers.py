"""Responses to reading: an ETag for each version of the tables, 304 for what the client has, and a bounded memory.

An ETag is made of the versions of the tables, the path and the parameters, the cluster that it is about, the format and
the names that the caller may see. Equal ETags are equal bytes, so an answer that was made once is kept and sent again.
Names are written as JSON with ASCII characters only: what a client chose as a name stays text.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fastapi import Request, Response
from starlette.datastructures import QueryParams

from headgate.web.visible_names import VisibleNames

if TYPE_CHECKING:  # a resource that needs no tables works without the libraries that read them
    from headgate.web.api.estate_tables import EstateTables, Stamps

JSON: Final = "application/json"
_MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
_MAX_KEPT: Final = 1_000
_HEADERS: Final = {
    "Cache-Control": "private, no-cache",
    "Vary": "Accept, Authorization",
    "X-Content-Type-Options": "nosniff",
    # For formats that a browser shows: no scripts, and nothing from elsewhere.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'",
}


@dataclass(frozen=True, slots=True)
class Rendered:
    """An answer as bytes, and its content type."""

    body: bytes
    media_type: str = JSON


def json_answer(document: dict[str, Any]) -> Rendered:
    return Rendered(json.dumps(document, separators=(",", ":"), allow_nan=False).encode())


class Answers:
    """Makes answers on the pool of the tables, and keeps the last ones; used on the event loop."""

    def __init__(self, tables: "EstateTables") -> None:
        self._tables = tables
        self._kept: OrderedDict[str, Rendered] = OrderedDict()
        self._kept_bytes = 0

    async def of_versions(
        self,
        request: Request,
        names: VisibleNames,
        versions: "Stamps",
        make: Callable[[], Rendered],
        *,
        variant: str = "",
    ) -> Response:
        """The answer of these versions. `variant` is what else it depends on, such as its format."""
        etag = _etag(request, names, versions, variant)
        headers = {**_HEADERS, "ETag": etag}
        if has_etag(request.headers.get("if-none-match", ""), etag):
            return Response(status_code=304, headers=headers)
        found = self._kept.get(etag)
        if found is None:
            found = await self._tables.run(make)
            self._keep(etag, found)
        else:
            self._kept.move_to_end(etag)
        return Response(found.body, headers=headers, media_type=found.media_type)

    def _keep(self, etag: str, made: Rendered) -> None:
        if etag in self._kept or len(made.body) > _MAX_KEPT_BYTES:
            return
        self._kept[etag] = made
        self._kept_bytes += len(made.body)
        while self._kept_bytes > _MAX_KEPT_BYTES or len(self._kept) > _MAX_KEPT:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= len(dropped.body)


def answer_of_content(request: Request, made: Rendered) -> Response:
    """An answer whose ETag is that of its content, for what is made of no table."""
    etag = f'"{hashlib.sha256(made.body).hexdigest()[:32]}"'
    headers = {**_HEADERS, "ETag": etag}
    if has_etag(request.headers.get("if-none-match", ""), etag):
        return Response(status_code=304, headers=headers)
    return Response(made.body, headers=headers, media_type=made.media_type)


def _etag(request: Request, names: VisibleNames, versions: "Stamps", variant: str) -> str:
    asked = sorted(QueryParams(request.scope["query_string"]).multi_items())
    cluster = getattr(request.state, "cluster", None)  # of `parameters.py`
    known = repr((request.scope["path"], asked, cluster, names.patterns, versions, variant))
    return f'"{hashlib.sha256(known.encode("utf-8", "backslashreplace")).hexdigest()[:32]}"'


def has_etag(header: str, etag: str) -> bool:
    """Whether If-None-Match has the ETag; weak ones count, because equal ETags are equal bytes."""
    given = (one.strip().removeprefix("W/") for one in header.split(","))
    return etag in given
