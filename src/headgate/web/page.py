"""The page: the files that `ui/` was built into, served as they are. They hold no data, so they need no token.

The files are read once, so a path of a request never reaches the file system, and compressed once, when the first
browser asks. Every address of a view is answered with the same document, which finds out from the address what to show.
Without built files (`make setup` builds them) the plain index of the REST interface takes their place.
"""

import asyncio
import gzip
import hashlib
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from starlette.convertors import Convertor, register_url_convertor

from headgate.web import index_page
from headgate.web.api.answers import has_etag

ROOT: Final = Path(__file__).parent / "static"
VIEWS: Final = (
    "map",
    "apps",
    "topics",
    "groups",
    "letters",
    "connect",
    "health",
)  # as in ui/src/model/route.ts; Now is /
_HEADERS: Final = {
    # Everything comes from this server: no inline scripts or styles, and nothing from another site.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
# The types of the module `mimetypes` depend on the machine.
_MEDIA_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_FOREVER: Final = "public, max-age=31536000, immutable"  # names of assets have a hash of their content
_SMALL: Final = 1_400  # bytes that fit into a packet: compressed they are no faster


class _AnyText(Convertor[str]):
    """The rest of a path, whatever it is: of Starlette's own `path`, a name ends at its first line break."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("any", _AnyText())


def page_router(root: Path) -> APIRouter:
    """`root` is the folder of the built files."""
    router = APIRouter(include_in_schema=False)
    document = root / "index.html"
    if not document.is_file():
        router.add_api_route("/", _plain_index, methods=["GET"])
        return router
    page = _BuiltFile(document, "no-cache").send
    router.add_api_route("/", page, methods=["GET"])
    for view in VIEWS:
        router.add_api_route(f"/{view}", page, methods=["GET"])
        router.add_api_route(f"/{view}/{{rest:any}}", page, methods=["GET"])
    for file in sorted(root.rglob("*")):
        if file.is_file() and file != document:
            path = f"/{file.relative_to(root).as_posix()}"
            built = _BuiltFile(file, _FOREVER if path.startswith("/assets/") else "no-cache")
            router.add_api_route(path, built.send, methods=["GET"])
    return router


class _BuiltFile:
    """One file as it is, and compressed; each form has an ETag of its own, because their bytes differ."""

    def __init__(self, file: Path, caching: str) -> None:
        self._body = file.read_bytes()
        self._media_type = _MEDIA_TYPES.get(file.suffix, "application/octet-stream")
        self._may_compress = file.suffix in _MEDIA_TYPES and len(self._body) > _SMALL
        self._compressed: bytes | None = None
        self._etag = hashlib.sha256(self._body).hexdigest()[:32]
        self._headers = {**_HEADERS, "Cache-Control": caching}
        if self._may_compress:
            self._headers["Vary"] = "Accept-Encoding"

    async def send(self, request: Request) -> Response:
        is_compressed = self._may_compress and accepts_gzip(request.headers.get("accept-encoding", ""))
        etag = f'"{self._etag}-gzip"' if is_compressed else f'"{self._etag}"'
        headers = {**self._headers, "ETag": etag}
        if has_etag(request.headers.get("if-none-match", ""), etag):
            return Response(status_code=304, headers=headers)
        if not is_compressed:
            return Response(self._body, media_type=self._media_type, headers=headers)
        if self._compressed is None:
            self._compressed = await asyncio.to_thread(gzip.compress, self._body, mtime=0)
        return Response(self._compressed, media_type=self._media_type, headers={**headers, "Content-Encoding": "gzip"})


def accepts_gzip(header: str) -> bool:
    """Whether Accept-Encoding has gzip, or everything, with a weight that is not 0; an invalid weight refuses."""
    weights: dict[str, float] = {}
    for part in header.lower().split(","):
        coding, *parameters = (one.strip() for one in part.split(";"))
        given = next((text.removeprefix("q=") for text in parameters if text.startswith("q=")), "1")
        try:
            weights[coding] = float(given)
        except ValueError:
            weights[coding] = 0.0
    return weights.get("gzip", weights.get("*", 0.0)) > 0


async def _plain_index() -> HTMLResponse:
    return HTMLResponse(index_page.HTML, headers=index_page.HEADERS)
