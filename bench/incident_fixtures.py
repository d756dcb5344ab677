"""Recorded incidents as files, `tests/fixtures/incidents/FAMILY-SEED.json`: what triage reads, and the truth.

A file has the attempts of each member by the second, pauses, dead letters, and the features of the records around
these, as the topics of Headgate and the source topic had them. Times are relative to the first attempt, members are
numbered, and keys are hashes. `bench.record_incidents` writes these files.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headgate.dead_letters.model.clusters import FEATURES, Letter, Place, SourceRecord, clusters_of
from headgate.dead_letters.model.episodes import BUCKET_MS, Attempts, Pause
from headgate.dead_letters.model.verdict import EpisodeCause, EpisodeVerdict

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "incidents"
TYPE_HEADER = "__TypeId__"
_TOPIC, _TOPIC_ID = "orders", "orders-id"
_SCHEMA_BYTES = 5
_HASH_CHARACTERS = 10
_BEGIN_MS = 1_700_000_000_000  # any time that a bucket begins with


@dataclass(frozen=True, slots=True, kw_only=True)
class DisposedSecond:
    """What one member did in one second, all partitions together. `by_delivery_count` has pairs of both numbers."""

    second: int
    member: int
    accepted: int
    released: int
    rejected: int
    over_limit: int
    by_delivery_count: tuple[tuple[int, int], ...]

    @property
    def failed(self) -> int:
        return self.released + self.rejected + self.over_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLetter:
    """One dead letter; `at_ms` since the first attempt."""

    partition: int
    offset: int
    at_ms: int
    delivery_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedIncident:
    """One incident: its truth, how it was made, and what was read of it from Kafka."""

    family: str
    seed: int
    truth: EpisodeCause
    is_overlapping: bool
    made: Mapping[str, object]  # members, rate and so on: for people
    now_ms: int
    attempts: Sequence[DisposedSecond]
    pauses: Sequence[tuple[int, int | None]]
    letters: Sequence[RecordedLetter]
    sources: Mapping[int, Sequence[SourceRecord]]  # by partition, in the order of offsets

    @property
    def name(self) -> str:
        return f"{self.family}-{self.seed}"

    def verdict(self) -> EpisodeVerdict | None:
        """As the pipeline gives it, on the episode with the most dead letters; None without one."""
        found = clusters_of(
            "c",
            "g",
            [_letter(one) for one in self.letters],
            self._attempts(),
            [Pause(since=_at(since), until=None if until is None else _at(until)) for since, until in self.pauses],
            self._places(),
            now=_at(self.now_ms),
        )
        best = max(found, key=lambda one: len(one.letters), default=None)
        return None if best is None else best.verdict

    def _attempts(self) -> list[Attempts]:
        """In slots of a bucket, as the pipeline sums them up."""
        slots: dict[tuple[int, int], list[int]] = {}
        for one in self.attempts:
            at = _at(one.second * 1000)
            counts = slots.setdefault((at - at % BUCKET_MS, one.member), [0, 0])
            counts[0] += one.failed
            counts[1] += one.accepted
        return [
            Attempts(at=at, member=f"m-{member}", failed=failed, succeeded=succeeded)
            for (at, member), (failed, succeeded) in slots.items()
        ]

    def _places(self) -> dict[Place, Sequence[SourceRecord]]:
        return {(_TOPIC_ID, partition): records for partition, records in self.sources.items()}


def _at(since_ms: int) -> int:
    return _BEGIN_MS + since_ms


def _letter(one: RecordedLetter) -> Letter:
    return Letter(
        topic=_TOPIC,
        topic_id=_TOPIC_ID,
        partition=one.partition,
        offset=one.offset,
        at=_at(one.at_ms),
        delivery_count=one.delivery_count,
    )


def record_features(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]], producer_id: int | None
) -> tuple[object, ...]:
    """The values of `FEATURES`, as the pipeline has them but for the length of the hash."""
    size = len(key or b"") + len(value or b"")
    has_schema = value is not None and len(value) >= _SCHEMA_BYTES and value[0] == 0
    kinds = [data for name, data in headers if name == TYPE_HEADER and data is not None]
    return (
        None if key is None else hashlib.sha256(key).hexdigest()[:_HASH_CHARACTERS],
        int.from_bytes((value or b"")[1:_SCHEMA_BYTES], "big") if has_schema else None,
        producer_id,
        kinds[0].decode() if kinds else None,
        max(size, 1).bit_length() - 1,
    )


# --- files ------------------------------------------------------------------------------------------------------------


def dump(incident: RecordedIncident) -> str:
    """One line for each part; features are columns of codes into lists of their values."""
    document: dict[str, object] = {
        "family": incident.family,
        "seed": incident.seed,
        "truth": incident.truth.value,
        "is_overlapping": incident.is_overlapping,
        "made": incident.made,
        "now_ms": incident.now_ms,
        "pauses": incident.pauses,
        "attempts": [list(asdict(one).values()) for one in incident.attempts],
        "letters": [list(asdict(one).values()) for one in incident.letters],
        "sources": {str(partition): _packed(records) for partition, records in incident.sources.items()},
    }
    lines = (f"{json.dumps(name)}:{json.dumps(value, separators=(',', ':'))}" for name, value in document.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _packed(records: Sequence[SourceRecord]) -> dict[str, object]:
    columns: dict[str, object] = {}
    for index, name in enumerate(FEATURES):
        codes: dict[object, int] = {}
        column = [codes.setdefault(one.features[index], len(codes)) for one in records]
        columns[name] = [list(codes), column]
    return {"offsets": [one.offset for one in records], **columns}


def _unpacked(packed: Mapping[str, Any]) -> list[SourceRecord]:
    columns = [[packed[name][0][code] for code in packed[name][1]] for name in FEATURES]
    return [
        SourceRecord(offset=offset, features=features)
        for offset, *features in zip(packed["offsets"], *columns, strict=True)
    ]


def load(text: str) -> RecordedIncident:
    found = json.loads(text)
    return RecordedIncident(
        family=found["family"],
        seed=found["seed"],
        truth=EpisodeCause(found["truth"]),
        is_overlapping=found["is_overlapping"],
        made=found["made"],
        now_ms=found["now_ms"],
        attempts=[
            DisposedSecond(
                second=second,
                member=member,
                accepted=accepted,
                released=released,
                rejected=rejected,
                over_limit=over_limit,
                by_delivery_count=tuple((one, many) for one, many in counts),
            )
            for second, member, accepted, released, rejected, over_limit, counts in found["attempts"]
        ],
        pauses=[(since, until) for since, until in found["pauses"]],
        letters=[
            RecordedLetter(partition=partition, offset=offset, at_ms=at_ms, delivery_count=count)
            for partition, offset, at_ms, count in found["letters"]
        ],
        sources={int(partition): _unpacked(packed) for partition, packed in found["sources"].items()},
    )


def recorded_incidents() -> list[RecordedIncident]:
    """All of them, by name."""
    return [load(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]
