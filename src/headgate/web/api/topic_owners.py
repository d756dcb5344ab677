"""Finds the writers and readers of a topic: as `headgate lineage owners` does, from what is in memory.

Coverage and clients of all topics are read once for each version of their tables, because reading them for one topic
takes as long.
"""

from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, Final

from headgate.lineage.estate import NoTableError
from headgate.lineage.estate_map import MapUse
from headgate.lineage.graph import TOPIC
from headgate.lineage.questions import CLIENT_COLUMNS, UNATTRIBUTED, Seen, coverage_hours, newest_clients
from headgate.web.api.estate_tables import EstateKey, EstateTables, LoadedEstate, Stamps, bounded
from headgate.web.visible_names import VisibleNames

# Whether an hour of coverage counts changes at full hours and 20 minutes after them.
_STEP_MS: Final = 20 * 60_000
_TABLES: Final = ("client_identities", "topic_coverage")
_HOURS: Final = 24

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """Coverage by topic, of complete hours and of others, and the last clients by kind and name of their actor."""

    stamps: Stamps
    complete: dict[str, Seen]
    others: dict[str, Seen]
    clients: dict[tuple[str, str], list[Row]]


async def topic_facts(tables: EstateTables, key: EstateKey, estate: LoadedEstate) -> TopicFacts:
    _, as_of_ms = key
    now_ms = tables.now_ms() // _STEP_MS * _STEP_MS if as_of_ms is None else as_of_ms

    def load(stamps: Stamps) -> TopicFacts:
        try:
            return read(stamps)
        except NoTableError:
            if not estate.is_provisional:
                raise
            return TopicFacts(stamps=stamps, complete={}, others={}, clients={})

    def read(stamps: Stamps) -> TopicFacts:
        reading = tables.open_estate(cluster=estate.cluster, as_of_ms=as_of_ms)
        complete, others = coverage_hours(reading, now_ms=now_ms, hours=_HOURS)
        columns = ("cluster_id", "actor_kind", "actor", *CLIENT_COLUMNS)
        clients = newest_clients(bounded(reading.of_one_cluster(reading.rows("client_identities", columns=columns))))
        return TopicFacts(stamps=stamps, complete=complete, others=others, clients=clients)

    return await tables.loaded("topic facts", key, _TABLES, load, also=(now_ms,))


def owners_document(estate: LoadedEstate, facts: TopicFacts, topic: str, names: VisibleNames, limit: int) -> Row:
    before, after = estate.map.uses(TOPIC, topic)
    seen = sum(use.bytes_day or 0 for _, _, use in before)
    unattributed = sum(use.bytes_day or 0 for kind, _, use in before if kind == UNATTRIBUTED)
    return {
        "topic": topic,
        "writers": _owners(before, facts, names, limit),
        "readers": _owners(after, facts, names, limit),
        "unattributed_share": unattributed / seen if seen else None,
        **(facts.complete.get(topic) or facts.others.get(topic, Seen())).document(),
        "complete_hours": topic in facts.complete or topic not in facts.others,
        "truncated": max(len(before), len(after)) > limit,
    }


def _owners(uses: list[tuple[str, str, MapUse]], facts: TopicFacts, names: VisibleNames, limit: int) -> list[Row]:
    """Sorts owners by bytes, most first. Owners without visible names come last, and without their clients."""
    first = nsmallest(limit, uses, key=lambda one: (not names.has(one[1]), -(one[2].bytes_day or 0), one[:2]))
    return [
        {
            "kind": kind,
            "name": name if names.has(name) else None,
            "declared": use.declared,
            "observed": use.observed,
            "filled": use.filled,
            "bytes_day": use.bytes_day,
            "records_day": use.records_day,
            "last_seen": use.last_seen,
            "clients": facts.clients.get((kind, name), []) if names.has(name) else [],
        }
        for kind, name, use in first
    ]
