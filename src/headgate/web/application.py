"""The application: every router, the errors of all of them, and the check of hosts in front.

One rule: it is made from what it serves and has no life of its own; `server.py` gives it one.
"""

from collections.abc import Collection, Mapping
from typing import Any

from fastapi import Depends, FastAPI
from starlette.types import ASGIApp

import headgate
from headgate.activity.connect_status import WireStatus
from headgate.web.access import Access
from headgate.web.connectors import ConnectCluster, api_router, connect_router, problems
from headgate.web.errors import install_errors
from headgate.web.hosts import AllowedHosts


def make_application(
    *,
    clusters: Mapping[str, ConnectCluster],
    wire: WireStatus | None,
    access: Access,
    allowed_hosts: Collection[str],
) -> ASGIApp:
    """`clusters` in the configuration's order; `wire` None when activity is not watched."""
    # Its own pages of documentation load programs from other sites.
    app = FastAPI(title="Headgate", version=headgate.__version__, openapi_url=None, docs_url=None, redoc_url=None)
    app.router.redirect_slashes = False
    install_errors(app)
    app.include_router(connect_router(clusters, access))
    app.include_router(api_router(clusters, wire, access))

    @app.get("/api/v1/health", dependencies=[Depends(access.reading)])
    async def health() -> dict[str, Any]:
        found = problems(clusters, wire)
        return {"ready": not found, "problems": found}

    return AllowedHosts(app, allowed_hosts)
