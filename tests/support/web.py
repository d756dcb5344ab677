"""The web under test: `headgate web` as an operator runs it, in a process of its own."""

import http.client
import json
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support.gateway import HEADGATE
from tests.support.ports import port_block

_STOP_S, _CALL_S = 30.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """`token` is sent along with every call; a test may kill the `process`."""

    port: int
    log: Path
    process: subprocess.Popen[str]
    token: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def call(
        self, method: str, path: str, *, token: str | None = None, document: dict[str, Any] | None = None
    ) -> tuple[int, Any]:
        """The status, and the JSON or None; `document` is the body."""
        given = token or self.token
        headers = {"Authorization": f"Bearer {given}"} if given else {}
        headers |= {} if document is None else {"Content-Type": "application/json"}
        body = None if document is None else json.dumps(document)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_CALL_S)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    def topics(self, connector: str) -> set[str]:
        status, answer = self.call("GET", f"/connectors/{quote(connector, safe='')}/topics")
        assert status == 200, answer
        return set(answer[connector]["topics"])


@contextmanager
def running_web(
    folder: Path, upstream: str, keys: Mapping[str, object], *, token: str | None = None, host: str = "127.0.0.1"
) -> Iterator[Web]:
    """Until the block ends; it must end cleanly, and a defect that it wrote into its log fails the test."""
    folder.mkdir(parents=True, exist_ok=True)
    port, log_file = port_block(), folder / "web.log"
    written = {
        "web.listen": f"{host}:{port}",
        "upstream.bootstrap": upstream.split(","),
        "upstream.service_mechanism": "none",
        **keys,
    }
    file = folder / "web.toml"
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in written.items()), encoding="utf-8")
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            [HEADGATE, "web", "--config", file], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
        )
    web = Web(port=port, log=log_file, process=process, token=token)
    assert process.stdout
    with process.stdout as output:
        try:
            line = output.readline()
            assert line == f"ready web={web.url}\n", web.log.read_text()
            yield web
            if process.poll() != -signal.SIGKILL:
                process.terminate()
                assert process.wait(_STOP_S) == 0
            assert "Traceback" not in web.log.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
