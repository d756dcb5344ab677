"""What a member acquired is used only for the principal that acquired it; what is not known is bounded."""

import pytest

from headgate.share_groups.acknowledgements import KEPT_S, MAX_UNKNOWN_OFFSETS
from headgate.share_groups.model.delivery_ledger import AcquiredRange, DeliveryLedger, HeldKey
from tests.support.clock import FakeClock
from tests.unit.share_groups.scene import (
    DESCRIBE_ONLY,
    LOCK_MS,
    METADATA,
    REJECT,
    Scene,
    acknowledged,
    acknowledging,
    acks_of,
    fetched,
    fetching,
    scene,
)
from tests.unit.share_groups.test_copies_and_dead_letters import batch

FETCH_RECORDS = 1


def counts(on: Scene) -> list[int | None]:
    return [one.source.delivery_count for one in on.dead_letters.written]


async def test_a_client_that_names_a_member_of_another_principal_finds_nothing_of_that_members() -> None:
    async with scene() as on:
        on.configure(errors__deadletterqueue__copy__record__enable="true")
        await on.fetch(fetching(), fetched({0: [(10, 10, 2)]}, records=batch(10, [b"secret"])))
        on.principals.name = "User:another"
        await on.send(acknowledging({0: [(10, 10, [REJECT])]}))
        await on.names_topic()
        asked = await on.broker.request()
        assert asked.key == FETCH_RECORDS, "a copy only by the client's own Fetch"
        await on.broker.send(asked.answer())
        await on.goes_on_acknowledging(acknowledged({0: 121}))
        assert [(one.source.delivery_count, one.value) for one in on.dead_letters.written] == [(None, None)]
        assert on.service.acknowledgements.acquired_ranges == 1, "the member itself still holds it"


async def test_what_a_killed_member_held_is_forgotten_an_hour_after_its_locks_ended() -> None:
    """It never ends its session, and a renewal does not move the end of a lock here."""
    clock = FakeClock()
    async with scene(clock=clock) as on:
        on.configure()
        await on.acquires((10, 19, 1))
        clock.now += LOCK_MS / 1000 + KEPT_S - 1
        await on.acquires((0, 9, 1), partition=1)
        assert on.service.acknowledgements.acquired_ranges == 2
        clock.now += 61  # it is looked at once a minute
        await on.acquires((10, 19, 1), partition=1)
        assert on.service.acknowledgements.acquired_ranges == 2, "two of the partition of now"
        await on.rejects({0: [(10, 10, [REJECT])], 1: [(0, 0, [REJECT])]})
        assert sorted(counts(on), key=str) == [1, None]


@pytest.mark.parametrize(("principal", "is_known"), [("User:ops", True), (None, False)])
async def test_another_connection_finds_what_its_principal_acquired_and_nothing_if_the_principal_is_unknown(
    principal: str | None, is_known: bool
) -> None:
    async with scene(principal=principal) as on:
        on.configure()
        await on.acquires((10, 10, 2))
        other = await on.other_client()
        await other.rejects({0: [(10, 10, [REJECT])]})
        assert counts(on) == [2 if is_known else None]


async def test_where_the_principal_is_unknown_the_connection_finds_what_it_acquired() -> None:
    async with scene(principal=None) as on:
        on.configure()
        await on.acquires((10, 10, 2))
        await on.rejects({0: [(10, 10, [REJECT])]})
        assert counts(on) == [2]


async def test_the_end_of_a_session_by_another_principal_leaves_what_the_member_holds() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((10, 10, 2))
        on.principals.name = "User:another"
        await on.send(acknowledging(epoch=-1))
        await on.goes_on_acknowledging(acknowledged())
        assert on.service.acknowledgements.acquired_ranges == 1


