"""`GET /api/v1/share-groups/NAME/backtest`: what the breaker of a group would have done with other settings.

It adds up the days of `breaker_backtest`, which the pipeline makes once a day. A simulation would read all counts of
the group, which is too much work for one request: the command `headgate share-groups --backtest` does it.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response

from headgate.lineage.estate import NotInEstateError
from headgate.share_groups.model.backtest import BacktestSummary, recommended
from headgate.share_groups.model.breaker import BreakerRules
from headgate.tables.definitions import table_named
from headgate.tables.reader import Condition
from headgate.web.access import AccessControl
from headgate.web.api.answers import Answers, Rendered, json_answer
from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.models import errors
from headgate.web.api.parameters import Cluster
from headgate.web.api.share_group_models import BacktestModel
from headgate.web.paths import NameInPath
from headgate.web.visible_names import VisibleNames

_TABLE: Final = "breaker_backtest"
_KEY: Final = ("threshold_percent", "window_ms", "min_messages")
_COUNTS: Final = ("trips", "paused_s", "avoided", "false_trips")

Row = dict[str, Any]


def backtests_router(tables: EstateTables, answers: Answers, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1/share-groups", tags=["share groups"])

    @router.get(
        "/{name}/backtest", response_class=Response, responses={200: {"model": BacktestModel}, 304: {}, **errors(404)}
    )
    async def backtest(
        request: Request,
        name: NameInPath,
        names: Annotated[VisibleNames, Depends(access.visible_names)],
        cluster: Cluster = None,
    ) -> Response:
        """A hundred settings of the breaker over the last seven whole days, and the recommended one."""

        def make() -> Rendered:
            rows: list[Row] = []
            if names.has(name):
                estate = tables.open_estate(cluster=cluster, as_of_ms=None)
                found = estate.rows(_TABLE, Condition("group", "=", name), columns=table_named(_TABLE).columns.names)
                rows = list(estate.of_one_cluster(found))
            if not rows:
                raise NotInEstateError(
                    f"the share group {name!r} had no dead letters in the last seven whole days, or the pipeline has "
                    "not tested them yet. `headgate share-groups --backtest` also reads the records of today."
                )
            return json_answer(_document(name, rows))

        return await answers.of_versions(request, names, await tables.stamps((_TABLE,)), make)

    return router


def _document(name: str, rows: Iterable[Row]) -> Row:
    """The sums of each setting over all days, the live one first."""
    sums: dict[tuple[int, ...], list[int]] = {}
    live: set[tuple[int, ...]] = set()
    days: dict[int, int] = {}
    for row in rows:
        key = tuple(row[column] for column in _KEY)
        days[row["day"]] = row["left_out_s"]
        of_key = sums.setdefault(key, [0] * len(_COUNTS))
        for place, column in enumerate(_COUNTS):
            of_key[place] += row[column]
        if row["is_live"]:
            live.add(key)
    keys = sorted(sums, key=lambda key: (key not in live, key))
    summaries = [
        BacktestSummary(
            rules=BreakerRules(**dict(zip(_KEY, key, strict=True))), **dict(zip(_COUNTS, sums[key], strict=True))
        )
        for key in keys
    ]
    configs = [dict(zip((*_KEY, *_COUNTS), (*key, *sums[key]), strict=True)) for key in keys]
    known = {"group": name, "days": len(days), "configs": configs, "recommended": recommended(summaries)}
    return known | {"live": 0 if live else None, "from": min(days), "left_out_s": sum(days.values())}
