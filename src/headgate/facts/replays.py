"""Facts in which a replay records its work, in the transaction of the records themselves: `headgate-replay.progress`.

This topic is not one of the headgate.* topics, because a replay has the rights of its operator and not those of the
service account. A record is about dead letters of one topic that had the same outcome; its lists are parallel, as in
`lags.py`. The state of a plan is there too, as the fact `ReplayStateChanged`.

Invariant: what is not committed here was not replayed, and what is committed here is never replayed again.
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from headgate.facts.codec import MAX_FACT_BYTES, VERSION, Rejected
from headgate.facts.json_form import INT32_MAX, MisfitError, Time, Whole, dumps, loads, object_type

PROGRESS_TOPIC: Final = "headgate-replay.progress"
TRANSACTIONAL_ID_PREFIX: Final = "headgate-replay-"
# Of one record of the topic; the lists stay far below the topic's largest message.
MOST_OUTCOMES: Final = 5000

ReplayOutcome = Literal["replayed", "parked", "skipped"]
_Partition = Annotated[int, Whole(0, INT32_MAX)]
_Offset = Annotated[int, Whole(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProgressed:
    """Dead letters of a plan were replayed, parked or skipped; the lists have one item for each."""

    at: Annotated[int, "when, by the clock of the replay", Time()]
    plan: Annotated[str, "the id of the plan"]
    by: Annotated[str, "the principal that replays"]
    group: Annotated[str, "the group whose dead letters they are"]
    outcome: Annotated[ReplayOutcome, "the outcome"]
    why: Annotated[str | None, "the reason when they were skipped or parked; null otherwise"]
    topic: Annotated[str, "the topic of the records"]
    topic_id: Annotated[str, "the id of that topic"]
    target: Annotated[str | None, "the topic that they were written to; null when skipped"]
    target_id: Annotated[str | None, "the id of that topic; null when skipped"]
    positions: Annotated[tuple[_Offset, ...], "the positions in the plan"]
    partitions: Annotated[tuple[_Partition, ...], "the partitions of the records"]
    offsets: Annotated[tuple[_Offset, ...], "the offsets of the records"]
    to_partitions: Annotated[tuple[_Partition, ...], "the partitions that they were written to; empty when skipped"]
    to_offsets: Annotated[tuple[_Offset, ...], "the offsets there; empty when skipped"]
    extra: tuple[()] = ()


def encode_progress(progress: ReplayProgressed) -> tuple[bytes, bytes]:
    """The key and the value of the record; no other record of the plan has the key."""
    key = dumps(["progress", progress.plan, progress.positions[0]])
    return key, dumps({"v": VERSION} | object_type(ReplayProgressed).write(progress))


def plan_of_key(key: bytes | None) -> str | None:
    """The plan that the key of a progress names, also where its value cannot be read; None when it names none."""
    try:
        named = None if key is None else loads(key)
    except MisfitError:
        return None
    match named:
        case ["progress", str(plan), *_]:
            return plan
        case _:
            return None


def decode_progress(key: bytes | None, value: bytes | None) -> ReplayProgressed | Rejected | None:
    """The progress in a record; None for a record about something else. It never raises."""
    if key is None or value is None or not key.startswith(b'["progress",'):
        return None
    if len(key) + len(value) > MAX_FACT_BYTES:
        return Rejected(f"the record has {len(key) + len(value)} bytes, and at most {MAX_FACT_BYTES} are read")
    try:
        raw = loads(value)
        if type(raw) is not dict or raw.get("v") != VERSION:
            return Rejected(f"v must be {VERSION}: upgrade this reader")
        fields = object_type(ReplayProgressed).attributes(raw, "", ("v",))
    except MisfitError as misfit:
        return Rejected(str(misfit))
    fields.pop("extra", None)
    found = ReplayProgressed(**fields)
    written = 0 if found.outcome == "skipped" else len(found.positions)
    sizes = (len(found.partitions), len(found.offsets), len(found.to_partitions), len(found.to_offsets))
    if not found.positions or sizes != (len(found.positions), len(found.positions), written, written):
        return Rejected("the lists have different lengths")
    if (found.target is None or found.target_id is None) != (found.outcome == "skipped"):
        return Rejected("only what is skipped has no target")
    return found
