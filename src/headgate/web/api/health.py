"""`GET /api/v1/health`: the topics that this process reads, the tables, and the last runs of the pipeline."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from headgate.tables.definitions import TABLES
from headgate.web.access import AccessControl
from headgate.web.api.answers import Answers, Rendered, json_answer
from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.models import HealthModel, RunModel, errors
from headgate.web.visible_names import VisibleNames

_MOST_RUNS = 10_000
_RUN_COLUMNS = tuple(RunModel.model_fields)


def health_router(
    tables: EstateTables, answers: Answers, access: AccessControl, problems: Callable[[], dict[str, str]]
) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["health"])

    @router.get("/health", response_class=Response, responses={200: {"model": HealthModel}, 304: {}, **errors()})
    async def health(request: Request, names: Annotated[VisibleNames, Depends(access.visible_names)]) -> Response:
        """Whether all topics that this process reads are available, and how fresh the tables are."""
        found = problems()

        def make() -> Rendered:
            return json_answer(
                {"ready": not found, "problems": found, "tables": _tables(tables), "pipeline": _last_runs(tables)}
            )

        stamps = await tables.stamps(TABLES)
        return await answers.of_versions(request, names, stamps, make, variant=repr(sorted(found.items())))

    return router


def _tables(tables: EstateTables) -> list[dict[str, Any]]:
    summaries = ((name, tables.reader.summary(table)) for name, table in TABLES.items())
    return [
        {"name": name, "version": one.version, "rows": one.rows, "bytes": one.bytes, "updated": one.updated}
        for name, one in summaries
        if one is not None
    ]


def _last_runs(tables: EstateTables) -> list[dict[str, Any]]:
    """The last run of each query."""
    last: dict[str, dict[str, Any]] = {}
    found = tables.reader.rows(TABLES["pipeline_runs"], columns=_RUN_COLUMNS, limit=_MOST_RUNS)
    for row in sorted(found.rows, key=lambda row: (row["started_at"], row["at"])):
        last[row["query"]] = row
    return [last[query] for query in sorted(last)]
