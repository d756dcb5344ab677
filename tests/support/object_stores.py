"""Object stores for tests: moto's server in this process, and the real versitygw as one of its own.

moto is a model of S3 and holds the plumbing; what a store does under races and latency only the real one shows.
"""

import os
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from headgate.base.locations import ObjectLocation
from headgate.config.storage import storage_options
from tests.support.ports import port_block

KEY, SECRET, REGION = "headgate-tests", "secret-of-the-tests", "us-east-1"
VERSITYGW = "HEADGATE_TEST_VERSITYGW"
_STARTED_WITHIN_S = 20.0
Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStoreServer:
    """A running store with a bucket `lake`, at this address."""

    endpoint: str

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])

    @property
    def storage(self) -> dict[str, str]:
        """What `[tables] storage` has for it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
        }

    def location(self, *parts: str) -> ObjectLocation:
        return ObjectLocation("lake", parts, storage_options(self.storage, {}))

    def new_location(self) -> ObjectLocation:
        """A prefix that no other test has."""
        return self.location("tests", uuid.uuid4().hex)


class IgnoringConditions:
    """A store that ignores these conditions of a request, as some do."""

    def __init__(self, store: Application, *conditions: str) -> None:
        self._store = store
        self._ignored = [f"HTTP_{name.upper().replace('-', '_')}" for name in conditions]

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        for name in self._ignored:
            environ.pop(name, None)
        return self._store(environ, start_response)


# Its log has a line for each request, which would bury what a test prints.
_SILENT = type("_SilentHandler", (WSGIRequestHandler,), {"log": lambda *_: None})


@contextmanager
def moto_server(wrap: Callable[[Application], Application] = lambda store: store) -> Iterator[ObjectStoreServer]:
    """Moto on threads of this process; all of them share one state, so each test has a prefix of its own."""
    port = port_block()
    application = wrap(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", port, application, threaded=True, request_handler=_SILENT)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield _with_bucket(port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def versitygw() -> Path:
    """The program; the error says how to get it."""
    named = os.environ.get(VERSITYGW) or shutil.which("versitygw")
    if not named or not Path(named).is_file():
        raise RuntimeError(
            f"versitygw is not on PATH and {VERSITYGW} does not name it: with Go, run "
            "`go install github.com/versity/versitygw/cmd/versitygw@v1.8.0`, and see docs/storage.md"
        )
    return Path(named)


@contextmanager
def versitygw_server(folder: Path) -> Iterator[ObjectStoreServer]:
    """A real S3 server whose objects are files in this folder."""
    program, port = versitygw(), port_block()
    objects = folder / "objects"
    objects.mkdir(parents=True)
    log = folder / "versitygw.log"
    command: list[str | Path] = [program, "--port", f"127.0.0.1:{port}", "--region", REGION, "posix", objects]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            env={**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET},
        )
    try:
        _wait_until_it_answers(port, process, log)
        yield _with_bucket(port)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_it_answers(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + _STARTED_WITHIN_S
    while True:
        assert process.poll() is None, log.read_text("utf-8")
        assert time.monotonic() < until, log.read_text("utf-8")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=1)
        except urllib.error.HTTPError:
            return  # without a signature it refuses
        except OSError:
            time.sleep(0.05)
        else:
            return


def _with_bucket(port: int) -> ObjectStoreServer:
    server = ObjectStoreServer(endpoint=f"http://127.0.0.1:{port}")
    make_bucket(server, "lake")
    return server


def make_bucket(server: ObjectStoreServer, name: str) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name=REGION,
    )
    client.create_bucket(Bucket=name)
    client.close()
