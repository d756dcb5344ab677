"""The table `members_tasks`: which member had which task from where to where, batch by batch."""

from typing import Any

from headgate.facts import HeldTask, MemberTasksEnded, MemberTasksObserved
from headgate.facts.tasks import TaskRole
from tests.pipeline.estate import Estate


def task(partition: int, role: TaskRole = "active", *, subtopology: str = "0", lag: int | None = None) -> HeldTask:
    return HeldTask(subtopology=subtopology, partition=partition, role=role, stores=("counts",), lag=lag)


def held(member: str, *tasks: HeldTask, at: int, host: str = "10.0.0.7") -> MemberTasksObserved:
    return MemberTasksObserved(
        at=at, group="orders", member=member, process=f"p-{member}", client_id="c", host=host, tasks=tasks
    )


def periods(estate: Estate) -> list[tuple[Any, ...]]:
    """Member, task, role, lag, begin and end by the writers' clocks."""
    rows = estate.rows("members_tasks").values()
    names = ("member", "task", "role", "lag", "at")
    found = [(*(row[name] for name in names), row["valid_to"] is None) for row in rows]
    return sorted(found, key=lambda row: (row[0], row[4], row[1]))


def test_tasks_are_valid_from_their_fact_to_the_next_of_the_member(estate: Estate) -> None:
    estate.write(held("a", task(0), task(1, "standby", lag=7), at=10), held("b", task(1), at=11), held("c", at=12))
    assert estate.run()
    assert periods(estate) == [
        ("a", "0_0", "active", None, 10, True),
        ("a", "0_1", "standby", 7, 10, True),
        ("b", "0_1", "active", None, 11, True),
        ("c", "", None, None, 12, True),
    ]
    [row] = [row for row in estate.rows("members_tasks").values() if (row["member"], row["task"]) == ("a", "0_1")]
    assert (row["group"], row["process"], row["host"], row["stores"]) == ("orders", "p-a", "10.0.0.7", '["counts"]')

    # In a later batch: lags alone, a copy, a task that moves, and a member that leaves.
    estate.write(held("a", task(0), task(1, "standby", lag=3), at=20), held("b", task(1), at=21))
    estate.write(held("c", task(1), at=22), MemberTasksEnded(group="orders", member="b"))
    assert estate.run()
    assert periods(estate) == [
        ("a", "0_0", "active", None, 10, True),
        ("a", "0_1", "standby", 7, 10, True),
        ("b", "0_1", "active", None, 11, False),
        ("c", "", None, None, 12, False),
        ("c", "0_1", "active", None, 22, True),
    ]
    [ended] = [row for row in estate.rows("members_tasks").values() if (row["member"], row["task"]) == ("c", "")]
    assert ended["ended_at"] == 22

    # It comes back with what it had.
    estate.write(held("b", task(1), at=31))
    assert estate.run()
    assert [row for row in periods(estate) if row[0] == "b"] == [
        ("b", "0_1", "active", None, 11, False),
        ("b", "0_1", "active", None, 31, True),
    ]
    before = estate.tables(("members_tasks",))
    estate.rebuild("members_tasks")
    assert estate.tables(("members_tasks",)) == before, "rebuild equals incremental"


def test_names_that_clients_choose_survive_batches(estate: Estate) -> None:
    odd = 'quote " \\ \n é😀'
    first = MemberTasksObserved(
        at=1,
        group=odd,
        member=odd,
        process=odd,
        client_id=odd,
        host=odd,
        tasks=(HeldTask(subtopology=odd, partition=0, role="active", stores=(odd, "s")),),
    )
    estate.write(first)
    assert estate.run()
    estate.write(first)  # nothing new, also after it was read from the table
    assert estate.run()
    [row] = estate.rows("members_tasks").values()
    assert (row["group"], row["member"], row["subtopology"], row["valid_to"]) == (odd, odd, odd, None)
