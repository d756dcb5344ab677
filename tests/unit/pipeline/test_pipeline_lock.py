"""The lock of a pipeline on an object store: one holder, takeover of a killed one, and the news of a loss."""

import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from headgate.base.errors import PlatformError, UsageError
from headgate.base.locations import ObjectLocation
from headgate.pipeline.pipeline_lock import ObjectLock
from headgate.tables.files import has_file
from headgate.tables.object_store import put_object, read_object
from tests.support.object_stores import Application, moto_server

pytestmark = pytest.mark.object_store

RENEW_S, EXPIRES_S = 0.05, 2.0


@pytest.fixture(scope="module")
def root() -> Iterator[ObjectLocation]:
    with moto_server() as server:
        yield server.new_location()


class Losses:
    """What a holder was told, and an event for it."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.event = threading.Event()

    def __call__(self, what: str) -> None:
        self.told.append(what)
        self.event.set()


class Hanging:
    """A store that takes requests, and answers them while `answers` is set."""

    def __init__(self, store: Application, answers: threading.Event) -> None:
        self._store = store
        self._answers = answers

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self._answers.wait(60)
        return self._store(environ, start_response)


def lock(location: ObjectLocation, losses: Losses | None = None, expires_s: float = EXPIRES_S) -> ObjectLock:
    return ObjectLock(location, losses or Losses(), renew_s=RENEW_S, expires_s=expires_s)


def test_a_second_pipeline_is_refused_while_the_first_renews(root: ObjectLocation) -> None:
    location = root / "one" / "lock"
    taken = pytest.raises(UsageError, match=r"another pipeline uses s3://lake/.*/one: stop it")
    with lock(location).held(), taken, lock(location).held():
        pytest.fail("both hold it")
    assert not has_file(location)
    with lock(location).held():
        assert has_file(location)


def test_the_lock_of_a_killed_pipeline_is_taken_over(root: ObjectLocation) -> None:
    location = root / "killed" / "lock"
    put_object(location, b'{"owner": "gone"}')
    with lock(location).held():
        assert has_file(location)


def test_a_holder_that_was_taken_over_is_told_and_leaves_the_lock_alone(root: ObjectLocation) -> None:
    location = root / "taken" / "lock"
    losses = Losses()
    with lock(location, losses).held():
        put_object(location, b'{"owner": "another"}')
        assert losses.event.wait(10)
    assert "was taken over by another pipeline" in losses.told[0]
    assert has_file(location)


def test_a_holder_that_ends_before_it_is_told_leaves_the_lock_alone(root: ObjectLocation) -> None:
    location = root / "late" / "lock"
    with ObjectLock(location, Losses(), renew_s=60).held():
        put_object(location, b'{"owner": "another"}')
    assert has_file(location)


def test_a_holder_goes_on_when_the_store_was_away(root: ObjectLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    location = root / "away" / "lock"
    losses, tries = Losses(), threading.Semaphore(0)

    def fail(*_: object, **__: object) -> None:
        tries.release()
        raise PlatformError("the store is away")

    with lock(location, losses, expires_s=20).held():
        with monkeypatch.context() as patch:
            patch.setattr("headgate.pipeline.pipeline_lock.replace_object", fail)
            assert all(tries.acquire(timeout=10) for _ in range(3))
        before = read_object(location)[1]
        until = time.monotonic() + 10
        while read_object(location)[1] == before:
            assert time.monotonic() < until
    assert not losses.told


def test_a_holder_gives_up_before_a_lock_expires_that_it_cannot_renew() -> None:
    losses, answers = Losses(), threading.Event()
    answers.set()
    with (
        moto_server(lambda store: Hanging(store, answers)) as server,
        lock(server.new_location() / "lock", losses).held(),
    ):
        began = time.monotonic()
        answers.clear()
        try:
            assert losses.event.wait(20)
            took_s = time.monotonic() - began
        finally:
            answers.set()
    assert took_s < EXPIRES_S
    assert "could not be renewed for" in losses.told[0]
