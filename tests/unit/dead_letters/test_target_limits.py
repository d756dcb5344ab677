"""What the configs of a target topic allow."""

import pytest

from headgate.dead_letters.model.target_limits import TargetLimits, limits_of

HOUR = 3_600_000
NOW = 1_794_731_901_727
CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": str(24 * HOUR),
    "max.message.bytes": "1000",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(12 * HOUR),
    "message.timestamp.after.max.ms": str(HOUR),
}


def limits(**changed: str) -> TargetLimits:
    return limits_of("orders", CONFIGS | {name.replace("_", "."): value for name, value in changed.items()})


def refusal(of: TargetLimits, age_hours: float, timestamps: str = "original") -> str | None:
    return of.refusal(oldest_at=NOW - int(age_hours * HOUR), now_ms=NOW, timestamps=timestamps)  # type: ignore[arg-type]


def test_records_older_than_the_retention_are_refused_with_their_original_timestamps() -> None:
    of = limits(message_timestamp_before_max_ms=str(2**63 - 1))
    assert refusal(of, 23.9) is None
    assert "deletes records after 24.0 h (retention.ms): use --timestamp now" in (refusal(of, 24) or "")
    assert refusal(of, 24, "now") is None


@pytest.mark.parametrize("changed", [{"cleanup_policy": "compact"}, {"retention_ms": "-1"}])
def test_a_topic_that_deletes_nothing_takes_records_of_any_age(changed: dict[str, str]) -> None:
    assert refusal(limits(message_timestamp_before_max_ms=str(2**63 - 1), **changed), 10_000) is None


def test_timestamps_that_the_broker_rejects_are_refused_first() -> None:
    assert "message.timestamp.before.max.ms" in (refusal(limits(), 13) or "")
    assert refusal(limits(), 11) is None
    assert refusal(limits(message_timestamp_type="LogAppendTime"), 13) is None


def test_a_topic_that_is_marked_as_a_dead_letter_topic_is_refused() -> None:
    assert "is a dead-letter topic" in (refusal(limits(errors_deadletterqueue_group_enable="true"), 0, "now") or "")


@pytest.mark.parametrize(
    ("size", "age_hours", "why"),
    [
        (1000, 1, None),
        (1001, 1, "too_large"),
        (10, 13, "timestamp_out_of_range"),
        (10, -2, "timestamp_out_of_range"),
        (10, None, None),
    ],
)
def test_a_record_that_would_fail_its_transaction_is_skipped(
    size: int, age_hours: float | None, why: str | None
) -> None:
    at = None if age_hours is None else NOW - int(age_hours * HOUR)
    assert limits().skip_reason(size=size, timestamp_ms=at, now_ms=NOW) == why
