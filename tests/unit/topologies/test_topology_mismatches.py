"""When members of a group run different topologies: from what they joined with and pushed, until they agree."""

from headgate.topologies.model.group_members import SESSION_S
from headgate.topologies.model.topology_mismatches import (
    MAX_LISTED,
    REFUSED_S,
    Mismatch,
    MismatchKind,
    SeenMember,
    TopologyMismatches,
)


class Group:
    """One group, and a clock that stands still."""

    def __init__(self, **limits: int) -> None:
        self.all = TopologyMismatches(**limits)
        self.now = 0.0

    def join(
        self, member: str, fingerprint: str, connection: int = 1, *, refused: bool = False, group: str = "g"
    ) -> None:
        seen = SeenMember(
            member=member,
            process=f"process of {member}",
            host=f"host of {member}",
            connection=connection,
            fingerprint=fingerprint,
            is_refused=refused,
        )
        self.all.on_join(group, seen, now=self.now)

    def close(self, connection: int) -> None:
        self.all.close_connection(connection, now=self.now)

    def changes(self) -> list[Mismatch | None]:
        return [change.mismatch for change in self.all.changes(now=self.now)]

    def change(self) -> Mismatch | None:
        [found] = self.changes()
        return found

    def opened(self) -> tuple[MismatchKind, list[tuple[str | None, bool, int]]]:
        found = self.change()
        assert found is not None
        return found.kind, [(side.fingerprint, side.is_refused, side.count) for side in found.sides]


def test_members_that_agree_are_no_mismatch() -> None:
    here = Group()
    here.join("a", "one")
    here.join("b", "one", 2)
    assert here.changes() == []


def test_members_with_different_topologies_are_one_mismatch_until_they_agree() -> None:
    here = Group()
    here.join("a", "one")
    here.join("b", "two", 2)
    assert here.opened() == (MismatchKind.ASSIGNMENT, [("one", False, 1), ("two", False, 1)])
    here.join("c", "two", 3)
    here.join("b", "two", 2)
    assert here.changes() == [], "it is the same mismatch, with one member more"
    here.join("d", "three", 4)
    assert here.opened() == (MismatchKind.ASSIGNMENT, [("one", False, 1), ("three", False, 1), ("two", False, 2)])
    here.all.on_leave("g", "d")
    assert here.opened()[1] == [("one", False, 1), ("two", False, 2)]
    here.join("a", "two")
    assert here.change() is None
    assert here.changes() == []


def test_it_has_members_processes_and_hosts_and_no_more_than_some() -> None:
    here = Group()
    here.join("a", "one")
    for number in range(MAX_LISTED + 5):
        here.join(f"m{number}", "two", number + 2)
    found = here.change()
    assert found is not None
    [first] = found.sides[0].members
    assert (first.member, first.process, first.host) == ("a", "process of a", "host of a")
    assert (found.sides[1].count, len(found.sides[1].members)) == (MAX_LISTED + 5, MAX_LISTED)


def test_a_member_whose_connection_closed_counts_until_its_session_is_over() -> None:
    here = Group()
    here.join("a", "one", 1)
    here.join("b", "two", 2)
    assert here.change() is not None
    here.close(1)
    here.now = SESSION_S - 1
    assert here.changes() == []
    here.now = SESSION_S
    assert here.change() is None


def test_a_member_that_joined_again_on_another_connection_stays() -> None:
    here = Group()
    here.join("a", "one", 1)
    here.join("b", "two", 2)
    assert here.change() is not None
    here.close(1)
    here.join("a", "one", 3)
    here.close(1)
    here.now = 10 * SESSION_S
    assert here.changes() == []


def test_a_refused_member_counts_for_a_time_whatever_becomes_of_its_connection() -> None:
    here = Group()
    here.join("a", "one", 1)
    here.join("b", "two", 2, refused=True)
    assert here.opened() == (MismatchKind.REFUSED, [("one", False, 1), ("two", True, 1)])
    here.close(2)
    here.now = REFUSED_S - 1
    here.join("b", "two", 3, refused=True)  # restarted, and refused again
    assert here.changes() == []
    here.now += REFUSED_S - 1
    assert here.changes() == []
    here.now += 1
    assert here.change() is None


def test_a_refused_member_of_a_group_that_is_not_known_is_a_mismatch_too() -> None:
    here = Group()
    here.join("b", "two", refused=True)
    assert here.opened() == (MismatchKind.REFUSED, [(None, False, 0), ("two", True, 1)])
    here.join("b", "two")
    assert here.change() is None, "it was accepted"


def test_pushed_descriptions_that_differ_are_a_mismatch_although_the_assignments_agree() -> None:
    here = Group()
    for number, member in enumerate("abc"):
        here.join(member, "one", number)
    here.all.on_push("g", "a", "hash 1")
    here.all.on_push("g", "b", "hash 1")
    here.all.on_push("g", "stranger", "hash 9")
    assert here.changes() == []
    here.all.on_push("g", "c", "hash 2")
    assert here.opened() == (MismatchKind.DESCRIPTION, [("hash 1", False, 2), ("hash 2", False, 1)])
    here.all.on_leave("g", "a")
    assert here.changes() == []
    here.all.on_leave("g", "b")
    assert here.change() is None


def test_groups_do_not_mix_and_one_that_is_deleted_ends() -> None:
    here = Group()
    here.join("a", "one")
    here.join("b", "two", 2, group="h")
    assert here.changes() == []
    here.join("c", "two", 3)
    assert here.change() is not None
    here.all.remove_group("g")
    assert here.change() is None
    assert len(here.all) == 1


def test_memory_is_bounded_by_groups_and_by_members_of_a_group() -> None:
    here = Group(max_members=4, max_per_group=3)
    for number in range(5):
        here.join(f"m{number}", str(number), number)
    assert here.opened()[1] == [("2", False, 1), ("3", False, 1), ("4", False, 1)]
    here.join("x", "one", 7, group="h")
    here.join("y", "one", 8, group="h")
    assert len(here.all) == 2
    assert here.changes() == [None], "the group that was heard of longest ago is dropped"
    for number in range(9):
        here.close(number)
    here.now = SESSION_S
    assert here.changes() == []
    assert len(here.all) == 0
