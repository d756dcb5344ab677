"""Reports of workers are bounded at both ends, and what is cut away is added up and counted."""

import asyncio
import json
import random

import pytest

from headgate.proxy.gather_budget import GatherBudgets
from headgate.proxy.metric_series import LEFT_OUT, OTHERS, SeriesLimit
from headgate.proxy.metrics import Metrics, MetricsPage, Snapshot
from headgate.proxy.pipes import PipePool
from headgate.proxy.worker_reports import (
    LARGEST_LINE,
    LARGEST_REPORT,
    WorkerReport,
    decode_report,
    encode_report,
    read_reports,
)
from headgate.share_groups.share_metrics import FAMILIES, ShareMeter

PAGE = MetricsPage(FAMILIES)
SHARED = "headgate_dlq_topic_shared_by_multiple_groups"


def snapshot(*, groups: int, name: str, topics: int = 0) -> Snapshot:
    """What a worker with many managed groups has counted."""
    budgets = GatherBudgets(lambda: 0.0)
    worker = Metrics().snapshot(
        open_connections=1,
        connections_limit=10,
        routes=(),
        certificate_expires_at=1.0,
        budgets=budgets,
        pipes=PipePool(0, lambda: 0.0),
    )
    meter = ShareMeter()
    for number in range(groups):
        for counter in (meter.trips, meter.write_timeouts, meter.dead_letters):
            meter.count(counter, f"{number:04}{name}", 1)
    shared = [(f"dlq.{number:06}".ljust(249, "t"), 2) for number in range(topics)]
    worker |= meter.samples(
        ready=True, leading=True, paused=0, ledger=0, lost=0, shared=shared, ignored={}, spooled=(), now_ms=0
    )
    return SeriesLimit(PAGE.families).bound(worker)


def totals(samples: Snapshot) -> dict[str, float]:
    by_family: dict[str, float] = {}
    for (name, _), value in samples.items():
        by_family[name] = by_family.get(name, 0) + value
    return by_family


def test_a_small_report_is_whole() -> None:
    samples = snapshot(groups=10, name="orders", topics=3)
    problems, details = {"upstream": "is away"}, {"topology store": "2 cancelled calls have not ended"}
    assert decode_report(encode_report(WorkerReport(samples, problems, details))) == (samples, problems, details)


@pytest.mark.parametrize(
    ("groups", "name", "topics"),
    [
        (170, "g" * 30_000, 0),
        (170, "\N{GRINNING FACE}" * 7_000, 0),
        (0, "", 100_000),
        (5_000, "\x00" * 1_000, 5_000),
    ],
    ids=["long names", "names that JSON makes longer", "shared topics", "everything"],
)
def test_a_report_with_many_long_names_is_cut_and_adds_up(groups: int, name: str, topics: int) -> None:
    samples = snapshot(groups=groups, name=name, topics=topics)
    line = encode_report(WorkerReport(samples, {}))
    assert len(line) <= LARGEST_REPORT
    reported, problems, _ = decode_report(line)
    assert not problems
    shown, counted = totals(reported), totals(samples)
    assert shown.keys() == counted.keys()
    assert all(shown[name] == value for name, value in counted.items() if name != LEFT_OUT[0])
    left_out = samples.keys() - reported.keys()
    assert reported[LEFT_OUT] == samples[LEFT_OUT] + len(left_out)
    assert {name for name, _ in left_out} <= {name for name, labels in reported if OTHERS in labels}
    PAGE.render(PAGE.add([reported]), ready=True)


def test_a_family_with_many_series_does_not_cut_the_others() -> None:
    samples: Snapshot = {("one", (f"{number:0200}",)): 1.0 for number in range(100)}
    samples |= {("other", (name,)): 1.0 for name in "abc"}
    samples[LEFT_OUT] = 0
    reported, _, _ = decode_report(encode_report(WorkerReport(samples, {}), largest=5_000))
    assert sum(name == "other" for name, _ in reported) == 3
    assert 10 < sum(name == "one" for name, _ in reported) < 25
    assert next(labels for name, labels in reported if name == "one") == (f"{0:0200}",)


def test_reports_of_any_content_are_within_the_bound() -> None:
    chance = random.Random(7)
    for _ in range(200):
        samples: Snapshot = {
            (f"family_{chance.randrange(6)}", (chance.choice("aä\x00") * chance.randrange(200) + str(number),)): float(
                chance.randrange(10**9)
            )
            for number in range(chance.randrange(400))
        }
        line = encode_report(WorkerReport(samples, {}), largest=8_000)
        assert len(line) <= 8_000
        reported = totals(decode_report(line)[0])
        reported.pop(LEFT_OUT[0], None)
        assert reported == totals(samples)


def test_problems_and_details_are_bounded_and_never_all_gone() -> None:
    many = {f"node {number}": "n" * 100_000 for number in range(10_000)}
    line = encode_report(WorkerReport({LEFT_OUT: 0}, many, many))
    assert len(line) < LARGEST_REPORT
    _, problems, details = decode_report(line)
    assert 0 < len(problems) <= 100
    assert 0 < len(details) <= 100


def test_a_report_without_details_is_read() -> None:
    """A worker of another version, while workers are replaced."""
    assert decode_report(b'{"samples": [], "problems": {}}').details == {}


@pytest.mark.parametrize("line", [b"{", b"[]", b"{}", b'{"samples": [1], "problems": {}}', b'{"samples": []}'])
def test_what_is_no_report_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_report(line)


async def test_lines_that_are_too_large_are_skipped_and_the_next_ones_are_read() -> None:
    reader = asyncio.StreamReader(limit=1000)
    lines: list[bytes | None] = []

    async def read() -> None:
        async for line in read_reports(reader):
            lines.append(line)  # noqa: PERF401

    reading = asyncio.create_task(read())
    chance = random.Random(3)
    expected: list[bytes | None] = []
    stream = b""
    for size in (10, 5_000, 20, 999, 1_001, 1_002, 100_000, 0, 30):
        line = bytes(chance.randrange(32, 127) for _ in range(size)) + b"\n"
        stream += line
        expected.append(line if size <= 1000 else None)
    while stream:
        piece = chance.randrange(1, 3_000)
        reader.feed_data(stream[:piece])
        stream = stream[piece:]
        await asyncio.sleep(0)
    reader.feed_data(b"a last word that was not finished")
    reader.feed_eof()
    await reading
    assert [line is None for line in lines] == [line is None for line in expected]
    assert [line for line in lines if line] == [line for line in expected if line]


def test_a_supervisor_reads_every_report_that_a_worker_makes() -> None:
    assert LARGEST_REPORT < LARGEST_LINE
    json.loads(encode_report(WorkerReport(snapshot(groups=1000, name="x" * 40_000, topics=1000), {})))
