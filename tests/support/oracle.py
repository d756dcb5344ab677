"""Kafka's own classes as a witness: one Java process that decodes and encodes whatever it is given.

Items go in batches, because a round trip through the pipe costs more than an item. See `headgate.oracle.Oracle` for
what an item holds.
"""

import json
import os
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.calling_jvm import end_jvm

ROOT = Path(__file__).parents[2]
CLASSES = ROOT / "java" / "lib" / "headgate-oracle.jar"
CLIENTS = ROOT / "java" / "lib" / "clients"
BATCH = 200


class OracleError(AssertionError):
    """Kafka's classes refused an item."""


class Oracle:
    """A context manager; the process ends with it, and with this process too, since its input ends then."""

    def __init__(self) -> None:
        if not CLASSES.exists():
            raise FileNotFoundError(f"{CLASSES} is missing: run `make setup`")
        home = os.environ.get("JAVA_HOME")
        java = f"{home}/bin/java" if home else shutil.which("java") or "java"
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        self._process = subprocess.Popen(
            [java, *options, quiet, "-cp", f"{CLASSES}:{CLIENTS}/*", "headgate.oracle.Oracle"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        assert self._process.stdout
        end_jvm(self._process)
        self._process.stdout.close()

    def ask(self, operation: str, items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers in order; an item that Kafka refuses has the key `error`."""
        asked = list(items)
        answers: list[dict[str, Any]] = []
        for start in range(0, len(asked), BATCH):
            answers += self._line({"op": operation, "items": asked[start : start + BATCH]})
        return answers

    def decode(
        self, kind: str, key: int, version: int, body: bytes, *, header: bool = False, open_records: bool = False
    ) -> dict[str, Any]:
        """`tree`, `bytes` (written again), `name` and `version`, and `header` if the body begins with one."""
        item = decode_item(kind, key, version, body, header=header, open_records=open_records)
        return self._only("decode", item)

    def encode(self, kind: str, key: int, version: int, tree: dict[str, Any]) -> bytes:
        answer = self._only("encode", {"kind": kind, "key": key, "version": version, "tree": tree})
        return b64decode(answer["bytes"])

    def decode_records(self, data: bytes) -> list[dict[str, Any]]:
        """The batches of a record set with their records; the checksums have been compared."""
        batches: list[dict[str, Any]] = self._only("decode_records", {"bytes": text_of(data)})["batches"]
        return batches

    def encode_records(self, batch: dict[str, Any]) -> bytes:
        return b64decode(self._only("encode_records", batch)["bytes"])

    def _only(self, operation: str, item: dict[str, Any]) -> dict[str, Any]:
        [answer] = self.ask(operation, [item])
        if "error" in answer:
            raise OracleError(answer["error"])
        return answer

    def _line(self, question: dict[str, Any]) -> Sequence[dict[str, Any]]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise OracleError(f"the oracle ended with status {self._process.wait()}")
        answers: list[dict[str, Any]] = json.loads(line)["items"]
        return answers


def decode_item(
    kind: str, key: int, version: int, body: bytes, *, header: bool = False, open_records: bool = False
) -> dict[str, Any]:
    """One item of `ask("decode", ...)`; kind is request, response, request_header or response_header."""
    records = "open" if open_records else "bytes"
    return {
        "kind": kind,
        "key": key,
        "version": version,
        "bytes": text_of(body),
        "header": header,
        "records": records,
    }


def text_of(data: bytes) -> str:
    return b64encode(data).decode()
