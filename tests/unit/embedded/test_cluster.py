"""The data directory, the errors in a node's log, readiness and waiting, without a real cluster."""

import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import ClusterError, PlatformError, UsageError
from headgate.base.ids import ClusterId, NodeId
from headgate.embedded import cluster
from headgate.embedded.node import (
    ClusterMetadata,
    NodeDeath,
    StartGivenUpError,
    StartOptions,
    Wait,
    fault,
    parse_metadata,
    request_metadata,
    setting_refused,
)

ID = ClusterId("4L6g3nShT-eMCtK--X86sw")


def claim(path: Path, brokers: int = 1) -> cluster.ClaimedFolder:
    return cluster.claim(path, brokers=brokers, new_id=ID)


def formatted(path: Path, brokers: int = 1, cluster_id: str = ID) -> Path:
    """A folder as an earlier run left it."""
    folder = claim(path, brokers)
    for node in range(brokers):
        home = folder.node_dir(NodeId(node))
        home.mkdir()
        (home / "meta.properties").write_text(f"#\n#Sun Nov 15\nnode.id={node}\nversion=1\ncluster.id={cluster_id}\n")
    folder.mark_formatted()
    folder.release()
    return path


def test_a_new_folder_is_created_and_a_formatted_one_keeps_its_id(tmp_path: Path) -> None:
    folder = claim(tmp_path / "a" / "b")
    assert (folder.identity.cluster_id, folder.identity.formatted) == (ID, False)
    folder.release()
    formatted(tmp_path / "c")
    folder = cluster.claim(tmp_path / "c", brokers=1, new_id=ClusterId("another"))
    assert (folder.identity.cluster_id, folder.identity.formatted) == (ID, True)
    folder.release()


def test_a_format_that_was_interrupted_is_begun_again(tmp_path: Path) -> None:
    folder = claim(tmp_path, brokers=3)
    (folder.node_dir(NodeId(0)) / "x").mkdir(parents=True)
    folder.release()
    folder = claim(tmp_path, brokers=1)
    assert not folder.node_dir(NodeId(0)).exists()
    assert (folder.identity.brokers, folder.identity.formatted) == (1, False)
    folder.release()


def test_a_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    with pytest.raises(UsageError, match=f"in use by process {os.getpid()}"):
        claim(tmp_path)
    folder.release()
    claim(tmp_path).release()


def _lose_a_file(path: Path) -> None:
    (formatted(path) / "node-0" / "meta.properties").unlink()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: formatted(path, brokers=3), "a cluster of 3 brokers and cannot be started with 1"),
        (lambda path: formatted(path, cluster_id="other"), f"node 0 of Kafka cluster other, and .* is cluster {ID}"),
        (_lose_a_file, "node 0 is not complete"),
        (lambda path: (path / "other").touch(), "it contains other"),
        (
            lambda path: (path / "meta.properties").write_text("cluster.id=theirs\n"),
            "cluster theirs, which Headgate did",
        ),
        *(
            (lambda path, text=text: (path / "cluster.json").write_text(text), "damaged or from another version")
            for text in ("", "{}", "[]", '{"cluster_id": "a", "brokers": 1, "formatted": true, "new": 1}')
        ),
    ],
)
def test_a_folder_that_is_not_headgates_own_is_rejected_and_left_alone(
    tmp_path: Path, make: Callable[[Path], object], text: str
) -> None:
    make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=text):
        claim(tmp_path)
    assert {path for path in tmp_path.rglob("*") if path.name != "lock"} == {
        path for path in before if path.name != "lock"
    }


def test_a_path_that_cannot_be_a_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a directory"):
        claim(tmp_path / "file")
    with pytest.raises(PlatformError, match="cannot be used: Not a directory"):
        claim(tmp_path / "file" / "below")


def test_the_properties_of_a_node_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    file = folder.write_config(NodeId(0), "a=b\n")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("a=b\n", 0o600)
    folder.release()


# Errors in a node's log.

