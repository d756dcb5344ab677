"""The pipeline command: its status pages, its signals, and what `headgate dev` repeats of its output."""

import json
import signal
import socket
import urllib.error
import urllib.request

import pytest

from headgate.base.errors import PlatformError
from headgate.cli.dev_pipeline import problems_in
from headgate.cli.main import main
from headgate.cli.pipeline import _Signals, status_pages
from headgate.config.addresses import Address
from headgate.pipeline.run_log import PipelineHealth


@pytest.fixture
def listen() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return Address("127.0.0.1", found.getsockname()[1])


def page(listen: Address, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{listen}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_readiness_is_what_health_says(listen: Address) -> None:
    health = PipelineHealth(["facts"])
    with status_pages(listen, health):
        status, body = page(listen, "/readyz")
        starting = {"ready": False, "problems": {"facts": "is starting"}, "details": {}}
        assert (status, json.loads(body)) == (503, starting)
        health.clear_problem("facts")
        assert page(listen, "/readyz")[0] == 200
        assert "headgate_pipeline_ready 1.0" in page(listen, "/metrics")[1]
        assert page(listen, "/healthz") == (200, "ok\n")
    with pytest.raises(urllib.error.URLError):
        page(listen, "/healthz")


def test_without_an_address_there_are_no_pages() -> None:
    with status_pages(None, PipelineHealth()):
        pass


def test_an_address_that_is_taken_is_told_with_the_option(listen: Address) -> None:
    taken = pytest.raises(PlatformError, match="Choose another --status")
    with socket.create_server(listen), taken, status_pages(listen, PipelineHealth()):
        pass


def test_an_address_that_is_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["pipeline", "run", "--config", "f", "--status", "9405"])
    assert end.value.code == 2
    assert 'must be "HOST:PORT"' in capsys.readouterr().err


def test_dev_repeats_problems_and_no_progress() -> None:
    words = """WARNING: Using incubator modules: jdk.incubator.vector
headgate: facts: batch 12: 3 rows, lag 0, 812 ms
headgate: derived: lineage: 12 rows changed, 812 ms
headgate: derived: derived gaps: the disk is full
headgate: append: the disk is full: make room; the next attempt is in 2 s
spark: ERROR Something: else
headgate: facts: batches are not progress
"""
    assert problems_in(words) == [
        "headgate: derived: derived gaps: the disk is full",
        "headgate: append: the disk is full: make room; the next attempt is in 2 s",
        "headgate: facts: batches are not progress",
    ]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["term", "int"])
def test_a_signal_before_there_is_a_session_ends_the_process_at_once(number: signal.Signals, code: int) -> None:
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        signals = _Signals()
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(number)
        assert ended.value.code == code
        signals.on_session()
        signals.stop.clear()
        signal.raise_signal(number)  # the running batch may end
        assert (signals.stop.is_set(), signals.exit_code) == (True, code)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
