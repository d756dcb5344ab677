"""Which hours gaps are judged by: those of which all uses have been reported."""

from headgate.pipeline.derived.gaps import settled_hours_end

HOUR = 3_600_000


def test_an_hour_is_settled_20_minutes_after_its_end() -> None:
    end = 500_000 * HOUR
    assert settled_hours_end(end + 20 * 60_000) == end
    assert settled_hours_end(end + 20 * 60_000 - 1) == end - HOUR
