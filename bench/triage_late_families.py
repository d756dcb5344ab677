"""Families of simulated incidents that were written on 2026-11-19, when the rule was final, and run once after that.

One condition of the rule, that poison are few dead letters, was added when the first held-out half had been looked at.
So these families ask the rule again, and that condition most: single causes in shapes that the first families do not
have, and in `LATE_OVERLAPPING` faint or double causes that could be taken for poison. Nothing is tuned with them: a
change of the rule after this date needs families of its own. `FRESH_SEEDS` do the same for the first families.
"""

from collections.abc import Mapping

from bench.triage_incidents import (
    FEATURES,
    HELD_OUT,
    TUNING,
    Family,
    Fault,
    Group,
    Incident,
    both,
    content_of,
    group_of,
    member_of,
    outage_of,
    poison_of,
    simulate,
)
from headgate.dead_letters.model.verdict import EpisodeCause

WRITTEN_ON = "2026-11-19"
LATE_SEEDS = range(16)
FRESH_SEEDS = range(1000, 1008)


def outage_of_a_new_group(group: Group) -> Fault:
    """The downstream fails half a minute after the group has begun: hardly anything is known of its usual rate."""
    group.start_s = 30
    return outage_of(group, lambda _: 0.95)


def outage_member_by_member(group: Group) -> Fault:
    """One member after the other loses its connection, all of them within half of the time."""
    group.rate, group.length_s = max(group.rate, 12), max(group.length_s, 120)
    apart = group.length_s / 2 / group.members
    return Fault(
        cause=EpisodeCause.OUTAGE,
        chance=lambda _record, member, at: 0.96 if group.is_on(at) and at - group.start_s >= member * apart else 0.0,
    )


def outage_that_fades(group: Group) -> Fault:
    """All fails at first, and ever less until the end."""
    return outage_of(group, lambda since: max(0.98 * (1 - since / group.length_s), 0.0))


def outage_twice(group: Group) -> Fault:
    """The downstream works again for a minute in between."""
    group.length_s = 240
    return outage_of(group, lambda since: 0.0 if 90 <= since < 150 else 0.93)


def outage_in_noise(group: Group) -> Fault:
    """Of a group in which three of a hundred attempts always fail."""
    group.base, group.rate = 0.03, max(group.rate, 12)
    return outage_of(group, lambda _: 0.8)


def poison_rejected_at_once(group: Group) -> Fault:
    """Single records, each rejected at its first delivery."""
    group.rate, group.releases = max(group.rate, 25), False
    every = group.random.choice((25, 40))
    return poison_of(group, lambda at: int(at % every == 0))


def poison_tried_often(group: Group) -> Fault:
    """Records that are tried eight times each, so that most failures are of few records."""
    group.rate, group.releases, group.limit = max(group.rate, 25), True, 8
    every = group.random.choice((12, 18))
    return poison_of(group, lambda at: int(at % every == 0))


def poison_in_a_large_group(group: Group) -> Fault:
    group.members, group.rate, group.releases = 24, 60, True
    return poison_of(group, lambda at: int(at % 10 == 0))


def poison_in_a_quiet_group(group: Group) -> Fault:
    """Two records within a few hundred attempts."""
    group.members, group.rate, group.releases, group.base, group.length_s = 2, 5, True, 0.0, 60
    return poison_of(group, lambda at: int(at - group.start_s in {5, 35}))


def content_released(group: Group) -> Fault:
    """Bad content that is tried again until its limit."""
    group.releases = True
    return content_of(group, "schema_id", 7)


def content_in_noise(group: Group) -> Fault:
    group.base = 0.01
    return content_of(group, "type_header", "Shipped")


def content_without_breaker(group: Group) -> Fault:
    group.has_breaker = False
    return content_of(group, "size_band", group.random.choice((9, 13)))


