"""A real Connect worker in distributed mode with a FileStream source and sink, in a process of its own."""

import http.client
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headgate.kafka.java import class_path, find_java

_LOG4J = Path(__file__).with_name("log4j2.xml")
_DEADLINE_S = 60.0
_HOST = "127.0.0.1"


class ConnectError(AssertionError):
    """The worker did not do what it was asked to do."""


def copy_lines(bootstrap: str, name: str, folder: Path, rest_port: int) -> None:
    """Start a worker, copy the lines of a file through a topic into another file, and end it."""
    lines = [f"line {number}" for number in range(20)]
    source, sink = folder / "source.txt", folder / "sink.txt"
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    sink.unlink(missing_ok=True)
    worker = _start(bootstrap, name, folder, rest_port)
    try:
        _await("the worker", lambda: _ask(rest_port, "GET", "/connectors") == [], worker)
        common = {"tasks.max": "1", "key.converter": _STRINGS, "value.converter": _STRINGS}
        file_stream = "org.apache.kafka.connect.file.FileStream"
        _ask(
            rest_port,
            "PUT",
            f"/connectors/{name}-source/config",
            {
                **common,
                "connector.class": f"{file_stream}SourceConnector",
                "file": str(source),
                "topic": f"{name}.lines",
            },
        )
        _ask(
            rest_port,
            "PUT",
            f"/connectors/{name}-sink/config",
            {**common, "connector.class": f"{file_stream}SinkConnector", "file": str(sink), "topics": f"{name}.lines"},
        )
        _await("the lines", lambda: sink.exists() and sink.read_text("utf-8").splitlines() == lines, worker)
        _await("the active topics", lambda: _active_topics(rest_port, name) == {f"{name}.lines"}, worker)
        for connector in ("source", "sink"):
            _ask(rest_port, "DELETE", f"/connectors/{name}-{connector}")
        _await("no connector", lambda: _ask(rest_port, "GET", "/connectors") == [], worker)
        worker.terminate()
        worker.wait(_DEADLINE_S)
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()


_STRINGS = "org.apache.kafka.connect.storage.StringConverter"


def _active_topics(rest_port: int, name: str) -> set[str]:
    """What both connectors have used by now (KIP-558)."""
    used = [_ask(rest_port, "GET", f"/connectors/{name}-{one}/topics") for one in ("source", "sink")]
    topics = [set(answer[f"{name}-{one}"]["topics"]) for answer, one in zip(used, ("source", "sink"), strict=True)]
    return topics[0] & topics[1]


def _start(bootstrap: str, name: str, folder: Path, rest_port: int) -> subprocess.Popen[bytes]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": name,
        "listeners": f"http://{_HOST}:{rest_port}",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
    }
    for what, topic in (("config", "configs"), ("offset", "offsets"), ("status", "status")):
        settings |= {f"{what}.storage.topic": f"{name}.{topic}", f"{what}.storage.replication.factor": "1"}
    file = folder / "worker.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    command: list[str | Path] = [
        find_java().command,
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={_LOG4J}",
        "-cp",
        class_path("broker"),
        "org.apache.kafka.connect.cli.ConnectDistributed",
        file,
    ]
    with (folder / "worker.log").open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _ask(rest_port: int, method: str, path: str, body: object = None) -> Any:
    """The answer of a call that the worker may refuse for a while, because the group is not settled yet."""
    until = time.monotonic() + _DEADLINE_S
    while True:
        connection = http.client.HTTPConnection(_HOST, rest_port, timeout=_DEADLINE_S)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
            status = answer.status
        except ConnectionError:
            status, content = 503, b"not listening"
        finally:
            connection.close()
        if status < 400:
            return json.loads(content or b"null")
        if status not in {404, 409, 500, 503} or time.monotonic() > until:
            raise ConnectError(f"{method} {path}: {status} {content.decode(errors='replace')}")
        time.sleep(0.1)


def _await(what: str, reached: Callable[[], bool], worker: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _DEADLINE_S
    while not reached():
        if worker.poll() is not None:
            raise ConnectError(f"the worker ended with exit code {worker.returncode} before {what}")
        if time.monotonic() > until:
            raise ConnectError(f"waited {_DEADLINE_S:.0f} s for {what}")
        time.sleep(0.05)
