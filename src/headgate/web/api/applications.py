"""`/api/v1/applications`: Streams applications and Spark queries, their topologies, versions, differences and tasks."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from headgate.facts.topology import DESCRIPTION
from headgate.lineage import questions
from headgate.lineage.estate import SPARK, STREAMS, absent
from headgate.lineage.estate_map import MapUse
from headgate.tables.definitions import TABLES
from headgate.tables.reader import AtTime, Condition, Now
from headgate.topologies.model.compatibility import diff_document, judge_compatibility
from headgate.topologies.model.topology_diff import diff
from headgate.topologies.model.topology_pictures import picture_of, to_dot, to_mermaid
from headgate.topologies.model.topology_text import render
from headgate.web.access import AccessControl
from headgate.web.api import models
from headgate.web.api.answers import Answers, Rendered, json_answer
from headgate.web.api.estate_tables import EstateTables, LoadedEstate, Stamps, bounded
from headgate.web.api.mismatches import open_mismatches
from headgate.web.api.models import errors
from headgate.web.api.parameters import MAX_NAME, After, AsOf, Cluster, Contains, Limit, page_after, parse_as_of
from headgate.web.api.versions import (
    read_description,
    read_versions,
    select_version,
    version_document,
    version_name,
)
from headgate.web.paths import NameInPath
from headgate.web.visible_names import VisibleNames

_KINDS: Final = frozenset({STREAMS, SPARK})
_MOST_GAPS: Final = 100

Row = dict[str, Any]
Version = Annotated[str, Query(max_length=MAX_NAME, description="a name, the beginning of a hash, latest or previous")]


class TopologyFormat(StrEnum):
    JSON = "json"
    TEXT = "text"
    DOT = "dot"
    MERMAID = "mermaid"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownApplications:
    """The applications of a cluster at a time: those with a topology, and those that are only seen."""

    stamps: Stamps
    estate: LoadedEstate
    rows: dict[str, Row]
    names: list[str]


async def known_applications(tables: EstateTables, *, cluster: str | None, as_of_ms: int | None) -> KnownApplications:
    estate = await tables.estate(cluster=cluster, as_of_ms=as_of_ms)

    def load(stamps: Stamps) -> KnownApplications:
        reading = tables.open_estate(cluster=estate.cluster, as_of_ms=as_of_ms)
        found = {row["app_id"]: row for row in bounded(reading.rows("applications", is_valid=True))}
        seen = {one.name for one in estate.map.summaries(_KINDS)}
        return KnownApplications(stamps=stamps, estate=estate, rows=found, names=sorted(seen | found.keys()))

    return await tables.loaded("applications", (cluster, as_of_ms), ("applications",), load, also=estate.stamps)


def applications_router(tables: EstateTables, answers: Answers, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1/applications", tags=["applications"])
    names_of = Depends(access.visible_names)

    @router.get("", response_class=Response, responses={200: {"model": models.ApplicationsModel}, 304: {}, **errors()})
    async def applications(
        request: Request,
        names: Annotated[VisibleNames, names_of],
        contains: Contains = "",
        after: After = "",
        limit: Limit = 100,
        as_of: AsOf = None,
        cluster: Cluster = None,
    ) -> Response:
        """Streams applications and Spark queries by name, with their current versions."""
        known = await known_applications(tables, cluster=cluster, as_of_ms=parse_as_of(as_of))

        def make() -> Rendered:
            low = contains.lower()
            found = [name for name in known.names if low in name.lower() and names.has(name)]
            page, following = page_after(found, after, limit)
            rows = [_summary(known, name) for name in found[page]]
            return json_answer({"applications": rows, "count": len(found), "next": following})

        return await answers.of_versions(request, names, known.stamps, make)

    @router.get(
        "/{name}",
        response_class=Response,
        responses={200: {"model": models.ApplicationModel}, 304: {}, **errors(404)},
    )
    async def application(
        request: Request,
        name: NameInPath,
        names: Annotated[VisibleNames, names_of],
        as_of: AsOf = None,
        cluster: Cluster = None,
    ) -> Response:
        """An application: its current version, the topics that it reads and writes, and where these differ."""
        at = parse_as_of(as_of)
        known = await known_applications(tables, cluster=cluster, as_of_ms=at)
        stamps = await tables.stamps(("lineage_gaps", "changes"))
        now_ms = tables.now_ms() if at is None else at

        def make() -> Rendered:
            _require(known, name, names)
            summary = _summary(known, name)
            reads, writes = _uses(known, summary["kind"], name)
            reading = tables.open_estate(cluster=known.estate.cluster, as_of_ms=at)
            gaps = questions.gaps(reading, now_ms=now_ms, limit=_MOST_GAPS, app=name, state=None)
            return json_answer(
                summary
                | {"reads": _topics(reads, names), "writes": _topics(writes, names)}
                | {"gaps": [_gap(row, names) for row in gaps["gaps"] if _is_gap(row)]}
                | {"mismatch": open_mismatches(reading, application=name).get(name) if at is None else None}
            )

        return await answers.of_versions(request, names, (*known.stamps, *stamps, now_ms), make)

    async def versioned(
        request: Request,
        name: str,
        names: VisibleNames,
        cluster: str | None,
        make: Callable[[list[Row], bool], Rendered],
    ) -> Response:
        """An answer from the versions of an application: `make` gets them, and whether there are more."""
        known = await known_applications(tables, cluster=cluster, as_of_ms=None)
        stamps = await tables.stamps(("topology_versions",))

        def made() -> Rendered:
            if not names.has(name):
                raise absent("application", name, ())
            rows, more = read_versions(tables, known.estate.cluster or "", name)
            if not rows:
                _require(known, name, names)
                raise HTTPException(HTTPStatus.NOT_FOUND, f"No version of the topology of {name!r} is known")
            return make(rows, more)

        return await answers.of_versions(request, names, (*known.stamps, *stamps), made)

    @router.get(
        "/{name}/versions",
        response_class=Response,
        responses={200: {"model": models.VersionsModel}, 304: {}, **errors(404)},
    )
    async def versions(
        request: Request, name: NameInPath, names: Annotated[VisibleNames, names_of], cluster: Cluster = None
    ) -> Response:
        """The versions of an application's topology, the current one first."""

        def make(rows: list[Row], more: bool) -> Rendered:
            return json_answer(
                {"application": name, "versions": [version_document(row) for row in rows], "truncated": more}
            )

        return await versioned(request, name, names, cluster, make)

    @router.get(
        "/{name}/topology",
        response_class=Response,
        responses={
            200: {
                "model": models.TopologyModel,
                "content": {media: {"schema": {"type": "string"}} for media in list(_TEXTS.values())},
            },
            304: {},
            **errors(404),
        },
    )
    async def topology(
        request: Request,
        name: NameInPath,
        names: Annotated[VisibleNames, names_of],
        version: Version = "latest",
        format: TopologyFormat = TopologyFormat.JSON,  # noqa: A002
        cluster: Cluster = None,
    ) -> Response:
        """The topology of an application: sub-topologies, nodes, stores and global stores."""

        def make(rows: list[Row], _: bool) -> Rendered:
            row = select_version(rows, version)
            found = read_description(tables, row, names)
            match format:
                case TopologyFormat.JSON:
                    description = DESCRIPTION.write(found)
                    return json_answer({"application": name, **version_document(row), "description": description})
                case TopologyFormat.TEXT:
                    text = render(found)
                case TopologyFormat.DOT:
                    text = to_dot(picture_of(found))
                case TopologyFormat.MERMAID:
                    text = to_mermaid(picture_of(found))
            return Rendered(text.encode("utf-8", "replace"), f"{_TEXTS[format]}; charset=utf-8")

        return await versioned(request, name, names, cluster, make)

    @router.get(
        "/{name}/diff", response_class=Response, responses={200: {"model": models.DiffModel}, 304: {}, **errors(404)}
    )
    async def difference(
        request: Request,
        name: NameInPath,
        names: Annotated[VisibleNames, names_of],
        before: Annotated[str, Query(alias="from", max_length=MAX_NAME, description="the older version")] = "previous",
        after: Annotated[str, Query(alias="to", max_length=MAX_NAME, description="the newer version")] = "latest",
        cluster: Cluster = None,
    ) -> Response:
        """The changes between two versions, and whether the newer one can take over from the older one."""

        def make(rows: list[Row], _: bool) -> Rendered:
            old, new = select_version(rows, before), select_version(rows, after)
            found = diff(
                read_description(tables, old, names),
                read_description(tables, new, names),
                before_application=name,
                after_application=name,
            )
            between = {"application": name, "from": version_name(old), "to": version_name(new)}
            return json_answer(between | diff_document(found, judge_compatibility(found)))

        return await versioned(request, name, names, cluster, make)

    @router.get(
        "/{name}/tasks", response_class=Response, responses={200: {"model": models.TasksModel}, 304: {}, **errors(404)}
    )
    async def tasks(
        request: Request,
        name: NameInPath,
        names: Annotated[VisibleNames, names_of],
        limit: Limit = 1_000,
        as_of: AsOf = None,
        cluster: Cluster = None,
    ) -> Response:
        """The members of a Streams application with their hosts, tasks and stores."""
        at = parse_as_of(as_of)
        known = await known_applications(tables, cluster=cluster, as_of_ms=at)
        stamps = await tables.stamps(("members_tasks",))

        def make() -> Rendered:
            _require(known, name, names)
            where = [Condition("cluster_id", "=", known.estate.cluster or ""), Condition("group", "=", name)]
            when = Now() if at is None else AtTime(at)
            found = tables.reader.rows(TABLES["members_tasks"], where=where, as_of=when, limit=limit)
            return json_answer({"application": name, "members": _members(found.rows), "truncated": found.more})

        return await answers.of_versions(request, names, (*known.stamps, *stamps), make)

    return router


