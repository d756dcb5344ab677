"""The server on a real socket: it answers before it has read anything, speaks TLS, and ends cleanly."""

import asyncio
import http.client
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from headgate.base.errors import PlatformError, UsageError
from headgate.config import Config, load
from headgate.web.server import WebServer
from tests.support.certificates import make_certificates
from tests.support.ports import port_block


@pytest.fixture
def port() -> int:
    return port_block()


def configured(port: int, **web: Any) -> Config:
    """There is no cluster, and there are no tables."""
    keys = {"web.listen": f"127.0.0.1:{port}", "upstream.bootstrap": ["127.0.0.1:1"], "tables.path": "/nonexistent"}
    return load(None, {}, {**keys, "connect.main.status_topic": "s", **{f"web.{key}": to for key, to in web.items()}})


def ask(port: int, method: str, path: str, context: ssl.SSLContext | None = None) -> tuple[int, Any]:
    kind = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    if context is not None:
        kind = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    try:
        kind.request(method, path)
        answer = kind.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        kind.close()


async def test_it_responds_while_the_cluster_is_down_and_names_the_problems(port: int) -> None:
    web = WebServer(configured(port))
    assert web.url == f"http://127.0.0.1:{port}"
    with web.listening():
        async with web.running():
            status, health = await asyncio.to_thread(ask, port, "GET", "/api/v1/health")
            assert status == 200
            assert health["ready"] is False
            assert set(health["problems"]) == {"activity", "connect.main", "share_groups"}
            status, error = await asyncio.to_thread(ask, port, "GET", "/connectors/x/topics")
            assert (status, error["error_code"]) == (503, 503)
            status, error = await asyncio.to_thread(ask, port, "PUT", "/connectors/x/topics/reset")
            assert status == 503
    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(ask, port, "GET", "/api/v1/health")


async def test_with_a_certificate_it_speaks_tls(port: int, tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    web = WebServer(configured(port, tls_cert=str(files.server_cert), tls_key=str(files.server_key)))
    assert web.url == f"https://127.0.0.1:{port}"
    context = ssl.create_default_context(cafile=files.ca)
    with web.listening():
        async with web.running():
            status, _ = await asyncio.to_thread(ask, port, "GET", "/api/v1/health", context)
            assert status == 200


async def test_an_invalid_certificate_or_tokens_file_is_an_error(port: int, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("nonsense")
    for web in (
        WebServer(configured(port, tls_cert=str(nonsense), tls_key=str(nonsense))),
        WebServer(configured(port, tokens_file=str(nonsense))),
    ):
        with web.listening(), pytest.raises(UsageError):
            async with web.running():
                pass


async def test_an_address_in_use_is_an_error(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        web = WebServer(configured(port))
        with pytest.raises(PlatformError, match=f"web.listen: 127.0.0.1:{port}"), web.listening():
            pass


async def test_a_silent_client_does_not_delay_the_end(port: int) -> None:
    web = WebServer(configured(port))
    with web.listening(), socket.socket() as silent:
        async with asyncio.timeout(60), web.running():
            silent.connect(("127.0.0.1", port))
            silent.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: local")
            await asyncio.to_thread(ask, port, "GET", "/api/v1/health")
        silent.settimeout(30)
        assert silent.recv(1) == b""
