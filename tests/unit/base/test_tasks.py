"""Background tasks are reported, retried and ended by their owner."""

import asyncio
from collections.abc import Iterator

from headgate.base.tasks import TaskSet, retry, run_forever


async def test_a_task_that_fails_is_reported_once_and_one_that_is_cancelled_is_not() -> None:
    failures: list[BaseException] = []
    tasks = TaskSet(failures.append)

    async def fail() -> None:
        raise OSError("no disk")

    tasks.spawn(fail())
    waiting = tasks.spawn(asyncio.Event().wait())
    assert len(tasks) == 2
    await asyncio.sleep(0)
    await tasks.cancel_all()
    assert waiting.cancelled()
    assert [str(failure) for failure in failures] == ["no disk"]
    assert not len(tasks)


async def test_tasks_may_end_by_themselves_within_the_grace_period() -> None:
    tasks = TaskSet(lambda _: None)
    done = tasks.spawn(asyncio.sleep(0.01, "done"))
    await tasks.cancel_all(grace_s=10)
    assert done.result() == "done"


async def test_who_joins_waits_for_tasks_that_others_start_and_a_failure_is_reported_and_not_raised() -> None:
    failures: list[BaseException] = []
    tasks = TaskSet(failures.append)
    ended: list[str] = []

    async def end_later(name: str) -> None:
        await asyncio.sleep(0.01)
        ended.append(name)

    async def start_another() -> None:
        await asyncio.sleep(0.01)
        tasks.spawn(end_later("second"))
        raise OSError("no disk")

    tasks.spawn(start_another())
    await tasks.join()
    assert ended == ["second"]
    assert [str(failure) for failure in failures] == ["no disk"]
    await tasks.join()


async def test_an_attempt_is_repeated_until_it_succeeds_and_a_problem_is_reported_when_it_changes() -> None:
    outcomes: Iterator[Exception | int] = iter([OSError("away"), OSError("away"), ValueError(), OSError("away"), 7])
    problems: list[str] = []

    async def attempt() -> int:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert await retry(attempt, pause_s=0, on_problem=problems.append) == 7
    assert problems == ["away", "ValueError()", "away"]


async def test_work_that_runs_forever_is_run_again_after_it_failed() -> None:
    failures: list[BaseException] = []
    runs = 0
    third = asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise OSError("away")
        if runs == 3:
            third.set()
            await asyncio.Event().wait()

    tasks = TaskSet(failures.append)
    tasks.spawn(run_forever(work, pause_s=0, on_failure=failures.append))
    await third.wait()
    await tasks.cancel_all()
    assert len(failures) == 1