START = "2026-11-15 10:24:43,816 INFO [main] AppInfoParser: Kafka version: 4.3.1"
EXITING = "2026-11-15 10:24:44,100 ERROR [main] Kafka$: Exiting Kafka due to fatal exception"
CONFIG = "org.apache.kafka.common.config.ConfigException: Invalid value zip for configuration compression.type: no"


@pytest.mark.parametrize(
    ("lines", "reason", "is_setting"),
    [
        ([START], "", False),
        (
            [START, EXITING, CONFIG, "\tat a.B.c(B.java:1)"],
            "Invalid value zip for configuration compression.type: no",
            True,
        ),
        ([EXITING, "java.lang.ClassNotFoundException: nope.Nope"], "ClassNotFoundException: nope.Nope", False),
        ([EXITING, "java.lang.OutOfMemoryError"], "OutOfMemoryError", False),
        ([EXITING, START], "Exiting Kafka due to fatal exception", False),
        (['Exception in thread "main" ' + CONFIG], "Invalid value zip for configuration compression.type: no", True),
        ([EXITING, CONFIG, EXITING.replace("Exiting", "Later")], "Later Kafka due to fatal exception", True),
        (["requirement failed: x must be at least 1"], "", True),
    ],
)
def test_the_last_error_of_a_log_is_the_reason(lines: list[str], reason: str, is_setting: bool) -> None:
    assert (fault(lines), setting_refused(lines)) == (reason, is_setting)


@pytest.mark.parametrize(("code", "how"), [(1, "ended with code 1"), (-signal.SIGKILL, "was ended by SIGKILL")])
def test_the_end_of_a_node_is_reported_with_its_reason_and_log(code: int, how: str) -> None:
    death = NodeDeath(node=NodeId(2), exit_code=code, log=Path("/logs/node-2.log"), reason="because", tail=())
    assert str(death) == f"Kafka node 2 {how}: because; its log is /logs/node-2.log"


# Readiness.

# Captured from a 4.3.1 broker: Metadata v4 without topics, node 0 at 127.0.0.1:21000, controller 0.
FRAME = bytes.fromhex(
    "00000001 00000000 00000001 00000000 0009 3132372e302e302e31 00005208 ffff"
    "0016 65434548556266705169536f7561596a30435454745100000000 00000000"
)
METADATA = ClusterMetadata(cluster_id=ClusterId("eCEHUbfpQiSouaYj0CTTtQ"), nodes=frozenset({NodeId(0)}))


@contextmanager
def listening(reply: bytes) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (struct.pack(">i", len(FRAME)) + FRAME, METADATA),
        (b"", None),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", None),
        (b"\0\0\0\4\0\0\0\1", None),
        (struct.pack(">ii", 8, 7) + b"\0" * 20, None),
    ],
)
def test_only_a_complete_metadata_response_counts(reply: bytes, expected: ClusterMetadata | None) -> None:
    with listening(reply) as port:
        assert request_metadata("127.0.0.1", port, timeout=5) == expected
    assert request_metadata("127.0.0.1", port, timeout=1) is None


@given(st.binary(max_size=60), st.integers(0, len(FRAME)))
def test_any_frame_is_decoded_or_rejected(noise: bytes, cut: int) -> None:
    for frame in (noise, FRAME[:cut] + noise):
        with suppress(struct.error, IndexError, UnicodeDecodeError):
            parse_metadata(frame)


# Waiting.


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def wait_on(time: FakeTime, options: StartOptions) -> None:
    wait = Wait(options, monotonic=time.monotonic, sleep=time.sleep)
    while True:
        wait.pause("waiting for node 0", look_into="the log")


def test_a_wait_reports_progress_and_times_out() -> None:
    time = FakeTime()
    reported: list[int] = []
    options = StartOptions(limit_s=30, progress=lambda _: reported.append(round(time.now - 100))).at_most(5)
    with pytest.raises(ClusterError, match="still waiting for node 0 after 5 s; see the log"):
        wait_on(time, options)
    assert reported == [2, 4]


def test_a_wait_can_be_given_up() -> None:
    time = FakeTime()
    with pytest.raises(StartGivenUpError):
        wait_on(time, StartOptions(give_up=lambda: time.now > 101))
    assert time.now < 101.2
