"""Applications that run by themselves, Streams and Connect, work alike with the gateway and without it."""

from pathlib import Path

import pytest

from tests.integration.equivalence.bench import Bench
from tests.support.clients.connect import copy_lines
from tests.support.clients.jvm import JavaClients


@pytest.mark.parametrize("scenario", ["streams-classic", "streams", "streams-exactly-once"])
def test_a_streams_application_sees_no_difference(
    bench: Bench, java_43: JavaClients, name: str, tmp_path: Path, scenario: str
) -> None:
    bench.check(lambda bootstrap: java_43.run(scenario, bootstrap, name, folder=tmp_path), free=["app"])


def test_a_connect_worker_sees_no_difference(bench: Bench, java_43: JavaClients, name: str, tmp_path: Path) -> None:
    def script(bootstrap: str) -> None:
        java_43.run("connect-input", bootstrap, name)
        copy_lines(bootstrap, name, tmp_path, bench.free_port)
        java_43.run("connect-clean", bootstrap, name)

    bench.check(
        script,
        free=[name, "connect"],
        # A worker writes its state as often as it finds it changed.
        unordered=[f"{name}.configs", f"{name}.offsets", f"{name}.status"],
    )