def content_mostly(group: Group) -> Fault:
    """Nine of ten records of one producer fail."""
    index = FEATURES.index("producer_id")
    group.rate, group.length_s = max(group.rate, 25), max(group.length_s, 120)
    return Fault(
        cause=EpisodeCause.CONTENT,
        chance=lambda record, _member, at: 0.93 if group.is_on(at) and record.features[index] == 73 else 0.0,
    )


def member_restarting(group: Group) -> Fault:
    """One member works for a third of each half minute, and fails for the rest."""
    group.members, group.rate, group.length_s = group.random.choice((3, 4, 6)), max(group.rate, 25), 120
    return Fault(
        cause=EpisodeCause.MEMBER,
        chance=lambda _record, member, at: 1.0 if group.is_on(at) and member == 0 and at % 30 >= 10 else 0.0,
    )


def member_in_noise(group: Group) -> Fault:
    group.members, group.rate, group.base = group.random.choice((3, 5)), max(group.rate, 25), 0.01
    return member_of(group, 0.97)


def member_that_releases(group: Group) -> Fault:
    """Most of what it fails is processed by the others."""
    group.members, group.rate, group.releases = group.random.choice((4, 6)), max(group.rate, 25), True
    return member_of(group, 1.0)


def brownout_faint(group: Group) -> Fault:
    """The downstream fails for four to ten of a hundred records, whatever they are, and they are rejected at once."""
    share = group.random.uniform(0.04, 0.1)
    group.rate, group.releases, group.base = max(group.rate, 12), False, 0.0
    return _faint(outage_of(group, lambda _: share))


def member_somewhat_broken(group: Group) -> Fault:
    """One member of ten fails for a third of its records."""
    group.members, group.rate, group.releases = 10, max(group.rate, 25), False
    return _faint(member_of(group, 0.33))


def content_sometimes(group: Group) -> Fault:
    """Half of the records of a rare type fail."""
    index = FEATURES.index("type_header")
    group.rate, group.length_s, group.releases = max(group.rate, 25), 120, False
    return _faint(
        Fault(
            cause=EpisodeCause.MIXED,
            chance=lambda record, _member, at: 0.5 if group.is_on(at) and record.features[index] == "Shipped" else 0.0,
        )
    )


def two_keys(group: Group) -> Fault:
    return both(content_of(group, "key", 2), content_of(group, "key", 4))


def poison_beside_a_member(group: Group) -> Fault:
    return both(member_of(group, 0.9), poison_of(group, lambda at: int(at % 15 == 0)))


def _faint(fault: Fault) -> Fault:
    return Fault(cause=EpisodeCause.MIXED, chance=fault.chance, marks=fault.marks, is_overlapping=True)


LATE: Mapping[str, Family] = {
    one.__name__: one
    for one in (
        outage_of_a_new_group,
        outage_member_by_member,
        outage_that_fades,
        outage_twice,
        outage_in_noise,
        poison_rejected_at_once,
        poison_tried_often,
        poison_in_a_large_group,
        poison_in_a_quiet_group,
        content_released,
        content_in_noise,
        content_without_breaker,
        content_mostly,
        member_restarting,
        member_in_noise,
        member_that_releases,
    )
}
LATE_OVERLAPPING: Mapping[str, Family] = {
    one.__name__: one
    for one in (brownout_faint, member_somewhat_broken, content_sometimes, two_keys, poison_beside_a_member)
}


def late_incidents() -> list[tuple[str, int, Incident]]:
    """Family, seed and incident: the late families, then the first ones with seeds that they did not have."""
    late = [(name, seed, family) for name, family in {**LATE, **LATE_OVERLAPPING}.items() for seed in LATE_SEEDS]
    first = [(name, seed, family) for name, family in {**TUNING, **HELD_OUT}.items() for seed in FRESH_SEEDS]
    return [(name, seed, _incident(name, seed, family)) for name, seed, family in (*late, *first)]


def _incident(name: str, seed: int, family: Family) -> Incident:
    group = group_of(seed, name)
    return simulate(group, family(group))