_TEXTS: Final = {
    TopologyFormat.TEXT: "text/plain",
    TopologyFormat.DOT: "text/vnd.graphviz",
    TopologyFormat.MERMAID: "text/vnd.mermaid",
}


def _require(known: KnownApplications, name: str, names: VisibleNames) -> None:
    if not names.has(name) or (name not in known.rows and not _kind(known, name)):
        raise absent("application", name, names.among(known.names))


def _kind(known: KnownApplications, name: str) -> str:
    return next((kind for kind in (STREAMS, SPARK) if known.estate.map.has(kind, name)), "")


def _summary(known: KnownApplications, name: str) -> Row:
    """`version` and what follows it are null of an application that is only seen."""
    row = known.rows.get(name)
    kind = row["kind"] if row is not None else _kind(known, name)
    reads, writes = _uses(known, kind, name)
    return {
        "name": name,
        "kind": kind,
        "version": None if row is None else version_name(row),
        "provenance": None if row is None else row["provenance"],
        "since": None if row is None else row["at"],
        "reads_count": len(reads),
        "writes_count": len(writes),
    }


Use = tuple[str, str, MapUse]


def _uses(known: KnownApplications, kind: str, name: str) -> tuple[list[Use], list[Use]]:
    return known.estate.map.uses(kind, name) if known.estate.map.has(kind, name) else ([], [])


def _topics(uses: list[Use], names: VisibleNames) -> list[Row]:
    rows = [{"topic": topic if names.has(topic) else None, **use._asdict()} for _, topic, use in uses]
    return [row for row in rows if row["topic"] is not None] + [row for row in rows if row["topic"] is None]


def _is_gap(row: Row) -> bool:
    """Closed ones are past, and a mismatch is not about a topic."""
    return bool(row["state"] != "closed" and row["kind"] != "mismatch")


def _gap(row: Row, names: VisibleNames) -> Row:
    columns = ("kind", "topic", "direction", "opened_at", "state", "coverage")
    found = {name: row[name] for name in columns}
    return found if names.has(row["topic"]) else found | {"topic": None}


def _members(rows: tuple[Row, ...]) -> list[Row]:
    members: dict[str, Row] = {}
    for row in rows:
        columns = ("member", "process", "client_id", "host", "tasks_left_out")
        member = members.setdefault(row["member"], {name: row[name] for name in columns} | {"tasks": []})
        if row["task"]:
            of_task = ("task", "subtopology", "partition", "role", "lag", "at")
            member["tasks"].append({name: row[name] for name in of_task} | {"stores": json.loads(row["stores"])})
    return list(members.values())
