"""The estate from the topics: random histories give the rows that the tables' oracle gives for now."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from headgate.facts import ActivityObserved, TopologyDeleted, TopologyDescribed
from headgate.facts.observations import Actor, ActorKind
from headgate.lineage.estate_map import MapRow
from headgate.lineage.graph import LineageFlow
from headgate.web.estate_facts import EstateFacts, described_application, used_topic
from tests.pipeline import lineage_oracle, oracle
from tests.pipeline.histories import POOL, described

HOUR, DAY = 3_600_000, 86_400_000
NOW = 1_794_700_800_000 + 1_234_567
QUIET = 7 * DAY
APPS = ("orders-app", "é😀", "a b", 'quote " and \\')
TOPICS = ("orders", "in", "orders-app-x-repartition", "é😀", None)


def used(chance: random.Random, number: int, **more: Any) -> ActivityObserved:
    """A use within one hour, so that it counts in that hour alone."""
    kinds: tuple[ActorKind, ...] = ("streams", "streams", "client", "share_group")
    kind = chance.choice(kinds)
    hour = NOW - NOW % HOUR - chance.randrange(20 * 24) * HOUR
    since = hour + chance.randrange(HOUR // 2)
    until = min(since + chance.choice((0, 1, 60_000)), NOW)
    values: dict[str, Any] = {
        "actor": Actor(
            kind=kind, name=chance.choice(APPS), rule=chance.choice(("principal", "other")), confidence="likely"
        ),
        "topic": chance.choice(TOPICS),
        "direction": chance.choice(("read", "write")),
        "since": min(since, until),
        "until": until,
        "bytes": chance.choice((0, 7, 1_000_003)),
        "records": chance.choice((None, 0, 5)),
    }
    return ActivityObserved(
        **{"topic_id": None, "principal": None, "client_id": None, "group": None, "transactional_id": None}
        | {"software": None, "host": None, "at": until, "cluster": "c", "writer": "w", "boot": "b", "seq": number}
        | values
        | more
    )


def history(seed: int) -> tuple[list[ActivityObserved], list[TopologyDescribed | TopologyDeleted]]:
    chance = random.Random(seed)
    uses = [used(chance, number) for number in range(150)]
    odd: list[dict[str, Any]] = [
        {"since": 2**61, "until": 2**61},  # a clock that is far off
        {"since": -(2**40)},
        {"actor": Actor(kind="unattributed", name="unattributed", rule="end-offsets", confidence="guess")},
    ]
    uses += [used(chance, 1000 + number, **more) for number, more in enumerate(odd)]
    told: list[TopologyDescribed | TopologyDeleted] = []
    for number in range(20):
        at, group = NOW - (20 - number) * DAY, chance.choice(APPS)
        if chance.randrange(6) == 0:
            told.append(TopologyDeleted(at=at, group=group, incarnation="1", cluster="c"))
        else:
            more = {"provenance": chance.choice(("pushed", "spark", "pasted", "assignment"))}
            fact = described(group, chance.choice(POOL), at=at, life=str(number), **more)
            told.append(TopologyDescribed(**{**fields(fact), "cluster": "c"}))
    return uses, told


def fields(fact: TopologyDescribed) -> dict[str, Any]:
    return {name: getattr(fact, name) for name in TopologyDescribed.__dataclass_fields__}


def folded(uses: Sequence[ActivityObserved], told: Sequence[TopologyDescribed | TopologyDeleted]) -> EstateFacts:
    facts = EstateFacts(quiet_ms=QUIET)
    for fact in uses:
        if (use := used_topic(fact)) is not None:
            facts.use(use)
    for one in told:
        if (application := described_application(one)) is not None:
            facts.describe(application)
    return facts


def utf8(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def oracle_rows(
    uses: Sequence[ActivityObserved], told: Sequence[TopologyDescribed | TopologyDeleted]
) -> tuple[list[MapRow], set[LineageFlow]]:
    """The rows of `lineage_edges` that are valid now, and the current pairs of `app_io`."""
    intervals = [oracle.activity(fact, "c") for fact in uses]
    descriptions: list[dict[str, Any]] = []
    flows: set[LineageFlow] = set()
    for app in APPS:
        records = [
            (oracle.Record(topic="t", partition=0, offset=offset, timestamp=0, key=None, value=None), fact)
            for offset, fact in enumerate(told)
            if fact.group == app
        ]
        found = oracle.of_application("c", app, records)
        for row in found["applications"]:
            version = {name: row[name] for name in ("incarnation", "epoch", "hash", "provenance")}
            edges = [one for one in found["topology_edges"] if version.items() <= one.items()]
            nodes = [one for one in found["topology_nodes"] if version.items() <= one.items()]
            named = {one["from_node"] for one in edges if one["to_kind"] == "topic"}
            descriptions.append(
                {
                    **{name: row[name] for name in ("cluster_id", "app_id", "kind", "at", "ended_at")},
                    "read": [(one["from_node"], one["is_internal"]) for one in edges if one["from_kind"] == "topic"],
                    "write": [(one["to_node"], one["is_internal"]) for one in edges if one["to_kind"] == "topic"],
                    "read_open": any(one["kind"] == "source" and one["pattern"] is not None for one in nodes),
                    "write_open": any(one["kind"] == "sink" and one["node"] not in named for one in nodes),
                }
            )
            if row["valid_to"] is None:
                pairs = [one for one in found["app_io"] if version.items() <= one.items()]
                flows |= {
                    LineageFlow(row["kind"], app, *(utf8(one[name]) for name in ("component", "in_topic", "out_topic")))
                    for one in pairs
                }
    rows = lineage_oracle.edges(intervals, descriptions, ({}, {}), NOW, QUIET)
    names = ("declared", "observed", "filled", "is_internal", "bytes_day", "records_day", "last_seen")
    current = [
        (kind, app, utf8(topic), direction, tuple(row[name] for name in names))
        for (_, kind, app, topic, direction, _), row in rows.items()
        if row["valid_to"] is None
    ]
    return sorted(current), flows  # type: ignore[arg-type]  # named tuples are compared as tuples


@pytest.mark.parametrize("seed", range(12))
def test_the_rows_are_those_of_the_tables(seed: int) -> None:
    uses, told = history(seed)
    rows, flows = folded(uses, told).rows("c", NOW)
    expected, expected_flows = oracle_rows(uses, told)
    assert [tuple(row) for row in sorted(rows)] == expected
    assert set(flows) == expected_flows
    assert any(row.use.observed for row in rows)
    assert any(row.use.declared and not row.use.observed for row in rows)


def test_only_new_edges_and_descriptions_are_changes() -> None:
    uses, told = history(3)
    facts = folded(uses, told)
    before = facts.changes
    newest = max((one for one in map(used_topic, uses) if one is not None), key=lambda one: one.until)
    facts.use(newest._replace(until=newest.until + 1))
    assert facts.changes == before
    facts.use(newest._replace(edge=newest.edge._replace(topic="another")))
    assert facts.changes == before + 1


def test_dead_letter_topics_of_share_groups_are_declared_until_their_configs_change() -> None:
    facts = folded(*history(1))
    facts.name_dead_letter_topics((("sg", "dlq.x"),))
    rows, _ = facts.rows("c", NOW)
    (letters,) = (row for row in rows if row.actor == "sg")
    assert (letters.actor_kind, letters.topic, letters.direction) == ("share_group", "dlq.x", "write")
    assert (letters.use.declared, letters.use.observed) == (True, False)
    facts.name_dead_letter_topics(())
    assert not [row for row in facts.rows("c", NOW)[0] if row.actor == "sg"]


def test_clusters_are_kept_apart_and_topics_that_are_read_again_start_empty() -> None:
    uses, told = history(5)
    facts = folded([*uses, used(random.Random(1), 9, cluster="d", topic="only-d", until=NOW, since=NOW)], told)
    assert facts.clusters() == {"c", "d"}
    assert [row.topic for row in facts.rows("d", NOW)[0]] == ["only-d"]
    facts.forget_uses()
    facts.forget_applications()
    assert facts.rows("c", NOW) == ([], [])
    assert facts.clusters() == set()


def test_edges_above_the_bound_are_dropped_and_known_ones_go_on() -> None:
    facts = EstateFacts(quiet_ms=QUIET, most_edges=3)
    for number in range(5):
        fact = used(random.Random(1), number, topic=f"t{number}", since=NOW - 5, until=NOW - 5)
        use = used_topic(fact)
        assert use is not None
        facts.use(use)
        facts.use(use._replace(until=NOW))
    rows, _ = facts.rows("c", NOW)
    assert facts.is_full
    assert [(row.topic, row.use.last_seen) for row in rows] == [("t0", NOW), ("t1", NOW), ("t2", NOW)]


def test_long_names_count_for_the_bound() -> None:
    facts = EstateFacts(quiet_ms=QUIET)
    for number in range(600):
        fact = used(random.Random(1), number, topic=f"t{number}", since=NOW, until=NOW)
        use = used_topic(fact)
        assert use is not None
        facts.use(use._replace(edge=use.edge._replace(app_id="x" * 32_768)))
    assert facts.is_full
    assert 0 < len(facts.rows("c", NOW)[0]) < 600
