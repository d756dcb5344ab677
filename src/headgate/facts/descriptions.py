"""What a Streams application computes: topology descriptions and the facts of `topologies`.

One rule: this is how a description lies in a record, field by field. What makes one valid, its hash and its text form
are rules of the domain.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from headgate.facts.forms import AT, COMMON, GROUP, Fact, Form
from headgate.facts.shapes import INT32_MAX, Many, Member, Nullable, OneOf, Struct, Text, Variant, Whole
from headgate.facts.topology import (
    Description,
    GlobalStore,
    ProcessorNode,
    SinkNode,
    SourceNode,
    Subtopology,
)

Provenance = Literal["pushed", "assignment", "pasted", "spark"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescribed(Fact):
    """One version of an application's topology; a group's current one is its last record.

    `member` and `process` are who pushed it, None where nobody did.
    """

    group: str
    incarnation: str
    epoch: int
    hash: str
    provenance: Provenance
    member: str | None
    process: str | None
    description: Description


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDeleted(Fact):
    """The group's description is gone with this life of the group; its versions stay as history."""

    group: str
    incarnation: str


_NAME = Member("name", Text())
_SUCCESSORS = Member("successors", Many(Text()))
_SOURCE = Struct(
    SourceNode,
    (_NAME, Member("topics", Many(Text())), Member("pattern", Nullable(Text())), _SUCCESSORS),
    tag="source",
)
_PROCESSOR = Struct(ProcessorNode, (_NAME, Member("stores", Many(Text())), _SUCCESSORS), tag="processor")
_SINK = Struct(SinkNode, (_NAME, Member("topic", Nullable(Text())), _SUCCESSORS), tag="sink")
_NODE = Variant({"source": _SOURCE, "processor": _PROCESSOR, "sink": _SINK})
_SUBTOPOLOGY = Struct(Subtopology, (Member("id", Text()), Member("nodes", Many(_NODE))))
_GLOBAL_STORE = Struct(
    GlobalStore,
    (Member("source", Variant({"source": _SOURCE})), Member("processor", Variant({"processor": _PROCESSOR}))),
)
DESCRIPTION = Struct(
    Description,
    (Member("subtopologies", Many(_SUBTOPOLOGY)), Member("global_stores", Many(_GLOBAL_STORE))),
)

_INCARNATION = Member("incarnation", Text())
_EPOCH = Member("epoch", Whole(0, INT32_MAX))
_HASH = Member("hash", Text())
_PROVENANCE = Member("provenance", OneOf(get_args(Provenance)))

FORMS = (
    Form(
        TopologyDescribed,
        "topologies",
        (GROUP, _INCARNATION, _EPOCH, _HASH, _PROVENANCE),
        (
            AT,
            GROUP,
            _INCARNATION,
            _EPOCH,
            _HASH,
            _PROVENANCE,
            Member("member", Nullable(Text())),
            Member("process", Nullable(Text())),
            Member("description", DESCRIPTION),
            *COMMON,
        ),
    ),
    Form(TopologyDeleted, "topologies", (GROUP, "deleted"), (AT, GROUP, _INCARNATION, *COMMON)),
)
