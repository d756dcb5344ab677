"""Connectors of the sample are created once a worker answers. A fake stands for the worker, which refuses on demand."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headgate.base.errors import ClusterError
from headgate.sample import connect
from headgate.sample.shop import ARCHIVE, CATALOG


class FakeWorker:
    """Answers as a Connect worker does; `statuses` come first, one for each request."""

    def __init__(self) -> None:
        self.configs: dict[str, dict[str, str]] = {}
        self.statuses: list[int] = []
        self.puts: list[str] = []

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        if self.statuses:
            return self.statuses.pop(0), {"error_code": 0, "message": "not now"}
        if method == "GET":
            return 200, {name: {"info": {"config": {**config, "name": name}}} for name, config in self.configs.items()}
        name = path.split("/")[2]
        self.puts.append(name)
        self.configs[name] = json.loads(body)
        return 201, {"name": name}


@contextmanager
def listening(worker: FakeWorker) -> Iterator[int]:
    class Requests(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond(b"")

        def do_PUT(self) -> None:
            self._respond(self.rfile.read(int(self.headers["Content-Length"])))

        def _respond(self, body: bytes) -> None:
            status, document = worker.answer(self.command, self.path, body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Requests) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            serving.join()


create_connectors = partial(connect.create_connectors, pause_s=0.0, tries=4)


def test_connectors_are_created_when_the_worker_is_ready_and_only_once(tmp_path: Path) -> None:
    worker = FakeWorker()
    worker.statuses = [404, 503, 409]
    wanted = connect.connectors(tmp_path)
    with listening(worker) as port:
        create_connectors(port, wanted, threading.Event())
        create_connectors(port, wanted, threading.Event())
    assert worker.configs == wanted
    assert worker.puts == [CATALOG, ARCHIVE]


def test_connectors_of_a_folder_that_was_moved_get_its_files(tmp_path: Path) -> None:
    worker = FakeWorker()
    with listening(worker) as port:
        create_connectors(port, connect.connectors(tmp_path / "old"), threading.Event())
        create_connectors(port, connect.connectors(tmp_path / "new"), threading.Event())
    assert worker.configs == connect.connectors(tmp_path / "new")


def test_a_refusal_is_an_error_and_a_stop_ends_the_waiting(tmp_path: Path) -> None:
    worker = FakeWorker()
    worker.statuses = [400]
    with listening(worker) as port, pytest.raises(ClusterError, match=r"GET /connectors.* failed with status 400"):
        create_connectors(port, connect.connectors(tmp_path), threading.Event())
    stop = threading.Event()
    stop.set()
    create_connectors(1, connect.connectors(tmp_path), stop)  # nothing listens there


def test_a_worker_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="failed with status 503"):
        create_connectors(connect.free_port(), connect.connectors(tmp_path), threading.Event())
