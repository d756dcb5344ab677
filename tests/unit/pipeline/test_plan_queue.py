"""The queue of requests for plans: what is made, what is refused, and what an ended pipeline leaves."""

import threading
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headgate.base.clock import SystemClock
from headgate.config import Config
from headgate.facts.plan_requests import REQUEST_LIFE_MS, PlanAnswered, PlanRequested, PlanRequestState
from headgate.pipeline import plan_requests
from headgate.pipeline.plan_requests import MOST_WAITING, PlanQueue, PlanRequests

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
