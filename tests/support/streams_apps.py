"""Stock Kafka Streams 4.3.1: its word count demos and StreamsGroupCommand, each in a process of its own."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.embedded.java import archive_of, archive_options, class_path, find_java
from tests.support.cluster import Cluster, start_test_cluster
from tests.support.topics import create_topics

WORDS_IN, COUNTS_OUT = "streams-plaintext-input", "streams-wordcount-output"
_LOG4J = Path(__file__).parent / "clients" / "log4j2.xml"
_DEADLINE_S = 120.0


def _java(main: str, *arguments: str) -> list[str]:
    return [
        str(find_java().command),
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *map(str, archive_options(archive_of("broker"))),
        f"-Dlog4j2.configurationFile={_LOG4J}",
        "-cp",
        class_path("broker"),
        main,
        *arguments,
    ]


@contextmanager
def words_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with the topics of the demos, whose members beat often."""
    settings = {"group.streams.heartbeat.interval.ms": "200"}
    with start_test_cluster(tmp_path_factory, settings=settings) as running:
        create_topics(running, [WORDS_IN, COUNTS_OUT], partitions=2)
        yield running


@contextmanager
def word_count_demo(
    bootstrap: str, group: str, folder: Path, *, protocol: str = "streams", demo: str = "WordCountDemo", **more: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """The demo from its start to the end of the block; it leaves its group. It may end only if a test waited for it.

    `WordCountProcessorDemo` counts the words of the same topic with another topology.
    """
    settings = {
        "application.id": group,
        "bootstrap.servers": bootstrap,
        "group.protocol": protocol,
        "client.id": "demo",
        "state.dir": str(folder / "state"),
        "replication.factor": "1",
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "demo.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    with (folder / "demo.log").open("ab") as log:
        process = subprocess.Popen(
            _java(f"org.apache.kafka.streams.examples.wordcount.{demo}", str(file)), stdout=log, stderr=log
        )
    try:
        yield process
        if process.returncode is None:
            assert process.poll() is None, (folder / "demo.log").read_text(encoding="utf-8")
            process.terminate()
        process.wait(_DEADLINE_S)
    finally:
        process.kill()
        process.wait()


def streams_groups(bootstrap: str, *arguments: str) -> str:
    """What `kafka-streams-groups.sh` of 4.3.1 prints, errors too."""
    command = _java("org.apache.kafka.tools.streams.StreamsGroupCommand", "--bootstrap-server", bootstrap, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    return done.stdout + done.stderr
