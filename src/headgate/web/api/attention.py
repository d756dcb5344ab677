"""`GET /api/v1/attention`: what needs attention, worst first, each with its figures and with what changed before it.

Groups that are paused come from Headgate's topics, so they are there at once and without any table. Of a paused group
neither the growth of its dead letters nor its lag is listed: both follow from what paused it, or from the pause.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response

from headgate.lineage.estate import SPARK, STREAMS, NoTableError
from headgate.lineage.graph import SHARE_GROUP, TOPIC
from headgate.lineage.questions import DAY_MS, HOUR_MS
from headgate.share_groups.model.breaker import json_of
from headgate.web.access import AccessControl
from headgate.web.api.answers import Answers, Rendered, json_answer
from headgate.web.api.attention_facts import (
    LAG_WINDOW_MS,
    MINUTE_MS,
    AttentionFacts,
    MinuteDispositions,
    attention_facts,
)
from headgate.web.api.attention_models import AttentionModel
from headgate.web.api.changes import parsed_detail
from headgate.web.api.estate_tables import EstateTables, LoadedEstate
from headgate.web.api.models import errors
from headgate.web.api.parameters import Cluster, Limit
from headgate.web.share_states import SharePort
from headgate.web.visible_names import VisibleNames

_ORDER: Final = ("paused", "dead_letters", "mismatch", "lag", "gaps")
_BEFORE_MS: Final = 30 * MINUTE_MS
_MOST_CAUSES: Final = 4
_MOST_GAPS: Final = 5  # of one application
_NEW_MS: Final = DAY_MS
# Less is the noise of a healthy group: at least so many, and half as many again as in the hour before.
_LEAST_DEAD_LETTERS: Final = 10
_DEAD_LETTER_FACTOR: Final = 1.5
# A lag that has doubled within the window, by so many records at least.
_LEAST_LAG: Final = 1_000
_KIND_OF_GROUP: Final = {"share": SHARE_GROUP, "streams": STREAMS}
_DISABLED: Final = "share_groups.enable is false in the configuration of this process"
_OF_APPLICATION: Final = frozenset({STREAMS, SPARK})
# The story of a group: of another one it matters only where both use a topic.
_OF_A_BREAKER: Final = frozenset({"tripped", "paused", "resumed", "operation"})

Row = dict[str, Any]


def attention_router(
    tables: EstateTables, answers: Answers, access: AccessControl, port: SharePort | None
) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["attention"])

    @router.get("/attention", response_class=Response, responses={200: {"model": AttentionModel}, 304: {}, **errors()})
    async def attention(
        request: Request,
        names: Annotated[VisibleNames, Depends(access.visible_names)],
        limit: Limit = 100,
        cluster: Cluster = None,
    ) -> Response:
        """Paused groups, mismatches, new gaps, growing dead letters and lags, worst first, and what is watched."""
        estate: LoadedEstate | None
        try:
            estate = await tables.estate(cluster=cluster, as_of_ms=None)
        except NoTableError:
            estate = None
        facts = await attention_facts(tables, cluster, estate)
        paused = _paused(port, facts, names)
        problem = _DISABLED if port is None else port.problem
        groups = None if port is None else {*port.groups()}

        def make() -> Rendered:
            own = _own_queries(facts.spark_queries, estate, tables.facts_prefix)
            found = _Attention(facts, names, paused, estate, groups, own)
            return json_answer(found.document(limit) | {"problem": problem})

        versions = (*facts.stamps, port.changes if port is not None else 0)
        return await answers.of_versions(request, names, versions, make, variant=str(problem))

    return router


def _item(kind: str, state: str, subject_kind: str, subject: str, since: int | None, **more: Any) -> Row:
    empty: Row = {"tripped": False, "pause_reasons": [], "auto_resume_at": None, "now": None, "before": None}
    empty |= {"mismatch": None, "gaps": [], "gap_count": 0, "points": [], "causes": [], "causes_left_out": 0}
    head = {"kind": kind, "state": state, "subject_kind": subject_kind, "subject": subject, "since": since}
    return head | empty | more


def _paused(port: SharePort | None, facts: AttentionFacts, names: VisibleNames) -> list[Row]:
    """On the event loop, because the state of groups changes there."""
    found = []
    for group in port.groups() if port is not None else ():
        state = port.of(group) if port is not None else None
        if state is None or not state.is_paused or not names.has(group):
            continue
        reasons = json_of(state.pause_reasons)
        times = [reason["since"] for reason in reasons if reason["since"] is not None]
        item = _item("paused", "stopped", SHARE_GROUP, group, min(times, default=None))
        item |= {"tripped": state.is_tripped, "pause_reasons": reasons}
        item["points"] = _shares(facts.dispositions.get(group), facts.now_ms)
        if state.trip is not None and state.is_tripped:
            item["auto_resume_at"] = state.trip.resume_at
            item |= _trip_causes(facts, group, state.trip.at, names)
        found.append(item)
    return found


def _trip_causes(facts: AttentionFacts, group: str, tripped_at: int, names: VisibleNames) -> Row:
    """The causes of this trip, where the pipeline has looked for them already."""
    rows = facts.causes.get(group, [])
    if not rows or abs(rows[0]["tripped_at"] - tripped_at) > MINUTE_MS:
        return {}
    listed = [row for row in rows if row["cause_kind"] != "none"]
    causes = [
        {
            "what": row["what"],
            "subject_kind": row["subject_kind"],
            "subject": row["subject"] if names.has(row["subject"]) else None,
            "topic": row["topic"] if row["topic"] is not None and names.has(row["topic"]) else None,
            "at": row["at"],
            "likelihood": row["likelihood"],
            "detail": _detail(row["detail"], names),
        }
        for row in listed[:_MOST_CAUSES]
    ]
    return {"causes": causes, "causes_left_out": len(listed) - len(causes)}


def _detail(text: str | None, names: VisibleNames) -> Any:
    """None for a limited caller, because it may have any names."""
    return None if names.are_limited or text is None else parsed_detail(text)


def _shares(dispositions: MinuteDispositions | None, now_ms: int) -> list[float]:
    """The share of dead letters in each of the last 60 minutes."""
    if dispositions is None:
        return []
    known = dispositions.minutes
    counts = [known.get(minute, (0, 0)) for minute in range(now_ms - HOUR_MS, now_ms, MINUTE_MS)]
    return [dead / processed if processed else 0.0 for dead, processed in counts]


def _own_queries(queries: Iterable[str], estate: LoadedEstate | None, prefix: str) -> frozenset[str]:
    """Spark queries of which no use of a topic but Headgate's own is known, such as those of its pipeline.

    They are no cause of an incident.
    """

    def is_own(name: str) -> bool:
        if estate is None or not estate.map.has(SPARK, name):
            return True
        return all(topic.startswith(prefix) for uses in estate.map.uses(SPARK, name) for _, topic, _ in uses)

    return frozenset(filter(is_own, queries))


@dataclass(slots=True)
class _Attention:
    """One answer: what the caller may see of the facts."""

    facts: AttentionFacts
    names: VisibleNames
    paused: list[Row]
    estate: LoadedEstate | None
    groups: set[str] | None
    own_queries: frozenset[str]
    topics: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # of actors, as far as they were asked for

    def document(self, limit: int) -> Row:
        stopped = {item["subject"] for item in self.paused}
        dead_letters, counted = self._dead_letters(stopped)
        mismatches, lags = self._mismatches(), self._lags(stopped)
        gaps, new_gaps, older_gaps = self._gaps()
        items = [*self.paused, *dead_letters, *mismatches, *lags, *gaps]
        items.sort(key=lambda item: (_ORDER.index(item["kind"]), -(item["since"] or 0), item["subject"]))
        for item in items[:limit]:
            if not item["causes"] and item["since"] is not None:
                item.update(self._changes_before(item))
        missing = self.facts.missing
        counts: Row = {
            "paused": None if self.groups is None else len(self.paused),
            "mismatches": None if "lineage_gaps" in missing else len(mismatches),
            "new_gaps": None if "lineage_gaps" in missing else new_gaps,
            "older_gaps": None if "lineage_gaps" in missing else older_gaps,
            "dead_letters_hour": None if "dlq_rates" in missing else counted[0],
            "dead_letters_before": None if "dlq_rates" in missing else counted[1],
            "growing_lags": None if "group_lags" in missing else len(lags),
        }
        return {
            "items": items[:limit],
            "counts": counts,
            "watched": self._watched(),
            "missing": list(missing),
            "incomplete": list(self.facts.incomplete),
            "truncated": len(items) > limit,
        }

    def _watched(self) -> Row:
        estate = self.estate
        known: Row = {"applications": None, "topics": None}
        seen: set[str] = set()
        if estate is not None:
            for name, kinds in (("applications", _OF_APPLICATION), ("topics", frozenset({TOPIC}))):
                known[name] = self._count(one.name for one in estate.map.summaries(kinds))
            seen = {one.name for one in estate.map.summaries(frozenset({SHARE_GROUP}))}
        groups = None if self.groups is None else self._count(self.groups | seen)
        lags = None if "group_lags" in self.facts.missing else self._count(self.facts.lags)
        return {"share_groups": groups, **known, "groups_with_lags": lags}

    def _count(self, names: Iterable[str]) -> int:
        return sum(1 for _ in self.names.among(names))

    def _dead_letters(self, stopped: set[str]) -> tuple[list[Row], tuple[int, int]]:
        """Groups whose dead letters grow; and the sums of the last hour and of the one before, of all groups."""
        found, total, total_before, now_ms = [], 0, 0, self.facts.now_ms
        for group, dispositions in self.facts.dispositions.items():
            if not self.names.has(group):
                continue
            now = dispositions.dead_letters(now_ms - HOUR_MS, now_ms)
            before = dispositions.dead_letters(now_ms - 2 * HOUR_MS, now_ms - HOUR_MS)
            total, total_before = total + now, total_before + before
            if group in stopped or now < max(_LEAST_DEAD_LETTERS, _DEAD_LETTER_FACTOR * before):
                continue
            minutes = range(now_ms - HOUR_MS, now_ms, MINUTE_MS)
            points = [dispositions.minutes.get(minute, (0, 0))[0] for minute in minutes]
            # The first minute that is at least an average one: single dead letters before it are noise.
            since = next(minute for minute, dead in zip(minutes, points, strict=True) if dead * len(points) >= now)
            item = _item("dead_letters", "attention", SHARE_GROUP, group, since)
            found.append(item | {"now": now, "before": before, "points": points})
        return found, (total, total_before)

    def _mismatches(self) -> list[Row]:
        return [
            _item("mismatch", "attention", STREAMS, name, mismatch["since"], mismatch=mismatch)
            for name, mismatch in self.facts.mismatches.items()
            if self.names.has(name)
        ]

    def _lags(self, stopped: set[str]) -> list[Row]:
        found = []
        for group, history in self.facts.lags.items():
            points = history.points
            growth = points[-1] - points[0]
            if growth < max(_LEAST_LAG, points[0]) or group in stopped or not self.names.has(group):
                continue
            place = max(number for number, lag in enumerate(points) if lag <= points[0])
            since = self.facts.now_ms - LAG_WINDOW_MS + place * MINUTE_MS
            kind = _KIND_OF_GROUP.get(history.kind, "consumer_group")
            item = _item("lag", "attention", kind, group, since)
            found.append(item | {"now": points[-1], "before": points[0], "points": points})
        return found

    def _gaps(self) -> tuple[list[Row], int, int]:
        """One item for each application with new gaps; the number of new gaps, and of older ones."""
        new: dict[tuple[str, str], list[Row]] = {}
        older = 0
        for row in self.facts.gaps:
            if not self.names.has(row["app_id"]):
                continue
            if row["opened_at"] < self.facts.now_ms - _NEW_MS:
                older += 1
            else:
                new.setdefault((row["actor_kind"], row["app_id"]), []).append(row)
        items = []
        for (kind, name), rows in new.items():
            shown = [
                {column: row[column] for column in ("kind", "direction", "opened_at")}
                | {"topic": row["topic"] if self.names.has(row["topic"]) else None}
                for row in rows[:_MOST_GAPS]
            ]
            item = _item("gaps", "attention", kind, name, rows[0]["opened_at"])
            items.append(item | {"gaps": shown, "gap_count": len(rows)})
        return items, sum(len(rows) for rows in new.values()), older

    def _changes_before(self, item: Row) -> Row:
        """The last changes in the half hour before, those of writers of its topics first.

        A group's own trips and pauses are its story, not its cause, and so are those of groups with other topics.
        """
        since, topics = item["since"], self._topics(item["subject_kind"], item["subject"])
        found = [
            row
            for row in self.facts.changes
            if since - _BEFORE_MS < row["at"] <= since
            and self.names.has(row["subject"])
            and not (row["subject_kind"] == "application" and row["subject"] in self.own_queries)
            and (row["subject"] != item["subject"] or row["event"] in {"config_changed", "topology_changed"})
            and (row["subject_kind"] != SHARE_GROUP or self._is_related(row, topics))
        ]
        writers = self._writers(item["subject_kind"], item["subject"]) if found else frozenset()
        found.sort(key=lambda row: (row["subject_kind"], row["subject"]) not in writers)
        causes = [
            {"what": row["event"], "subject_kind": row["subject_kind"], "subject": row["subject"]}
            | {"topic": None, "at": row["at"], "likelihood": None, "detail": _detail(row["detail"], self.names)}
            for row in found[:_MOST_CAUSES]
        ]
        return {"causes": causes, "causes_left_out": len(found) - len(causes)}

    def _is_related(self, row: Row, topics: set[str]) -> bool:
        return row["event"] not in _OF_A_BREAKER or not topics.isdisjoint(self._topics(SHARE_GROUP, row["subject"]))

    def _topics(self, kind: str, name: str) -> set[str]:
        """The visible topics that it uses; none where it is not on the map."""
        known = self.topics.get((kind, name))
        if known is None:
            known = self.topics[kind, name] = set()
            if self.estate is not None and self.estate.map.has(kind, name):
                used = (topic for uses in self.estate.map.uses(kind, name) for _, topic, _ in uses)
                known.update(filter(self.names.has, used))
        return known

    def _writers(self, kind: str, name: str) -> frozenset[tuple[str, str]]:
        """The writers of the topics that it reads, as the subjects of changes."""
        if self.estate is None or not self.estate.map.has(kind, name):
            return frozenset()
        read, _ = self.estate.map.uses(kind, name)
        written = (self.estate.map.uses(TOPIC, topic)[0] for _, topic, _ in read if self.names.has(topic))
        return frozenset(
            ("application" if writer in _OF_APPLICATION else writer, name)
            for uses in written
            for writer, name, _ in uses
        )
