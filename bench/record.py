"""What a campaign found, as raw as it was measured: one immutable value that is kept as JSON.

One rule: no median and no ratio is kept. `render.py` makes them, so that a page can always be made anew.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
LATEST = RESULTS / "latest.json"
PARTIAL = RESULTS / "partial.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One peer, one scenario, one round: its figures, or why there are none."""

    scenario: str
    peer: str
    round: int
    figures: Mapping[str, float] = field(default_factory=dict)
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRecord:
    name: str
    title: str
    detail: str = ""
    absent: str = ""  # why it could not be measured


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecord:
    name: str
    title: str
    peers: tuple[PeerRecord, ...] = ()
    runs: tuple[Run, ...] = ()
    skipped: str = ""  # why none of it was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    began: str
    seconds: float
    command: str
    rounds: int
    counted_seconds: float
    facts: Mapping[str, str]  # machine and versions, in the order in which they are shown
    watchers: tuple[str, ...]  # what in Headgate looked at Produce and Fetch
    stages: tuple[StageRecord, ...]
    micro: Mapping[str, float]  # microseconds by name
    micro_failed: str = ""

    def stage(self, name: str) -> StageRecord | None:
        return next((stage for stage in self.stages if stage.name == name), None)

    def save(self, file: Path) -> None:
        file.parent.mkdir(exist_ok=True)
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        fresh.replace(file)


def load(file: Path) -> Campaign:
    raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    stages = tuple(
        StageRecord(
            **{
                **stage,
                "peers": tuple(PeerRecord(**peer) for peer in stage["peers"]),
                "runs": tuple(Run(**run) for run in stage["runs"]),
            }
        )
        for stage in raw.pop("stages")
    )
    return Campaign(stages=stages, watchers=tuple(raw.pop("watchers")), **raw)
