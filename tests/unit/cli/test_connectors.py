"""`headgate connectors` with a scripted server: what the real servers of `tests/integration/activity` do not show."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.main import main

RESET = ("PUT", "/connectors/src/topics/reset")
COMPARE = ("GET", "/api/v1/connectors?name=src")


class Script(ThreadingHTTPServer):
    """Responds by method and path, and keeps the requests."""

    responses: dict[tuple[str, str], tuple[int, Any]]
    requests: list[tuple[str, str, str | None]]

    def run(self, *arguments: str, base: str = "") -> int:
        return main(["connectors", "--url", f"http://127.0.0.1:{self.server_address[1]}{base}", *arguments])


class Handler(BaseHTTPRequestHandler):
    server: Script
    protocol_version = "HTTP/1.1"

    def _respond(self) -> None:
        self.server.requests.append((self.command, self.path, self.headers.get("Authorization")))
        status, body = self.server.responses[self.command, self.path]
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = _respond  # noqa: N815 - the names are the library's

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    monkeypatch.delenv("HEADGATE_TOKEN", raising=False)
    with Script(("127.0.0.1", 0), Handler) as server:
        server.responses, server.requests = {RESET: (202, b"")}, []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def comparison(connect: list[str] | None, wire: list[str] | None) -> tuple[int, Any]:
    row = {"cluster": "main", "connector": "src", "connect": connect, "wire": wire}
    return 200, {"connectors": [row], "truncated": False, "problems": {"activity": "it is down"}}


def test_topics_are_printed_in_order(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.responses["GET", "/connectors/src/topics"] = (200, {"src": {"topics": ["b", "a"]}})
    assert script.run("topics", "src") == 0
    assert capsys.readouterr().out == "a\nb\n"


def test_names_are_quoted_in_the_path_and_escaped_on_the_screen(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    script.responses["PUT", "/connectors/a%2Fb%3F%C3%A9%1B%5B2J/topics/reset"] = (202, b"")
    assert script.run("reset", "a/b?é\x1b[2J") == 0
    assert "\x1b" not in capsys.readouterr().out


def test_one_of_several_clusters_is_part_of_the_url(script: Script) -> None:
    script.responses["GET", "/connect/eu/connectors/src/topics"] = (200, {"src": {"topics": []}})
    script.responses["GET", "/api/v1/connectors?name=src&cluster=eu"] = comparison([], [])
    assert script.run("topics", "src", base="/connect/eu/") == 0
    assert script.run("compare", "src", base="/connect/eu") == 0


def test_a_refusal_has_the_message_of_the_server_and_exit_code_1(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    script.responses[RESET] = (403, {"error_code": 403, "message": "Topic tracking reset is disabled."})
    assert script.run("reset", "src", "--json") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith(" refused: Topic tracking reset is disabled. (403)\n")


def test_the_json_of_a_reset_and_of_views_that_agree(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.run("reset", "src", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"connector": "src", "reset": True}
    script.responses[COMPARE] = comparison(["b", "a"], ["a", "b"])
    assert script.run("compare", "src", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "connector": "src",
        "connect": ["a", "b"],
        "wire": ["a", "b"],
        "only_connect": [],
        "only_wire": [],
    }


@pytest.mark.parametrize(
    ("connect", "wire", "exit_code"), [(["a"], ["a"], 0), (["a"], [], 1), ([], ["a"], 1), ([], [], 0)]
)
def test_a_difference_on_either_side_is_exit_code_1(
    script: Script, connect: list[str], wire: list[str], exit_code: int
) -> None:
    script.responses[COMPARE] = comparison(connect, wire)
    assert script.run("compare", "src") == exit_code


def test_a_difference_is_exit_code_1(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.responses[COMPARE] = comparison(["a", "b"], ["b", "c"])
    assert script.run("compare", "src") == 1
    assert capsys.readouterr().out == "both          b\nonly Connect  a\nonly wire     c\n"


@pytest.mark.parametrize(
    ("connect", "wire", "message"),
    [(None, ["a"], "the active topics of Connect are not known"), (["a"], None, "the topics seen on the wire are not")],
)
def test_unknown_topics_are_not_compared(
    script: Script,
    capsys: pytest.CaptureFixture[str],
    connect: list[str] | None,
    wire: list[str] | None,
    message: str,
) -> None:
    script.responses[COMPARE] = comparison(connect, wire)
    assert script.run("compare", "src", "--json") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert "it is down" in captured.err


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[" * 100_000, [], {"src": {}}, {"src": {"topics": [1]}}])
@pytest.mark.parametrize("action", ["topics", "compare"])
def test_an_invalid_response_is_an_error(
    script: Script, capsys: pytest.CaptureFixture[str], body: object, action: str
) -> None:
    script.responses["GET", "/connectors/src/topics"] = script.responses[COMPARE] = (200, body)
    assert script.run(action, "src") == 1
    assert "invalid response" in capsys.readouterr().err


def test_the_token_comes_from_a_file_or_the_environment(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("from-file\n")
    assert script.run("reset", "src") == 0
    monkeypatch.setenv("HEADGATE_TOKEN", "from-environment")
    assert script.run("reset", "src") == 0
    assert script.run("reset", "src", "--token-file", str(tmp_path / "token")) == 0
    assert [sent for _, _, sent in script.requests] == [None, "Bearer from-environment", "Bearer from-file"]


def test_an_invalid_token_is_not_sent_and_not_shown(
    script: Script, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_TOKEN", "secret\r\nX-More: 1")
    assert script.run("reset", "src") == 2
    assert script.requests == []
    message = capsys.readouterr().err
    assert "invalid token" in message
    assert "secret" not in message


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        *(([url], "--url") for url in ("nonsense", "ftp://x", "http://", "http://h:x", "http://h:99999")),
        *(([url], "--url") for url in ("http://u:p@h", "http://h/?a=1", "http://[h")),
        (["http://h", "--token-file", "/missing/file"], "--token-file"),
        (["https://h", "--tls-ca", "/missing/file"], "--tls-ca"),
    ],
)
def test_an_invalid_argument_is_a_usage_error(
    arguments: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["connectors", "reset", "src", "--url", *arguments]) == 2
    assert option in capsys.readouterr().err


def test_an_unreachable_server_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connectors", "--url", "http://127.0.0.1:1", "topics", "src"]) == 1
    assert "does not answer" in capsys.readouterr().err
