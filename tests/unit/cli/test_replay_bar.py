"""The progress of a replay, as lines for a log."""

import pytest

from headgate.cli.dlq_text import ReplayBar
from headgate.dead_letters.replayer import ReplayResult


def test_the_rate_is_that_of_the_last_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = 0.0
    bar = ReplayBar(1000, now=lambda: seconds)
    result = ReplayResult(plan="p", state="RUNNING", written=100)  # of an earlier process
    told: list[str] = []
    for second in range(60):
        seconds = float(second)
        result.state = "PAUSED" if 20 <= second < 40 else "RUNNING"
        result.written += 0 if result.state == "PAUSED" else 10
        bar.show(result)
        told += [f"{second} {line.partition('), ')[2]}" for line in capsys.readouterr().err.splitlines()]
    assert told[0] == "2 10 records/s, RUNNING"
    assert "18 10 records/s, RUNNING" in told
    assert "38 0 records/s, PAUSED" in told
    assert "58 10 records/s, RUNNING" in told
    assert len(told) == 29, "a line every two seconds"
