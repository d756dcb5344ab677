"""`headgate serve` from outside: its lines, its exit codes, and that it leaves nothing behind."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.support.fake_upstream import HOST, Client, FakeUpstream, request
from tests.support.ports import port_block

LOOPBACK = "127.0.0.1"
HEARTBEAT = request(12, 4, b"\x02g\x00\x00\x00\x01\x02m\x00\x00", correlation_id=5)


@cache
def base_port() -> int:
    """The gateway's port of all tests of this process; its pages are 15 above it."""
    return port_block()


def configured(
    folder: Path,
    upstream: int = 1,
    *,
    nodes: str = "0-1",
    drain_ms: int = 5000,
    owner: str = "broker",
    more: str = "",
) -> Path:
    """`owner` is of the topologies; `gateway` has clients of its own, which the fake upstream does not expect.

    Share groups and activity have some too, and are off.
    """
    file = folder / "headgate.toml"
    file.write_text(
        f"""
        [gateway]
        listen = "{LOOPBACK}:{base_port()}"
        nodes = "{nodes}"
        drain_ms = {drain_ms}
        {more}
        [upstream]
        bootstrap = ["{HOST}:{upstream}"]
        service_mechanism = "none"
        [topologies]
        owner = "{owner}"
        [share_groups]
        enable = false
        [activity]
        enable = false
        [lags]
        enable = false
        [tables]
        path = "{folder / "tables"}"
        [metrics]
        listen = "{LOOPBACK}:{base_port() + 15}"
        """,
        encoding="utf-8",
    )
    return file