@pytest.mark.parametrize(("code", "reported"), [(29, {}), (0, {"rejected": 1, "write_timeouts": 1})])
async def test_a_reject_of_what_was_never_seen_needs_read_on_its_topic(code: int, reported: dict[str, int]) -> None:
    async with scene() as on:
        on.configure()
        await on.send(acknowledging({0: [(10, 10, [REJECT])]}))
        await on.names_topic(operations=DESCRIBE_ONLY)
        await on.goes_on_acknowledging(acknowledged({0: code}))
        assert on.dead_letters.begun == []
        assert on.counted() == reported, "only what the broker archived"
        assert len(on.events("write_timeout")) == len(reported) // 2


async def test_what_is_known_in_the_same_request_does_not_need_that_right() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((10, 10, 2))
        await on.send(acknowledging({0: [(10, 11, [REJECT])]}))
        await on.names_topic(operations=DESCRIBE_ONLY)
        await on.names_topic()
        await on.goes_on_acknowledging(acknowledged({0: 0}))
        assert [(one.offset, one.source.delivery_count) for one in on.dead_letters.written] == [(10, 2)]


async def test_dead_letters_of_what_was_never_seen_are_bounded_in_a_request_and_in_a_second() -> None:
    clock = FakeClock()
    async with scene(clock=clock) as on:
        on.configure()
        await on.rejects({0: [(0, 2 * MAX_UNKNOWN_OFFSETS - 1, [REJECT])]})
        assert len(on.dead_letters.written) == MAX_UNKNOWN_OFFSETS
        assert on.counted()["write_timeouts"] == MAX_UNKNOWN_OFFSETS
        await on.send(acknowledging({0: [(9_000, 9_000, [REJECT])]}))
        await on.goes_on_acknowledging(acknowledged({0: 0}))
        assert len(on.dead_letters.written) == MAX_UNKNOWN_OFFSETS
        clock.now += 1
        await on.rejects({0: [(9_001, 9_001, [REJECT])]})
        assert len(on.dead_letters.written) == MAX_UNKNOWN_OFFSETS + 1


async def test_a_huge_reject_of_what_was_never_seen_does_not_cost_more_than_its_bound() -> None:
    async with scene() as on:
        on.configure()
        await on.rejects({0: [(5, 1 << 60, [REJECT])]}, {0: 121})
        assert len(on.dead_letters.written) == MAX_UNKNOWN_OFFSETS
        assert on.counted() == {}
        assert on.events("write_timeout") == []


async def test_what_is_rejected_beyond_the_bounds_is_looked_up_only_when_the_broker_accepts_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lookups: list[int] = []
    lookup = DeliveryLedger.lookup

    def counted(ledger: DeliveryLedger, key: HeldKey, first: int, last: int) -> list[AcquiredRange]:
        lookups.append(first)
        return lookup(ledger, key, first, last)

    monkeypatch.setattr(DeliveryLedger, "lookup", counted)
    clock = FakeClock()
    async with scene(clock=clock) as on:
        on.configure()
        many = [(2 * offset, 2 * offset, [REJECT]) for offset in range(3 * MAX_UNKNOWN_OFFSETS)]
        await on.rejects({0: many}, {0: 121})
        assert len(on.dead_letters.written) == MAX_UNKNOWN_OFFSETS
        assert len(lookups) == MAX_UNKNOWN_OFFSETS
        assert on.counted() == {}
        clock.now += 1
        await on.send(acknowledging({0: many}))
        await on.names_topic()
        await on.goes_on_acknowledging(acknowledged({0: 0}))
        counts_of_all = on.counted()
        assert counts_of_all["rejected"] == len(many)
        assert counts_of_all["write_timeouts"] + counts_of_all.get("dead_lettered", 0) == len(many)


async def test_a_metadata_request_names_every_topic_once() -> None:
    async with scene() as on:
        on.configure()
        await on.send(acknowledging({index: [(0, 0, [REJECT])] for index in range(5)}))
        asked = await on.broker.request()
        assert (asked.key, asked.version) == (METADATA, 13)
        await on.broker.send(asked.answer())
        found, _ = await on.goes_on_acknowledging(acknowledged(dict.fromkeys(range(5), 29)))
        assert len(acks_of(found)) == 5
        assert on.dead_letters.begun == []
