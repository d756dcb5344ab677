"""Reports of a worker to its supervisor: lines of JSON with metrics, problems and details, over a socket pair.

A report is bounded at both ends. A worker cuts one that would exceed `LARGEST_REPORT`; a supervisor skips a line that
exceeds `LARGEST_LINE`. Neither ends the worker: clients do not lose their connections for the sake of metrics.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Final, NamedTuple

from headgate.proxy.metric_series import LEFT_OUT, OTHERS
from headgate.proxy.metrics import Sample, Snapshot

LARGEST_REPORT: Final = 512 * 1024
LARGEST_LINE: Final = 1024 * 1024
_ROW_BYTES: Final = 40  # of a sample's value and punctuation
_MOST_PROBLEMS: Final = 100
_MOST_DETAILS: Final = 20
_LONGEST_TEXT: Final = 1_000


class WorkerReport(NamedTuple):
    """`problems` make the gateway not ready, `details` do not; both are shown by `/readyz`."""

    samples: Snapshot
    problems: Mapping[str, str]
    details: Mapping[str, str] = {}


def encode_report(report: WorkerReport, *, largest: int = LARGEST_REPORT) -> bytes:
    """One line; series that do not fit are added up for each family, and counted."""
    samples = report.samples
    problems, details = _some(report.problems, _MOST_PROBLEMS), _some(report.details, _MOST_DETAILS)
    if sum(map(_size, samples)) > largest:  # an upper bound, and quicker than to encode it
        samples = _cut(samples, largest - len(_encode(WorkerReport({}, problems, details))))
    return _encode(WorkerReport(samples, problems, details))


def _some(texts: Mapping[str, str], number: int) -> dict[str, str]:
    some = list(texts.items())[:number]
    return {what[:_LONGEST_TEXT]: text[:_LONGEST_TEXT] for what, text in some}


def decode_report(line: bytes) -> WorkerReport:
    """A report; a `ValueError` if it is not one."""
    try:
        report = json.loads(line)
        samples = {(name, tuple(labels)): value for name, labels, value in report["samples"]}
        return WorkerReport(samples, report["problems"], report.get("details", {}))
    except (KeyError, TypeError) as failure:
        raise ValueError(f"not a report: {failure!r}") from failure


async def read_reports(reader: asyncio.StreamReader) -> AsyncIterator[bytes | None]:
    """Every line until the worker's end; None for a line that exceeds the limit of the reader."""
    is_too_large = False
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as overrun:
            await reader.readexactly(overrun.consumed)
            is_too_large = True
        except asyncio.IncompleteReadError:
            return
        else:
            yield None if is_too_large else line
            is_too_large = False


def _size(sample: Sample) -> int:
    """The bytes that a sample has at most in a report."""
    name, labels = sample
    size = _ROW_BYTES + len(name)
    for label in labels:
        if label.isascii() and label.isprintable():
            size += 4 + len(label) + label.count('"') + label.count("\\")
        else:
            size += 4 + 12 * len(label)  # as escaped surrogates
    return size


def _encode(report: WorkerReport) -> bytes:
    rows = [[name, labels, value] for (name, labels), value in report.samples.items()]
    document = {"samples": rows, "problems": dict(report.problems), "details": dict(report.details)}
    return json.dumps(document).encode() + b"\n"


def _cut(samples: Snapshot, room: int) -> Snapshot:
    """The samples that fit into `room` bytes; families have equal shares, and small ones leave room to the others."""
    by_family: dict[str, list[tuple[tuple[str, ...], float, int]]] = {}
    for (name, labels), value in samples.items():
        by_family.setdefault(name, []).append((labels, value, _size((name, labels))))
    sizes = {name: sum(size for _, _, size in rows) for name, rows in by_family.items()}
    kept: Snapshot = {}
    left_out = samples.get(LEFT_OUT, 0.0)
    for number, name in enumerate(sorted(by_family, key=sizes.__getitem__)):
        rows = by_family[name]
        share = room // (len(by_family) - number)
        if sizes[name] > share:
            others = (OTHERS,) * len(rows[0][0])
            share -= _size((name, others))
            room -= _size((name, others))
            rest = 0.0
            for labels, value, size in rows:
                if size <= share:
                    share -= size
                    room -= size
                    kept[name, labels] = value
                else:
                    share = 0  # the order says which series stay: none behind the first that does not
                    rest += value
                    left_out += labels != others
            kept[name, others] = kept.get((name, others), 0.0) + rest
        else:
            room -= sizes[name]
            kept.update({(name, labels): value for labels, value, _ in rows})
    kept[LEFT_OUT] = left_out
    return kept
