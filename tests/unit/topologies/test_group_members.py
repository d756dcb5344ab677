"""Who was heard in which group: proofs by connection, who is beside whom, and bounds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.topologies.model.group_members import GroupMembers


def test_a_heartbeat_proves_its_member_on_its_connection() -> None:
    members = GroupMembers()
    members.record_heartbeat("g", "m", 7, 0.0)
    assert members.is_proven(7, "g", "m", 10.0)


def test_it_proves_nothing_on_another_connection_for_another_group_or_member() -> None:
    members = GroupMembers()
    members.record_heartbeat("g", "m", 7, 0.0)
    assert not members.is_proven(8, "g", "m", 0.0)
    assert not members.is_proven(7, "h", "m", 0.0)
    assert not members.is_proven(7, "g", "n", 0.0)


def test_a_proof_ends_with_the_session() -> None:
    members = GroupMembers(session_s=45.0)
    members.record_heartbeat("g", "m", 7, 0.0)
    assert members.is_proven(7, "g", "m", 45.0)
    assert not members.is_proven(7, "g", "m", 45.1)


def test_a_proof_ends_with_the_connection_and_the_member_lives_on() -> None:
    members = GroupMembers()
    members.record_heartbeat("g", "m", 7, 0.0)
    members.close_connection(7)
    assert not members.is_proven(7, "g", "m", 1.0)
    assert members.is_any_alive("g", ["m"], 1.0)


def test_a_connection_number_that_is_used_again_proves_nothing() -> None:
    members = GroupMembers()
    members.record_heartbeat("g", "m", 7, 0.0)
    members.close_connection(7)
    members.record_heartbeat("h", "n", 7, 1.0)
    assert not members.is_proven(7, "g", "m", 1.0)


def test_a_member_that_moves_proves_on_its_new_connection_only() -> None:
    members = GroupMembers()
    members.record_heartbeat("g", "m", 7, 0.0)
    members.record_heartbeat("g", "m", 8, 1.0)
    members.close_connection(7)
    assert not members.is_proven(7, "g", "m", 1.0)
    assert members.is_proven(8, "g", "m", 1.0)


def test_a_member_that_left_is_not_alive() -> None:
    members = GroupMembers()
    members.record_heartbeat("g", "m", 7, 0.0, "p")
    members.remove("g", "m")
    assert not members.is_any_alive("g", ["m"], 0.0)
    assert len(members) == 0


def test_a_fenced_member_proves_nothing_and_is_alive() -> None:
    members = GroupMembers()
    members.record_heartbeat("g", "m", 7, 0.0)
    members.fence("g", "m")
    assert not members.is_proven(7, "g", "m", 0.0)
    assert members.is_any_alive("g", ["m"], 0.0)


def test_a_member_without_read_on_its_connection_proves_nothing_and_is_alive() -> None:
    members = GroupMembers()
    members.record_heartbeat("g", "m", 7, 0.0)
    members.revoke(7, "g", "m")
    assert not members.is_proven(7, "g", "m", 0.0)
    assert members.is_any_alive("g", ["m"], 0.0)


def test_a_refusal_on_another_connection_takes_nothing_away() -> None:
    members = GroupMembers()
    members.record_heartbeat("g", "m", 7, 0.0, "p")
    members.revoke(8, "g", "m")
    members.revoke(8, "g", "nobody")
    assert members.is_proven(7, "g", "m", 0.0)


def test_a_member_is_beside_another_thread_of_a_process_that_is_here() -> None:
    members = GroupMembers()
    members.record_heartbeat("g", "m", 7, 0.0, "p")
    assert members.has_other_of_process("g", "new", "p", 1.0)
    assert not members.has_other_of_process("g", "new", "other", 1.0)
    assert not members.has_other_of_process("g", "new", None, 1.0)
    assert not members.has_other_of_process("h", "new", "p", 1.0)


def test_a_member_is_not_beside_itself() -> None:
    members = GroupMembers()
    members.record_heartbeat("g", "m", 7, 0.0, "p")
    assert not members.has_other_of_process("g", "m", "p", 1.0)


def test_a_process_whose_connections_have_ended_is_not_here() -> None:
    """Kafka Streams keeps its process id over restarts: the same id may be another program."""
    members = GroupMembers()
    members.record_heartbeat("g", "m", 7, 0.0, "p")
    members.close_connection(7)
    assert not members.has_other_of_process("g", "new", "p", 1.0)


def test_a_process_that_fell_silent_is_not_here() -> None:
    members = GroupMembers(session_s=45.0)
    members.record_heartbeat("g", "m", 7, 0.0, "p")
    assert not members.has_other_of_process("g", "new", "p", 46.0)


def test_the_process_of_a_join_is_kept_through_heartbeats_without_one() -> None:
    members = GroupMembers()
    members.record_heartbeat("g", "m", 7, 0.0, "p")
    members.record_heartbeat("g", "m", 7, 1.0)
    assert members.process_of("g", "m") == "p"


def test_in_a_group_that_is_too_large_the_member_that_was_silent_longest_goes() -> None:
    members = GroupMembers(max_per_group=2)
    for now, member in enumerate(("a", "b", "a", "c")):
        members.record_heartbeat("g", member, 7, float(now))
    assert not members.is_any_alive("g", ["b"], 3.0)
    assert members.is_proven(7, "g", "a", 3.0)
    assert len(members) == 2


def test_over_all_the_group_that_was_silent_longest_goes() -> None:
    members = GroupMembers(max_members=3)
    for now, group in enumerate(("g", "h", "i", "g", "j")):
        members.record_heartbeat(group, "m", 7, float(now))
    assert len(members) == 3
    assert not members.is_any_alive("h", ["m"], 5.0)


EVENTS = st.tuples(
    st.sampled_from(["heard", "left", "fenced", "closed", "forget"]),
    st.sampled_from("gh"),
    st.sampled_from("abc"),
    st.integers(0, 2),
)


@settings(max_examples=200)
@given(st.lists(EVENTS, max_size=40))
def test_any_history_leaves_what_a_plain_list_of_it_says(events: list[tuple[str, str, str, int]]) -> None:
    members = GroupMembers()
    plain: dict[tuple[str, str], int | None] = {}
    for now, (event, group, member, connection) in enumerate(events):
        match event:
            case "heard":
                members.record_heartbeat(group, member, connection, float(now))
                plain[group, member] = connection
            case "left":
                members.remove(group, member)
                plain.pop((group, member), None)
            case "fenced":
                members.fence(group, member)
                if (group, member) in plain:
                    plain[group, member] = None
            case "closed":
                members.close_connection(connection)
                plain = {key: None if at == connection else at for key, at in plain.items()}
            case "forget":
                members.remove_group(group)
                plain = {key: at for key, at in plain.items() if key[0] != group}
    assert len(members) == len(plain)
    for group in "gh":
        for member in "abc":
            assert members.is_any_alive(group, [member], float(len(events))) == ((group, member) in plain)
            for connection in range(3):
                proven = plain.get((group, member)) == connection
                assert members.is_proven(connection, group, member, float(len(events))) == proven
    assert sum(map(len, members._connections.values())) == sum(at is not None for at in plain.values())
