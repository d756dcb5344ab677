"""The records of `headgate-replay.progress`."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.facts import Rejected
from headgate.facts.json_form import object_type
from headgate.facts.replays import ReplayProgressed, decode_progress, encode_progress

PROGRESS = ReplayProgressed(
    at=1794731901727,
    plan="6a187a28-91c0",
    by="User:ops",
    group="sg\udcff",
    outcome="replayed",
    why=None,
    topic="orders",
    topic_id="Yl8yUgEGQ8-3nUUGLFGGsA",
    target="orders",
    target_id="Yl8yUgEGQ8-3nUUGLFGGsA",
    positions=(0, 2),
    partitions=(0, 1),
    offsets=(4711, 9),
    to_partitions=(0, 1),
    to_offsets=(5012, 77),
)
SKIPPED = replace(
    PROGRESS, outcome="skipped", why="source_missing", target=None, target_id=None, to_partitions=(), to_offsets=()
)


@pytest.mark.parametrize("progress", [PROGRESS, SKIPPED])
def test_a_record_is_read_as_it_was_written(progress: ReplayProgressed) -> None:
    assert decode_progress(*encode_progress(progress)) == progress


def test_other_records_of_the_topic_are_none() -> None:
    assert decode_progress(b'["replay","p"]', b"{}") is None
    assert decode_progress(None, b"{}") is None
    assert decode_progress(b'["progress","p",0]', None) is None


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"positions": []},
        {"offsets": [1]},
        {"to_offsets": []},
        {"target": None},
        {"outcome": "lost"},
        {"partitions": [0, -1]},
        {"at": "now"},
    ],
)
def test_a_record_that_does_not_fit_is_rejected(change: dict[str, object]) -> None:
    key, value = encode_progress(PROGRESS)
    assert isinstance(decode_progress(key, json.dumps(json.loads(value) | change).encode()), Rejected)


def test_what_is_no_json_or_too_large_is_rejected() -> None:
    key, value = encode_progress(PROGRESS)
    assert isinstance(decode_progress(key, b"\xff"), Rejected)
    assert isinstance(decode_progress(key, b"[]"), Rejected)
    assert isinstance(decode_progress(key, value + b" " * 1024 * 1024), Rejected)


def test_fields_of_a_later_release_do_no_harm() -> None:
    key, value = encode_progress(PROGRESS)
    assert decode_progress(key, json.dumps(json.loads(value) | {"new": 1}).encode()) == PROGRESS


def test_the_page_has_the_fields_and_an_example() -> None:
    page = (Path(__file__).parents[3] / "docs" / "facts.md").read_text("utf-8")
    section = page.partition("## `headgate-replay.progress`")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", section, flags=re.MULTILINE)
    assert rows == [(member.name, member.meaning) for member in object_type(ReplayProgressed).members]
    example = re.search(r"```json\n(.*)\n```", section)
    assert example is not None
    assert decode_progress(b'["progress","6a187a28-91c0",0]', example[1].encode()) == replace(PROGRESS, group="sg")
