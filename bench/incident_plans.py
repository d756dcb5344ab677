"""Incidents to record from real share consumers (`bench.record_incidents`): what fails, when, and for whom.

A plan follows from its family and its seed. Its producers write records with features, some of them marked as bad; its
members reject or release what is marked, and a part of everything while their downstream is down. The truth is known
by construction, as in `bench.triage_incidents`, whose families these are where the names are equal.

Odd seeds are held out: they were named so before the first incident was recorded, and nothing is tuned with them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Literal

from headgate.dead_letters.model.verdict import EpisodeCause

SEEDS = (0, 1)
_BEFORE_S = 10.0
_AFTER_S = 9.0

Letter = Literal["A", "R", "L"]  # accept, reject, release: what a member does with the record (`headgate.sharing`)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTraits:
    """One record as its producer makes it. `number` counts the records of the incident."""

    number: int
    key: int
    schema: int
    producer: int
    kind: str
    band: int  # key and value have 2**band bytes or more, but less than twice as many


@dataclass(frozen=True, slots=True, kw_only=True)
class DownstreamChange:
    """From `at_s` on, so many percent of the attempts of these members fail; without `members`, of all."""

    at_s: float
    failing_percent: int
    on_failure: Literal["reject", "release"] = "reject"
    members: tuple[int, ...] | None = None


class BreakerPlan(StrEnum):
    """Whether the group's breaker trips, and whether it resumes by itself."""

    OFF = "off"
    STAYS_OPEN = "stays open"
    RESUMES = "resumes"


def _accept(_record: RecordTraits, _at_s: float) -> Letter:
    return "A"


@dataclass(slots=True, kw_only=True)
class IncidentPlan:
    """What to record. Times are seconds after the first record; `mark` says what members do with a record."""

    family: str
    seed: int
    random: Random
    truth: EpisodeCause = EpisodeCause.MIXED
    is_overlapping: bool = False
    members: int
    partitions: int
    rate: float  # records a second
    limit: int
    breaker: BreakerPlan
    threshold_percent: int = 20
    fault_s: float = 14.0
    changes: list[DownstreamChange] = field(default_factory=list)
    mark: Callable[[RecordTraits, float], Letter] = _accept
    clients: Literal["broker", "clients"] = "clients"  # kafka-clients 4.3.1 or 4.4.0

    @property
    def name(self) -> str:
        return f"{self.family}-{self.seed}"

    @property
    def begin_s(self) -> float:
        return _BEFORE_S

    @property
    def end_s(self) -> float:
        return _BEFORE_S + self.fault_s

    @property
    def length_s(self) -> float:
        return self.end_s + _AFTER_S

    def is_on(self, at_s: float) -> bool:
        return self.begin_s <= at_s < self.end_s

    def traits(self, number: int) -> RecordTraits:
        """The next record: a few keys are frequent, and most records have the usual features."""
        random = self.random
        return RecordTraits(
            number=number,
            key=int(random.paretovariate(0.9)) % 400,
            schema=random.choices((5, 6, 7), (15, 3, 2))[0],
            producer=random.choices((0, 1, 2), (5, 4, 1))[0],
            kind=random.choices(("Created", "Paid", "Shipped"), (6, 3, 1))[0],
            band=random.choices((6, 7, 8, 11), (8, 8, 3, 1))[0],
        )

    def fail(
        self,
        percent: int,
        *,
        on_failure: Literal["reject", "release"] = "reject",
        members: tuple[int, ...] | None = None,
    ) -> None:
        """The downstream is down from the beginning to the end of the fault."""
        self.changes += [
            DownstreamChange(at_s=self.begin_s, failing_percent=percent, on_failure=on_failure, members=members),
            DownstreamChange(at_s=self.end_s, failing_percent=0, members=members),
        ]


def _plan(family: str, seed: int) -> IncidentPlan:
    random = Random(f"recorded/{family}/{seed}")
    return IncidentPlan(
        family=family,
        seed=seed,
        random=random,
        members=random.choice((2, 3, 4)),
        partitions=random.choice((2, 3, 4)),
        rate=random.choice((20, 35, 50)),
        limit=random.choice((3, 5)),
        breaker=random.choice(list(BreakerPlan)),
        clients=random.choice(("broker", "clients")),
    )


# --- families ---------------------------------------------------------------------------------------------------------


def outage_total(plan: IncidentPlan) -> None:
    plan.truth = EpisodeCause.OUTAGE
    plan.fail(97)


def outage_partial(plan: IncidentPlan) -> None:
    plan.truth = EpisodeCause.OUTAGE
    plan.fail(plan.random.randint(60, 85))


def outage_released(plan: IncidentPlan) -> None:
    """Calls time out: records are released until they reach their limit."""
    plan.truth = EpisodeCause.OUTAGE
    plan.fail(90, on_failure="release")


def outage_ramp(plan: IncidentPlan) -> None:
    plan.truth = EpisodeCause.OUTAGE
    plan.changes += [
        DownstreamChange(at_s=plan.begin_s + step * plan.fault_s / 10, failing_percent=10 + 9 * step)
        for step in range(10)
    ]
    plan.changes.append(DownstreamChange(at_s=plan.end_s, failing_percent=0))


