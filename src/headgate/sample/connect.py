"""The Connect worker of the sample, and its two connectors: one reads a file, one writes one.

In distributed mode connectors are created through the worker's REST interface, on a free port of the loopback address.
Its topics are in `[connect.sample]` of `headgate dev`, so that the gateway shows what the connectors use (KIP-558).
"""

import http.client
import json
import socket
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from headgate.base.errors import ClusterError
from headgate.sample.shop import (
    ARCHIVE,
    CATALOG,
    CONFIG_TOPIC,
    CONNECT,
    OFFSET_TOPIC,
    PRODUCTS,
    SHIPMENTS,
    STATUS_TOPIC,
)

MAIN: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
_HOST: Final = "127.0.0.1"
_STRINGS: Final = "org.apache.kafka.connect.storage.StringConverter"
_FILE_STREAM: Final = "org.apache.kafka.connect.file.FileStream"
_CALL_S: Final = 30.0
_PAUSE_S: Final = 0.5
_TRIES: Final = 360
_NOT_YET: Final = frozenset({404, 409, 500, 503})  # while it starts, and while its group rebalances
_LARGEST_ANSWER: Final = 1024 * 1024


def free_port() -> int:
    with socket.create_server((_HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def worker_settings(bootstrap: str, port: int) -> dict[str, str]:
    """The properties of the worker. Its own consumers wait long in each fetch, because they read nearly nothing."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": CONNECT,
        "listeners": f"http://{_HOST}:{port}",
        "key.converter": _STRINGS,
        "value.converter": _STRINGS,
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": "30000",
        "scheduled.rebalance.max.delay.ms": "0",
        "fetch.max.wait.ms": "3000",
        "consumer.fetch.max.wait.ms": "3000",
        "config.storage.topic": CONFIG_TOPIC,
        "offset.storage.topic": OFFSET_TOPIC,
        "status.storage.topic": STATUS_TOPIC,
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        **{f"{what}.storage.replication.factor": "1" for what in ("config", "offset", "status")},
    }


def connectors(folder: Path) -> dict[str, dict[str, str]]:
    """The configurations of both: the catalog of products is read, shipments are archived."""
    return {
        CATALOG: {
            "connector.class": f"{_FILE_STREAM}SourceConnector",
            "tasks.max": "1",
            "file": str((folder / "catalog.jsonl").absolute()),
            "topic": PRODUCTS,
        },
        ARCHIVE: {
            "connector.class": f"{_FILE_STREAM}SinkConnector",
            "tasks.max": "1",
            "file": str((folder / "shipments.jsonl").absolute()),
            "topics": SHIPMENTS,
        },
    }


def create_connectors(
    port: int,
    wanted: Mapping[str, Mapping[str, str]],
    stop: threading.Event,
    *,
    pause_s: float = _PAUSE_S,
    tries: int = _TRIES,
) -> None:
    """Create those that the worker does not have so, as soon as it answers; `ClusterError` when it refuses them.

    After a restart it has them, and in a folder that was moved with other files.
    """
    ready = partial(_when_ready, port, stop, pause_s=pause_s, tries=tries)
    found = ready("GET", "/connectors?expand=info", None)
    for name, config in wanted.items() if found is not None else ():
        if not config.items() <= found.get(name, {}).get("info", {}).get("config", {}).items():
            ready("PUT", f"/connectors/{name}/config", config)


def _when_ready(
    port: int, stop: threading.Event, method: str, path: str, body: object, *, pause_s: float, tries: int
) -> Any:
    """The answer to a request that is repeated until the worker is ready; None when the sample is stopped before."""
    status, answer = 503, None
    for _ in range(tries):
        if stop.is_set():
            return None
        status, answer = _ask(port, method, path, body)
        if status < 400:
            return answer
        if status not in _NOT_YET:
            break
        stop.wait(pause_s)
    raise ClusterError(f"{method} {path} failed with status {status}")


def _ask(port: int, method: str, path: str, body: object) -> tuple[int, Any]:
    """Status and JSON of the answer; 503 while the worker does not listen, or answers something else."""
    connection = http.client.HTTPConnection(_HOST, port, timeout=_CALL_S)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read(_LARGEST_ANSWER) or b"null")
    except (OSError, http.client.HTTPException, ValueError):
        return 503, None
    finally:
        connection.close()
