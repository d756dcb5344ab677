"""Requests for replay plans and their answers: records of `headgate-replay.progress` that are in no transaction.

An operator, or the web server for one, writes a request; the running pipeline makes the plan and answers. The last
answer under a key counts, so a request whose last answer is final is done, whatever ends in between.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from headgate.facts.codec import VERSION, Rejected
from headgate.facts.json_form import OMIT_NULL, MisfitError, ObjectType, Time, dumps, loads, object_type

PlanOption = Literal["accept_fanout", "include_superseded"]
PlanRequestState = Literal["WAITING", "RUNNING", "DONE", "REFUSED", "FAILED"]
FINAL: Final[frozenset[PlanRequestState]] = frozenset({"DONE", "REFUSED", "FAILED"})
# A request is not begun after this time: its caller has stopped waiting.
REQUEST_LIFE_MS: Final = 15 * 60 * 1000
MAX_REQUEST_BYTES: Final = 64 * 1024
MAX_ANSWER_CHARACTERS: Final = 8 * 1024
_LONGEST_ID: Final = 64
_REQUEST: Final = b'["plan_request",'
_ANSWER: Final = b'["plan_answer",'


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequested:
    """A plan is asked for; `group` or `dlq_topic` is set, times are of the dead letters.

    Of several pipelines on one cluster, the one whose tables these are makes the plan, which is read from them.
    """

    at: Annotated[int, "when, by the clock of who asks", Time()]
    request: Annotated[str, "the id of the request"]
    by: Annotated[str, "who asks"]
    group: Annotated[str | None, "only dead letters of this group"] = None
    dlq_topic: Annotated[str | None, "only dead letters in this dead-letter topic"] = None
    where: Annotated[str | None, "only those that the expression selects"] = None
    since: Annotated[int | None, "only those from this time on", Time()] = None
    until: Annotated[int | None, "only those before this time", Time()] = None
    episode: Annotated[str | None, "only those of this episode of `dead_letter_clusters`"] = None
    to: Annotated[str, "original, or the topic to write to"]
    options: Annotated[tuple[PlanOption, ...], "what is accepted"] = ()
    topics: Annotated[
        tuple[str, ...] | None, "only records of topics that one of these patterns matches, those of a token", OMIT_NULL
    ] = None
    tables: Annotated[
        str | None, "the id of the table `dead_letters`: pipelines with other tables pass the request over", OMIT_NULL
    ] = None
    extra: tuple[()] = ()

    def asked(self) -> dict[str, str]:
        """The request by the names of the options, as it is kept with the plan."""
        named = {"group": self.group, "topic": self.dlq_topic, "where": self.where, "cluster": self.episode}
        times = {"since": self.since, "until": self.until}
        lists = {"options": sorted(self.options) or None, "topics": self.topics}
        shown = named | {name: None if time is None else _iso(time) for name, time in times.items()}
        shown |= {name: None if texts is None else ", ".join(texts) for name, texts in lists.items()}
        return {name: text for name, text in shown.items() if text is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswered:
    """The state of a request for a plan."""

    at: Annotated[int, "when, by the clock of the pipeline", Time()]
    request: Annotated[str, "the id of the request"]
    state: Annotated[PlanRequestState, "the state; after DONE, REFUSED and FAILED there is no other"]
    plan: Annotated[str | None, "the id of the plan; null unless DONE"] = None
    text: Annotated[str | None, "the step that runs, or why there is no plan"] = None
    extra: tuple[()] = ()


_REQUESTED: Final = object_type(PlanRequested)
_ANSWERED: Final = object_type(PlanAnswered)


def encode_plan_record(record: PlanRequested | PlanAnswered) -> tuple[bytes, bytes]:
    """The key and the value of the record."""
    kind, form = ("plan_request", _REQUESTED) if isinstance(record, PlanRequested) else ("plan_answer", _ANSWERED)
    return dumps([kind, record.request]), dumps({"v": VERSION} | form.write(record))


def decode_plan_record(key: bytes | None, value: bytes | None) -> PlanRequested | PlanAnswered | Rejected | None:
    """The request or the answer in a record; None for a record about something else. It never raises."""
    if key is None or value is None or not key.startswith((_REQUEST, _ANSWER)):
        return None
    if len(key) + len(value) > MAX_REQUEST_BYTES:
        return Rejected(f"the record has {len(key) + len(value)} bytes, and at most {MAX_REQUEST_BYTES} are read")
    try:
        raw = loads(value)
        if type(raw) is not dict or raw.get("v") != VERSION:
            return Rejected(f"v must be {VERSION}: upgrade this reader")
        if key.startswith(_ANSWER):
            return _checked(PlanAnswered(**_fields(_ANSWERED, raw)), key)
        return _checked(PlanRequested(**_fields(_REQUESTED, raw)), key)
    except MisfitError as misfit:
        return Rejected(str(misfit))


def _fields(form: ObjectType, raw: Mapping[str, Any]) -> dict[str, Any]:
    fields = form.attributes(raw, "", ("v",))
    fields.pop("extra", None)
    return fields


def _checked(record: PlanRequested | PlanAnswered, key: bytes) -> PlanRequested | PlanAnswered | Rejected:
    if not 0 < len(record.request) <= _LONGEST_ID or encode_plan_record(record)[0] != key:
        return Rejected(f"the key must have the id of the request, of at most {_LONGEST_ID} characters")
    if isinstance(record, PlanRequested) and (record.group is None) == (record.dlq_topic is None):
        return Rejected("a request must have either group or dlq_topic")
    if isinstance(record, PlanAnswered) and (record.plan is None) == (record.state == "DONE"):
        return Rejected("an answer has a plan if it is DONE, and else none")
    return record


def _iso(time_ms: int) -> str:
    """A time beyond the year 9999 is no text of ISO 8601; nothing has such a time."""
    try:
        shown = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    return shown.replace("+00:00", "Z").replace(".000Z", "Z")
