"""The queue of requests for plans: what is made, what is refused, and what an ended pipeline leaves."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headgate.base.clock import SystemClock
from headgate.base.errors import ClusterError
from headgate.config import Config
from headgate.config.model import TablesConfig
from headgate.dead_letters.plan_store import tables_id
from headgate.facts.plan_requests import REQUEST_LIFE_MS, PlanAnswered, PlanRequested, PlanRequestState
from headgate.kafka.topics import TopicListing
from headgate.pipeline import plan_requests
from headgate.pipeline.plan_requests import MOST_WAITING, PlanCancelledError, PlanQueue, PlanRequests
from tests.unit.lineage.shop import write

NOW = 1794731901727


def request(name: str, at: int = NOW) -> PlanRequested:
    return PlanRequested(at=at, request=name, by="ops", group="sg", to="original")


def answer(name: str, state: PlanRequestState) -> PlanAnswered:
    return PlanAnswered(at=NOW, request=name, state=state, plan="p" if state == "DONE" else None)


def filled(*records: PlanRequested | PlanAnswered) -> PlanQueue:
    queue = PlanQueue()
    for record in records:
        queue.take(record)
    return queue


def test_requests_are_made_in_their_order_until_their_final_answer() -> None:
    queue = filled(request("a"), request("b"), request("c"), answer("a", "DONE"), answer("b", "WAITING"))
    assert [one.request for one in queue.waiting()] == ["b", "c"]
    assert queue.interrupted() == []
    finals: dict[str, PlanRequestState] = {"b": "REFUSED", "c": "FAILED"}
    for name, state in finals.items():
        queue.take(answer(name, state))
    assert queue.waiting() == []


def test_what_an_ended_pipeline_was_making_is_not_made_again() -> None:
    queue = filled(request("a"), answer("a", "RUNNING"), request("b"))
    assert [one.request for one in queue.interrupted()] == ["a"]
    assert [one.request for one in queue.waiting()] == ["b"]


def test_a_request_that_came_twice_is_made_once() -> None:
    queue = filled(request("a"), replace(request("a"), to="elsewhere"))
    assert [(one.request, one.to) for one in queue.waiting()] == [("a", "original")]


def test_old_requests_fail_and_too_many_are_refused() -> None:
    old = request("old", NOW - REQUEST_LIFE_MS - 1)
    queue = filled(request("running"), answer("running", "RUNNING"), old)
    [refusal] = queue.refusals(NOW)
    assert (refusal.request, refusal.state) == ("old", "FAILED")
    queue.take(refusal)
    for number in range(MOST_WAITING + 2):
        queue.take(request(f"r{number}"))
    refused = queue.refusals(NOW)
    assert [(one.request, one.state) for one in refused] == [
        (f"r{number}", "REFUSED") for number in (MOST_WAITING, MOST_WAITING + 1)
    ]


def test_a_request_that_is_forged_does_not_stay_for_ever() -> None:
    old = NOW - REQUEST_LIFE_MS - 1
    queue = filled(request("ours", old), answer("ours", "RUNNING"), request("forged", old), answer("forged", "RUNNING"))
    queue.take(request("ahead", NOW + REQUEST_LIFE_MS + 1))
    assert [(one.request, one.state) for one in queue.refusals(NOW, "ours")] == [
        ("forged", "FAILED"),
        ("ahead", "FAILED"),
    ]


def test_a_flood_of_requests_takes_bounded_memory() -> None:
    queue = filled(*(request(f"r{number}") for number in range(1_500)))
    assert len(queue.waiting()) == 1_000


def test_an_unexpected_error_does_not_end_the_making_of_plans(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = threading.Event()
    asked: list[Any] = []

    class Broken:
        def ids(self, topics: list[str]) -> dict[str, str]:
            asked.append(topics)
            if len(asked) == 2:
                stop.set()
            raise RuntimeError("an error of a library")

    monkeypatch.setattr(plan_requests, "TopicAdmin", lambda _settings: Broken())
    monkeypatch.setattr(plan_requests, "_RETRY_S", 0)
    session: SparkSession = object()  # type: ignore[assignment]  # never reached
    PlanRequests(Config(), session, SystemClock()).run(stop)
    assert len(asked) == 2
    assert capsys.readouterr().err.count("an error of a library") == 1


class FakeProgress:
    """Records of the topic to read, and the answers that were written."""

    def __init__(self, *records: PlanRequested) -> None:
        self.records = list(records)
        self.answers: list[PlanAnswered] = []

    def poll(self, _timeout_s: float) -> list[PlanRequested]:
        found, self.records = self.records, []
        return found

    def write(self, answer: PlanAnswered) -> None:
        self.answers.append(answer)


class FakeSession:
    """Spark without jobs: what a request waits for here is not Spark."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_, **__: self

    @property
    def sparkContext(self) -> "FakeSession":  # noqa: N802 - as Spark names it
        return self


def new_requests(tables: Path) -> PlanRequests:
    session: Any = FakeSession()
    return PlanRequests(Config(tables=TablesConfig(path=tables)), session, SystemClock())


def test_a_request_that_names_other_tables_is_left_to_the_pipeline_that_has_them(tmp_path: Path) -> None:
    write(tmp_path / "own", "dead_letters", [])
    write(tmp_path / "others", "dead_letters", [])
    own, others = tables_id(tmp_path / "own"), tables_id(tmp_path / "others")
    assert (tables_id(tmp_path / "nowhere"), own == others) == (None, False)
    reader: Any = FakeProgress(
        replace(request("a"), tables=others), replace(request("b"), tables=own), replace(request("c"), tables=None)
    )
    requests = new_requests(tmp_path / "own")
    requests._take(reader)
    assert [one.request for one in requests._queue.waiting()] == ["b", "c"]


def test_a_plan_that_waits_for_a_transaction_of_a_replay_ends_with_the_pipeline_and_its_requester_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    waits = threading.Event()

    def wait_for_transaction(*_: Any, is_stopped: Callable[[], bool]) -> None:
        waits.set()
        until = time.monotonic() + 30
        while not is_stopped() and time.monotonic() < until:
            time.sleep(0.01)
        raise ClusterError("reading was stopped")

    monkeypatch.setattr(plan_requests, "list_topics", lambda _settings: TopicListing(cluster="c", topics={}))
    monkeypatch.setattr(plan_requests, "refresh_audit", wait_for_transaction)
    requests = new_requests(tmp_path)
    requests._queue.take(request("a", SystemClock().epoch_ms()))
    progress: Any = FakeProgress()
    with ThreadPoolExecutor(1) as maker:
        requests._advance(maker, progress)
        assert waits.wait(20)
        began = time.monotonic()
        requests._end_making(progress)
        assert time.monotonic() - began < 5
    assert [one.state for one in progress.answers][-1] == "FAILED"
    assert "the pipeline was stopped while it made the plan" in progress.answers[-1].text
    with pytest.raises(PlanCancelledError):
        requests._tell("another step")
