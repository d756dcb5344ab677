"""The parts in which rates are made."""

from headgate.pipeline.derived.rates import hour_parts


def test_a_part_has_consecutive_hours_with_so_many_rows_and_at_least_one_hour() -> None:
    sizes = {40: 9, 10: 3, 20: 4, 30: 2, 60: 1, 50: 20, 70: 1}
    assert list(hour_parts(sizes, 8)) == [(10, 20), (30, 30), (40, 40), (50, 50), (60, 70)]
    assert list(hour_parts(sizes, 100)) == [(10, 70)]
    assert list(hour_parts({}, 8)) == []
