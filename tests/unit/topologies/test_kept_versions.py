"""The versions of a group, from the records of `headgate.topologies`."""

from dataclasses import replace

import pytest

from headgate.base.errors import HeadgateError
from headgate.facts import encode
from headgate.facts.topology import Description, Subtopology, TopologyDeleted, TopologyDescribed, content_hash
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.topologies.kept_versions import KeptVersion, VersionLog, select_version


def fact(epoch: int, *, at: int = 1, group: str = "g", incarnation: str = "9f2c") -> TopologyDescribed:
    description = Description(subtopologies=(Subtopology(id=str(epoch), nodes=()),))
    return TopologyDescribed(
        at=at,
        group=group,
        incarnation=incarnation,
        epoch=epoch,
        hash=content_hash(description),
        provenance="pushed",
        member="m",
        process="p",
        description=description,
    )


def read(*facts: TopologyDescribed | TopologyDeleted | ConsumedRecord) -> tuple[KeptVersion, ...]:
    log = VersionLog("g", max_bytes=10_000)
    for offset, one in enumerate(facts):
        log.take(one if isinstance(one, ConsumedRecord) else record(one, offset))
    return log.versions()


def record(one: TopologyDescribed | TopologyDeleted, offset: int = 0, *, ended: bool = False) -> ConsumedRecord:
    _, key, value = encode(one)
    return ConsumedRecord(partition=0, offset=offset, key=key, value=None if ended else value)


def epochs(versions: tuple[KeptVersion, ...]) -> list[int]:
    return [one.fact.epoch for one in versions]


def test_versions_are_in_the_order_of_the_topic_and_the_last_push_is_current() -> None:
    versions = read(fact(2), fact(1))
    assert epochs(versions) == [2, 1]
    assert [one.is_current for one in versions] == [False, True]
    assert versions[0].name == f"9f2c/2/{fact(2).hash[7:19]}"


def test_a_version_that_is_written_again_is_the_latest() -> None:
    assert epochs(read(fact(0), fact(1), fact(0, at=9))) == [1, 0]


def test_records_of_other_groups_and_unreadable_ones_are_passed_over() -> None:
    odd = [
        ConsumedRecord(partition=0, offset=0, key=key, value=b"x")
        for key in (None, b"", b"\xff", b"[]", b'["g"]', b"[" * 5000)
    ]
    assert epochs(read(fact(0, group="other"), *odd, fact(1))) == [1]


def test_a_deleted_group_has_no_current_version_until_the_next_push() -> None:
    deletion = TopologyDeleted(at=7, group="g", incarnation="9f2c")
    versions = read(fact(0), deletion)
    assert [(one.is_current, one.deleted_at) for one in versions] == [(False, 7)]
    versions = read(fact(0), deletion, fact(0, incarnation="77aa"))
    assert [(one.is_current, one.deleted_at) for one in versions] == [(False, 7), (True, None)]


def test_a_tombstone_removes_a_version() -> None:
    assert epochs(read(fact(0), fact(1), record(fact(0), ended=True))) == [1]


def test_a_pasted_version_is_not_current() -> None:
    pasted = replace(fact(1), provenance="pasted")
    assert [one.is_current for one in read(fact(0), pasted)] == [True, False]


def test_a_version_is_selected_by_name_hash_latest_or_previous() -> None:
    versions = read(fact(0), fact(1), fact(2))
    assert select_version(versions, "latest").fact.epoch == 2
    assert select_version(versions, "").fact.epoch == 2
    assert select_version(versions, "previous").fact.epoch == 1
    for version in versions:
        assert select_version(versions, version.name) is version
        assert select_version(versions, version.fact.hash) is version
        assert select_version(versions, version.digits[:8]) is version


def test_the_same_content_again_is_not_the_previous_version() -> None:
    versions = read(fact(0), fact(1, incarnation="a"), fact(1, incarnation="b"))
    assert select_version(versions, "previous").fact.epoch == 0
    assert select_version(versions, versions[1].digits).fact.incarnation == "b"


@pytest.mark.parametrize("wanted", ["previous", "no/0/such", "ffff0000ffff", "9f2c/1"])
def test_what_is_not_kept_is_an_error(wanted: str) -> None:
    with pytest.raises(HeadgateError, match="there is no"):
        select_version(read(fact(0)), wanted)


def test_a_name_of_several_versions_is_an_error() -> None:
    with pytest.raises(HeadgateError, match="several versions"):
        select_version(read(fact(0), replace(fact(0), hash=fact(1).hash)), "9f2c/0/")


# --- partial descriptions


def partial(epoch: int) -> TopologyDescribed:
    return replace(fact(epoch), provenance="assignment", member=None, process=None)


def test_the_last_partial_description_is_current_until_one_is_pushed() -> None:
    assert [one.is_current for one in read(partial(0), partial(1))] == [False, True]
    assert [one.is_current for one in read(partial(0), fact(1), partial(2))] == [False, True, False]
    deleted = TopologyDeleted(at=5, group="g", incarnation="9f2c")
    assert [one.is_current for one in read(fact(1), deleted, partial(2))] == [False, True]


def test_a_pushed_version_and_a_partial_one_are_not_compared() -> None:
    assert select_version(read(fact(0), partial(1), fact(2)), "previous").fact.epoch == 0
    assert select_version(read(partial(1), partial(2)), "previous").fact.epoch == 1
    with pytest.raises(HeadgateError, match="no version before"):
        select_version(read(partial(0), fact(1)), "previous")
