"""The page: the files that `ui/` was built into, served as they are. They hold no data, so they need no token.

The files are read once, so a path of a request never reaches the file system. Every address of a view is answered with
the same document, which finds out from the address what to show. Without built files (`make setup` builds them) the
plain index of the REST interface takes their place.
"""

from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse
from starlette.convertors import Convertor, register_url_convertor

from headgate.web import index_page

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
_MEDIA_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_FOREVER: Final = "public, max-age=31536000, immutable"  # names of assets have a hash of their content


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
    html = document.read_text("utf-8")

    async def page() -> HTMLResponse:
        return HTMLResponse(html, headers={**_HEADERS, "Cache-Control": "no-cache"})

    router.add_api_route("/", page, methods=["GET"])
    for view in VIEWS:
        router.add_api_route(f"/{view}", page, methods=["GET"])
        router.add_api_route(f"/{view}/{{rest:any}}", page, methods=["GET"])
    for file in sorted(root.rglob("*")):
        if file.is_file() and file != document:
            _add_file(router, f"/{file.relative_to(root).as_posix()}", file)
    return router


def _add_file(router: APIRouter, path: str, file: Path) -> None:
    body = file.read_bytes()
    media_type = _MEDIA_TYPES.get(file.suffix, "application/octet-stream")
    caching = _FOREVER if path.startswith("/assets/") else "no-cache"

    async def send() -> Response:
        return Response(body, media_type=media_type, headers={**_HEADERS, "Cache-Control": caching})

    router.add_api_route(path, send, methods=["GET"])


async def _plain_index() -> HTMLResponse:
    return HTMLResponse(index_page.HTML, headers=index_page.HEADERS)
