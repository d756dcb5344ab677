"""What activity counts, under Prometheus' names."""


def samples(
    *, intervals: int, overflows: int, unreadable: int, written: int, lost: int, recorded: int
) -> dict[tuple[str, tuple[str, ...]], float]:
    """For `gateway.metrics`."""
    return {
        ("headgate_activity_intervals", ()): intervals,
        ("headgate_activity_overflows", ()): overflows,
        ("headgate_activity_unreadable", ()): unreadable,
        ("headgate_activity_facts", ("written",)): written,
        ("headgate_activity_facts", ("lost",)): lost,
        ("headgate_activity_recorded", ()): recorded,
    }
