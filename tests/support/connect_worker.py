"""A real Connect worker in distributed mode, in its own process."""

import http.client
import json
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from headgate.embedded.java import archive_of, archive_options, class_path, find_java

_LOG4J = Path(__file__).with_name("clients") / "log4j2.xml"
_DEADLINE_S = 60.0
_HOST = "127.0.0.1"


class ConnectError(AssertionError):
    """A request to the worker failed."""


class ConnectWorker:
    """Started when it is created; workers with the same `group` are one Connect cluster."""

    def __init__(
        self, bootstrap: str, group: str, folder: Path, rest_port: int, settings: Mapping[str, str] | None = None
    ) -> None:
        self.group = group
        self.url = f"http://{_HOST}:{rest_port}"
        self._rest_port = rest_port
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "worker.log"
        keys = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "listeners": self.url,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
            "offset.storage.partitions": "1",
            "status.storage.topic": self.status_topic,
            "config.storage.topic": self.config_topic,
            "offset.storage.topic": f"{group}.offsets",
            **{f"{what}.storage.replication.factor": "1" for what in ("config", "offset", "status")},
            **(settings or {}),
        }
        file = folder / "worker.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()), encoding="utf-8")
        command: list[str | Path] = [
            find_java().command,
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *archive_options(archive_of("broker")),
            f"-Dlog4j2.configurationFile={_LOG4J}",
            "-cp",
            class_path("broker"),
            "org.apache.kafka.connect.cli.ConnectDistributed",
            file,
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def status_topic(self) -> str:
        return f"{self.group}.status"

    @property
    def config_topic(self) -> str:
        return f"{self.group}.configs"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End it as an operator does."""
        self._process.terminate()
        self._process.wait(_DEADLINE_S)

    def wait(self) -> None:
        """Wait until it is a member of its group and responds."""
        self.until("the worker", lambda: isinstance(self.ask("GET", "/connectors"), list))

    def put(self, connector: str, config: Mapping[str, str]) -> None:
        """Create or reconfigure a connector."""
        self.ask("PUT", f"/connectors/{quote(connector, safe='')}/config", config)

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """One request: its status, and its JSON, text or None. 503 if the worker does not listen yet."""
        connection = http.client.HTTPConnection(_HOST, self._rest_port, timeout=_DEADLINE_S)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read().decode()
            # Errors of Connect are JSON without a content type; those of Jetty, before it is ready, are HTML.
            return answer.status, json.loads(content) if content.startswith(("{", "[")) else content or None
        except ConnectionError:
            return 503, None
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Repeat a request that the worker may refuse while its group rebalances."""
        by = time.monotonic() + _DEADLINE_S
        while True:
            status, answer = self.call(method, path, body)
            if status < 400:
                return answer
            if status not in {404, 409, 500, 503} or time.monotonic() > by:
                raise ConnectError(f"{method} {path}: {status} {answer}")
            time.sleep(0.1)

    def until(self, what: str, reached: Callable[[], bool]) -> None:
        by = time.monotonic() + _DEADLINE_S
        while not reached():
            if self._process.poll() is not None:
                raise ConnectError(f"the worker ended with exit code {self._process.returncode} before {what}")
            if time.monotonic() > by:
                raise ConnectError(f"waited {_DEADLINE_S:.0f} s for {what}")
            time.sleep(0.05)
