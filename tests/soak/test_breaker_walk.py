"""A million events of breakers beside their oracle; the unit tests walk a twentieth of it."""

import pytest

from tests.unit.share_groups.breaker_walk import walk

EVENTS = 1_000_000
WALKS = 5


@pytest.mark.parametrize("seed", range(100, 100 + WALKS))
def test_a_very_long_walk_agrees_with_the_oracle_at_every_second(seed: int) -> None:
    seen = walk(seed, EVENTS // WALKS)
    assert seen.events >= EVENTS // WALKS
    assert seen.trips > seen.events // 5_000
    assert seen.ignored > seen.events // 100
