"""Why a node ended is told in the words of its log."""

import signal
from pathlib import Path

import pytest

from headgate.base.ids import NodeId
from headgate.embedded.node import NodeDeath, fault, setting_refused

START = "2026-11-15 10:24:43,816 INFO [main] AppInfoParser: Kafka version: 4.3.1"
EXITING = "2026-11-15 10:24:44,100 ERROR [main] Kafka$: Exiting Kafka due to fatal exception"
CONFIG = "org.apache.kafka.common.config.ConfigException: Invalid value zip for configuration compression.type: no"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], ""),
        ([START], ""),
        ([START, EXITING, CONFIG, "\tat a.B.c(B.java:1)"], "Invalid value zip for configuration compression.type: no"),
        ([EXITING, "java.lang.ClassNotFoundException: nope.Nope"], "ClassNotFoundException: nope.Nope"),
        ([EXITING, "java.lang.OutOfMemoryError"], "OutOfMemoryError"),
        ([EXITING, START], "Exiting Kafka due to fatal exception"),
        (['Exception in thread "main" ' + CONFIG], "Invalid value zip for configuration compression.type: no"),
        ([EXITING, CONFIG, EXITING.replace("Exiting", "Later")], "Later Kafka due to fatal exception"),
    ],
)
def test_the_last_error_is_the_reason(lines: list[str], reason: str) -> None:
    assert fault(lines) == reason


@pytest.mark.parametrize(
    ("line", "refused"), [(CONFIG, True), ("requirement failed: x must be at least 1", True), (EXITING, False)]
)
def test_a_refused_setting_is_known_by_how_kafka_says_it(line: str, refused: bool) -> None:
    assert setting_refused([START, line]) is refused


@pytest.mark.parametrize(
    ("code", "how"), [(1, "ended with code 1"), (-signal.SIGKILL, "was ended by SIGKILL"), (0, "ended with code 0")]
)
def test_a_death_says_how_why_and_where_to_look(code: int, how: str) -> None:
    death = NodeDeath(node=NodeId(2), exit_code=code, log=Path("/logs/node-2.log"), reason="because", tail=())
    assert str(death) == f"Kafka node 2 {how}: because; its log is /logs/node-2.log"