class Served:
    """A running command; its lines come one by one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            return (await self.process.stdout.readline()).decode()

    async def ended(self) -> tuple[int, str, str]:
        """Exit code, what was still on standard output, and standard error."""
        async with asyncio.timeout(30):
            out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def serving(file: Path) -> AsyncIterator[Served]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "headgate.cli.main",
        "serve",
        "--config",
        str(file),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Served(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
        await asyncio.sleep(0)


async def page(path: str) -> tuple[int, bytes] | None:
    """Status and body of a status page; None when nobody listens."""
    try:
        visitor = await Client.connect(LOOPBACK, base_port() + 15)
    except ConnectionRefusedError:
        return None
    try:
        await visitor.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head, _, body = (await visitor.rest()).partition(b"\r\n\r\n")
    finally:
        visitor.close()
    return int(head.split()[1]), body


async def readiness(part: str) -> None:
    """Wait until `/readyz` says that."""
    async with asyncio.timeout(30):
        while True:
            answer = await page("/readyz")
            if answer is not None and part in answer[1].decode():
                return
            await asyncio.sleep(0.02)


def nothing_is_left() -> bool:
    """True when every port can be had."""
    for offset in (0, 1, 2, 15):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, base_port() + offset))
            except OSError:
                return False
    return True


@pytest.mark.parametrize(
    ("offset", "whose"),
    [(0, "the bootstrap port"), (2, "node 1"), (15, "the status pages")],
    ids=["bootstrap", "node", "pages"],
)
async def test_a_port_in_use_is_one_line_and_nothing_is_started(offset: int, whose: str, tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, base_port() + offset)):
        async with serving(configured(tmp_path)) as served:
            code, out, err = await served.ended()
    assert code == 1
    assert out == ""
    assert err.startswith(f"headgate: cannot listen on {LOOPBACK}:{base_port() + offset} for {whose}: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert nothing_is_left()


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("nonsense = 1", "gateway.nonsense"),
        ("deny_api_keys = [3]", "gateway.deny_api_keys"),
    ],
)
async def test_a_problem_of_the_configuration_has_its_path_and_nothing_is_started(
    more: str, problem: str, tmp_path: Path
) -> None:
    async with serving(configured(tmp_path, more=more)) as served:
        code, out, err = await served.ended()
    assert (code, out) == (2, "")
    assert err.startswith(f"headgate: {problem}: ")
    assert nothing_is_left()


async def test_a_cluster_that_is_down_is_waited_for_and_then_served(tmp_path: Path) -> None:
    async with FakeUpstream() as upstream:
        await upstream.stop_listening(None)
        async with serving(configured(tmp_path, upstream.port)) as served:
            await readiness("refused")
            assert (await page("/healthz") or (0, b""))[0] == 200
            found = await page("/readyz")
            assert found is not None
            assert found[0] == 503
            assert json.loads(found[1])["problems"]["upstream"].endswith("Connection refused")
            upstream.listen_again(None)
            assert await served.line() == f"ready gateway={LOOPBACK}:{base_port()}\n"
            client = await Client.connect(LOOPBACK, base_port())
            await client.send(HEARTBEAT)
            await (await upstream.accept()).reply()
            assert (await client.frame())[4:8] == b"\x00\x00\x00\x05"
            client.close()
            served.process.terminate()
            code, _, err = await served.ended()
            assert code == 0
            assert "Traceback" not in err
    assert nothing_is_left()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["term", "int"])
async def test_a_signal_lets_pending_requests_be_answered(number: signal.Signals, code: int, tmp_path: Path) -> None:
    async with FakeUpstream() as upstream, serving(configured(tmp_path, upstream.port)) as served:
        assert (await served.line()).startswith("ready ")
        client = await Client.connect(LOOPBACK, base_port())
        await client.send(HEARTBEAT)
        asked = await (broker := await upstream.accept()).request()
        served.process.send_signal(number)
        await readiness("draining")
        await broker.send(asked.answer())
        assert await client.frame() == asked.answer()
        ended, out, err = await served.ended()
        assert (ended, out) == (code, "")
        assert "Traceback" not in err
        assert "'drained': 1" in err
        client.close()
    assert nothing_is_left()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["term", "int"])
async def test_a_signal_ends_a_gateway_that_still_waits(number: signal.Signals, code: int, tmp_path: Path) -> None:
    async with serving(configured(tmp_path)) as served:
        await readiness("refused")
        served.process.send_signal(number)
        ended, out, err = await served.ended()
    assert (ended, out) == (code, "")
    assert "Traceback" not in err
    assert nothing_is_left()


async def test_a_feature_that_still_waits_for_the_cluster_does_not_keep_it_alive(tmp_path: Path) -> None:
    async with serving(configured(tmp_path, owner="gateway", drain_ms=200)) as served:
        await readiness("refused")
        await asyncio.sleep(0.5)  # its clients are looking for the cluster by now
        served.process.terminate()
        async with asyncio.timeout(4):
            code, _, err = await served.ended()
    assert code == 0
    assert "killing it" not in err
    assert "Traceback" not in err


async def test_requests_that_are_never_answered_do_not_keep_it_alive(tmp_path: Path) -> None:
    async with FakeUpstream() as upstream, serving(configured(tmp_path, upstream.port, drain_ms=200)) as served:
        await served.line()
        client = await Client.connect(LOOPBACK, base_port())
        await client.send(HEARTBEAT)
        await (await upstream.accept()).request()
        served.process.terminate()
        assert await client.rest() == b""
        code, _, err = await served.ended()
        assert code == 0
        assert "requests are still pending" in err
        client.close()


async def test_hostile_bytes_of_a_client_make_no_line_of_their_own(tmp_path: Path) -> None:
    async with FakeUpstream() as upstream, serving(configured(tmp_path, upstream.port)) as served:
        await served.line()
        client = await Client.connect(LOOPBACK, base_port())
        await client.send(request(3, 12, b"", client_id=b'x\n level=error event="forged"\x1b[31m', tags=b"\xff" * 9))
        assert await client.rest() == b""
        client.close()
        served.process.terminate()
        _, _, err = await served.ended()
    assert "connection ended" in err
    assert "forged" not in err
    assert all(line.isprintable() for line in err.splitlines())
    assert all(line.startswith(("timestamp=", "headgate: waiting for the cluster: ")) for line in err.splitlines())