def outage_flapping(plan: IncidentPlan) -> None:
    plan.truth = EpisodeCause.OUTAGE
    period = plan.random.choice((5.0, 8.0))
    at_s = plan.begin_s
    while at_s < plan.end_s:
        plan.changes.append(DownstreamChange(at_s=at_s, failing_percent=95))
        plan.changes.append(DownstreamChange(at_s=min(at_s + 0.6 * period, plan.end_s), failing_percent=2))
        at_s += period
    plan.changes.append(DownstreamChange(at_s=plan.end_s, failing_percent=0))


def member_broken(plan: IncidentPlan) -> None:
    plan.truth, plan.members = EpisodeCause.MEMBER, plan.random.choice((2, 3, 4))
    plan.rate = 50
    plan.fail(100, members=(0,))


def member_of_many(plan: IncidentPlan) -> None:
    plan.truth, plan.members, plan.partitions = EpisodeCause.MEMBER, 6, 6
    plan.rate, plan.threshold_percent = 60, 10
    plan.fail(95, members=(plan.random.randrange(6),))


def member_mostly_broken(plan: IncidentPlan) -> None:
    plan.truth, plan.members, plan.rate = EpisodeCause.MEMBER, 3, 60
    plan.fail(plan.random.randint(75, 90), members=(1,))


def _content(plan: IncidentPlan, is_bad: Callable[[RecordTraits], bool]) -> None:
    plan.truth, plan.rate, plan.fault_s, plan.threshold_percent = EpisodeCause.CONTENT, 60, 18.0, 15
    letter: Letter = plan.random.choice(("R", "L"))
    plan.mark = lambda record, at_s: letter if plan.is_on(at_s) and is_bad(record) else "A"


def content_key(plan: IncidentPlan) -> None:
    key = plan.random.choice((1, 2))
    _content(plan, lambda record: record.key == key)


def content_schema(plan: IncidentPlan) -> None:
    schema = plan.random.choice((6, 7))
    _content(plan, lambda record: record.schema == schema)


def content_type(plan: IncidentPlan) -> None:
    kind = plan.random.choice(("Paid", "Shipped"))
    _content(plan, lambda record: record.kind == kind)


def content_size(plan: IncidentPlan) -> None:
    band = plan.random.choice((8, 11))
    _content(plan, lambda record: record.band == band)


def content_producer(plan: IncidentPlan) -> None:
    producer = plan.random.choice((1, 2))
    _content(plan, lambda record: record.producer == producer)


def _poison(plan: IncidentPlan, letter: Letter, every: int, most: int) -> None:
    """Each so manieth record of the fault is bad, at most so many of them."""
    plan.truth, plan.rate = EpisodeCause.POISON, 50
    bad: set[int] = set()

    def mark(record: RecordTraits, at_s: float) -> Letter:
        if plan.is_on(at_s) and len(bad) < most and record.number % every == 0:
            bad.add(record.number)
        return letter if record.number in bad else "A"

    plan.mark = mark


def poison_single(plan: IncidentPlan) -> None:
    _poison(plan, "L", 1, 1)


def poison_scattered(plan: IncidentPlan) -> None:
    _poison(plan, "R", plan.random.choice((90, 130)), 10)


def poison_among_noise(plan: IncidentPlan) -> None:
    """One in a hundred attempts fails at any time, and is tried again."""
    _poison(plan, "L", 150, 10)
    plan.changes.append(DownstreamChange(at_s=0.0, failing_percent=1, on_failure="release"))


def quiet_group(plan: IncidentPlan) -> None:
    plan.truth, plan.rate, plan.members = EpisodeCause.INSUFFICIENT, 0.6, plan.random.choice((1, 2))
    plan.fail(100)


# --- several causes at once, and faint ones ---------------------------------------------------------------------------


def poison_in_outage(plan: IncidentPlan) -> None:
    _poison(plan, "L", 150, 10)
    plan.fail(95)
    plan.truth, plan.is_overlapping = EpisodeCause.MIXED, True


def two_features(plan: IncidentPlan) -> None:
    _content(plan, lambda record: record.schema == 6 or record.kind == "Shipped")
    plan.truth, plan.is_overlapping = EpisodeCause.MIXED, True


def member_and_content(plan: IncidentPlan) -> None:
    _content(plan, lambda record: record.schema == 6)
    plan.members = 3
    plan.fail(100, members=(0,))
    plan.truth, plan.is_overlapping = EpisodeCause.MIXED, True


def brownout(plan: IncidentPlan) -> None:
    """The downstream fails for a small part of all records, whatever they are."""
    plan.fail(plan.random.randint(12, 25))
    plan.truth, plan.is_overlapping = EpisodeCause.MIXED, True


FAMILIES: Mapping[str, Callable[[IncidentPlan], None]] = {
    one.__name__: one
    for one in (
        *(outage_total, outage_partial, outage_released, outage_ramp, outage_flapping),
        *(member_broken, member_of_many, member_mostly_broken),
        *(content_key, content_schema, content_type, content_size, content_producer),
        *(poison_single, poison_scattered, poison_among_noise, quiet_group),
        *(poison_in_outage, two_features, member_and_content, brownout),
    )
}


def incident_plan(family: str, seed: int) -> IncidentPlan:
    """The plan of this family and seed, always the same; its `random` goes on with the records."""
    plan = _plan(family, seed)
    FAMILIES[family](plan)
    return plan


def all_plans() -> list[IncidentPlan]:
    return [incident_plan(family, seed) for family in FAMILIES for seed in SEEDS]


def is_held_out(seed: int) -> bool:
    return seed % 2 == 1
