"""Random histories of facts: applications that come, change, return to an older version, go and come back."""

import random

from headgate.facts import (
    Ended,
    EventHappened,
    Fact,
    GroupPaused,
    GroupPauseEnded,
    JsonText,
    TopologyDeleted,
    TopologyDescribed,
)
from headgate.facts.topology import Description, ProcessorNode, SinkNode, SourceNode, Subtopology, content_hash
from tests.unit.topologies.topologies import GOLDEN, golden

ODD_NAMES = ("orders-app", "a b", 'quote " and \\', "é😀", "line\nend", "\x1b[31m", "")


def odd_description(name: str) -> Description:
    """A name wherever a name can stand, one that is no UTF-8 among them."""
    nodes = (
        SourceNode(name=f"S {name}", topics=(name or "t", "in"), successors=("P",)),
        ProcessorNode(name="P", stores=(f"store {name}",), successors=("K\udc80",)),
        SinkNode(name="K\udc80", topic=name),
    )
    return Description(subtopologies=(Subtopology(id=name, nodes=nodes),))


DETAILS: tuple[dict[str, object], ...] = (
    {},
    {"reason": 'deploy "é😀"\n', "generation": 4},
    {"dlq_written": 25, "delivered": 75, "threshold_percent": 20, "window_ms": 60_000, "generation": 5, "resume_at": 1},
    # Other types and too large numbers, one at a time and together with valid ones.
    {"generation": "4", "resume_at": None, "threshold_percent": 2**31, "window_ms": 1},
    {"generation": {"n": 1}, "dlq_written": 2**63, "delivered": 2**63 - 1},
    {"generation": [1], "window_ms": True, "delivered": 1.5, "dlq_written": -(2**63)},
)
POOL = (*(golden(name) for name in GOLDEN), *(odd_description(name) for name in ODD_NAMES))


def described(group: str, description: Description, *, at: int, life: str = "1", **more: str) -> TopologyDescribed:
    return TopologyDescribed(
        at=at,
        group=group,
        incarnation=life,
        epoch=0,
        hash=content_hash(description),
        provenance=more.get("provenance", "pushed"),  # type: ignore[arg-type]
        member=more.get("member", "m-1"),
        process="p-1",
        description=description,
    )


def events_of_groups() -> list[EventHappened]:
    """An event for each of the details."""
    return [
        EventHappened(
            at=number,
            subject_kind="share_group",
            subject="sg",
            id=f"detail {number}",
            event="tripped",
            by=None,
            detail=JsonText.of(dict(detail)),
        )
        for number, detail in enumerate(DETAILS)
    ]


def history(chance: random.Random, length: int) -> list[Fact | Ended]:
    """Times go back now and then, as clocks of writers do; offsets are what counts."""
    facts: list[Fact | Ended] = []
    for number in range(length):
        at = 1_794_731_900_000 + number * 1000 - chance.choice([0, 0, 0, 5000])
        group = chance.choice(ODD_NAMES[:4])
        match chance.randrange(10):
            case 0:
                facts.append(TopologyDeleted(at=at, group=group, incarnation=chance.choice("12")))
            case 1:
                more = chance.choice(DETAILS)
                detail = JsonText.of({"n": number, "name": chance.choice(ODD_NAMES), **more})
                by = chance.choice([None, "User:ops"])
                id_ = f"{group} {chance.randrange(3)}"  # now and then a copy, under the same key
                facts.append(
                    EventHappened(
                        at=at,
                        subject_kind=chance.choice(["share_group", "share_group", "application"]),
                        subject=group,
                        id=id_,
                        event=chance.choice(["operation", "tripped", "resumed"]),
                        by=by,
                        detail=detail,
                    )
                )
            case 2:
                facts.append(GroupPaused(at=at, group=group, reason="deploy", by="User:ops"))
            case 3:
                facts.append(GroupPauseEnded(group=group))
            case _:
                provenance = chance.choice(["pushed", "pushed", "spark", "pasted", "pasted", "assignment"])
                description = chance.choice(POOL)
                life = chance.choice("12")
                facts.append(
                    described(group, description, at=at, life=life, member=f"m-{number}", provenance=provenance)
                )
    return facts
