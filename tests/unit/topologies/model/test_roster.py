"""Who was heard in which group: proofs by connection, who is beside whom, and bounds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.topologies.model.roster import Roster


def test_a_heartbeat_proves_its_member_on_its_connection() -> None:
    roster = Roster()
    roster.heard("g", "m", 7, 0.0)
    assert roster.proves(7, "g", "m", 10.0)


def test_it_proves_nothing_on_another_connection_for_another_group_or_member() -> None:
    roster = Roster()
    roster.heard("g", "m", 7, 0.0)
    assert not roster.proves(8, "g", "m", 0.0)
    assert not roster.proves(7, "h", "m", 0.0)
    assert not roster.proves(7, "g", "n", 0.0)


def test_a_proof_ends_with_the_session() -> None:
    roster = Roster(session_s=45.0)
    roster.heard("g", "m", 7, 0.0)
    assert roster.proves(7, "g", "m", 45.0)
    assert not roster.proves(7, "g", "m", 45.1)


def test_a_proof_ends_with_the_connection_and_the_member_lives_on() -> None:
    roster = Roster()
    roster.heard("g", "m", 7, 0.0)
    roster.closed(7)
    assert not roster.proves(7, "g", "m", 1.0)
    assert roster.alive("g", ["m"], 1.0)


def test_a_connection_number_that_is_used_again_proves_nothing() -> None:
    roster = Roster()
    roster.heard("g", "m", 7, 0.0)
    roster.closed(7)
    roster.heard("h", "n", 7, 1.0)
    assert not roster.proves(7, "g", "m", 1.0)


def test_a_member_that_moves_proves_on_its_new_connection_only() -> None:
    roster = Roster()
    roster.heard("g", "m", 7, 0.0)
    roster.heard("g", "m", 8, 1.0)
    roster.closed(7)
    assert not roster.proves(7, "g", "m", 1.0)
    assert roster.proves(8, "g", "m", 1.0)


def test_who_left_is_not_alive() -> None:
    roster = Roster()
    roster.heard("g", "m", 7, 0.0, "p")
    roster.left("g", "m")
    assert not roster.alive("g", ["m"], 0.0)
    assert len(roster) == 0


def test_who_is_fenced_proves_nothing_and_lives_on() -> None:
    roster = Roster()
    roster.heard("g", "m", 7, 0.0)
    roster.fenced("g", "m")
    assert not roster.proves(7, "g", "m", 0.0)
    assert roster.alive("g", ["m"], 0.0)


def test_who_is_refused_on_its_own_connection_proves_nothing_and_lives_on() -> None:
    roster = Roster()
    roster.heard("g", "m", 7, 0.0)
    roster.refused(7, "g", "m")
    assert not roster.proves(7, "g", "m", 0.0)
    assert roster.alive("g", ["m"], 0.0)


def test_a_refusal_on_another_connection_takes_nothing_away() -> None:
    roster = Roster()
    roster.heard("g", "m", 7, 0.0, "p")
    roster.refused(8, "g", "m")
    roster.refused(8, "g", "nobody")
    assert roster.proves(7, "g", "m", 0.0)


def test_a_member_is_beside_another_thread_of_a_process_that_is_here() -> None:
    roster = Roster()
    roster.heard("g", "m", 7, 0.0, "p")
    assert roster.has_beside("g", "new", "p", 1.0)
    assert not roster.has_beside("g", "new", "other", 1.0)
    assert not roster.has_beside("g", "new", None, 1.0)
    assert not roster.has_beside("h", "new", "p", 1.0)


def test_a_member_is_not_beside_itself() -> None:
    roster = Roster()
    roster.heard("g", "m", 7, 0.0, "p")
    assert not roster.has_beside("g", "m", "p", 1.0)


def test_a_process_whose_connections_have_ended_is_not_here() -> None:
    """Kafka Streams keeps its process id over restarts: the same id may be another program."""
    roster = Roster()
    roster.heard("g", "m", 7, 0.0, "p")
    roster.closed(7)
    assert not roster.has_beside("g", "new", "p", 1.0)


def test_a_process_that_fell_silent_is_not_here() -> None:
    roster = Roster(session_s=45.0)
    roster.heard("g", "m", 7, 0.0, "p")
    assert not roster.has_beside("g", "new", "p", 46.0)


def test_the_process_that_a_join_told_is_kept_through_heartbeats_that_do_not() -> None:
    roster = Roster()
    roster.heard("g", "m", 7, 0.0, "p")
    roster.heard("g", "m", 7, 1.0)
    assert roster.process_of("g", "m") == "p"


def test_in_a_group_that_is_too_large_the_member_that_was_silent_longest_goes() -> None:
    roster = Roster(most_of_a_group=2)
    for now, member in enumerate(("a", "b", "a", "c")):
        roster.heard("g", member, 7, float(now))
    assert not roster.alive("g", ["b"], 3.0)
    assert roster.proves(7, "g", "a", 3.0)
    assert len(roster) == 2


def test_over_all_the_group_that_was_silent_longest_goes() -> None:
    roster = Roster(most=3)
    for now, group in enumerate(("g", "h", "i", "g", "j")):
        roster.heard(group, "m", 7, float(now))
    assert len(roster) == 3
    assert not roster.alive("h", ["m"], 5.0)


EVENTS = st.tuples(
    st.sampled_from(["heard", "left", "fenced", "closed", "forget"]),
    st.sampled_from("gh"),
    st.sampled_from("abc"),
    st.integers(0, 2),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_any_history_leaves_what_a_plain_list_of_it_says(events: list[tuple[str, str, str, int]]) -> None:
    roster = Roster()
    plain: dict[tuple[str, str], int | None] = {}
    for now, (event, group, member, connection) in enumerate(events):
        match event:
            case "heard":
                roster.heard(group, member, connection, float(now))
                plain[group, member] = connection
            case "left":
                roster.left(group, member)
                plain.pop((group, member), None)
            case "fenced":
                roster.fenced(group, member)
                if (group, member) in plain:
                    plain[group, member] = None
            case "closed":
                roster.closed(connection)
                plain = {key: None if at == connection else at for key, at in plain.items()}
            case "forget":
                roster.forget(group)
                plain = {key: at for key, at in plain.items() if key[0] != group}
    assert len(roster) == len(plain)
    for group in "gh":
        for member in "abc":
            assert roster.alive(group, [member], float(len(events))) == ((group, member) in plain)
            for connection in range(3):
                proven = plain.get((group, member)) == connection
                assert roster.proves(connection, group, member, float(len(events))) == proven
    assert sum(map(len, roster._connections.values())) == sum(at is not None for at in plain.values())
