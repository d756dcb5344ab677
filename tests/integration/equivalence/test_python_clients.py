"""The Python clients see no difference: librdkafka, and two that speak the protocol by themselves."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.equivalence.bench import Bench
from tests.support.clients.jvm import JavaClients

ROOT = Path(__file__).parents[3]


def run_script(module: str, *arguments: str) -> None:
    command = [sys.executable, "-m", f"tests.support.clients.{module}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


# librdkafka works in threads of its own: what its clients send together is not the script's choice.
LARGE_BYTES = 2_400_000  # of the records of the part "large"; 2.3 MB of them were spliced
LIBRDKAFKA = ("admin-producer", "producer", "idempotent", "transactional", "in-transaction", "reader", "classic")


@pytest.mark.usefixtures("java_43")
@pytest.mark.parametrize(
    "parts", [("topics", "cluster"), ("produce", "transactions"), ("classic", "consumer", "share")]
)
def test_confluent_kafka_sees_no_difference(bench: Bench, name: str, parts: Sequence[str]) -> None:
    bench.check(
        lambda bootstrap: run_script("confluent", bootstrap, name, *parts), free=[*LIBRDKAFKA, "consumer", "member"]
    )


@pytest.mark.usefixtures("java_43")
def test_confluent_kafka_sees_no_difference_in_large_fetches_that_are_spliced(bench: Bench, name: str) -> None:
    bench.check_spliced(
        lambda bootstrap: run_script("confluent", bootstrap, name, "large"), free=LIBRDKAFKA, at_least=LARGE_BYTES // 2
    )


@pytest.mark.usefixtures("java_43")
def test_kafka_python_sees_no_difference(bench: Bench, name: str) -> None:
    # A transaction may find the markers of the one before still on their way.
    bench.check(lambda bootstrap: run_script("kafka_python", bootstrap, name), free=["transactional"])


def test_aiokafka_sees_no_difference(bench: Bench, java_43: JavaClients, name: str) -> None:
    def script(bootstrap: str) -> None:
        run_script("aio", bootstrap, name)
        # It cannot delete a group by itself.
        java_43.run("sweep", bootstrap, name, groups=f"{name}-group,{name}-transactions")

    # A transaction may find the markers of the one before still on their way.
    bench.check(script, free=["transactional"])
