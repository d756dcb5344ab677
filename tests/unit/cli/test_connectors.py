"""`headgate connectors` against a scripted server: what is asked, what is printed, and the exit codes."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.main import main

Answers = dict[tuple[str, str], tuple[int, Any]]
NONE: dict[str, str] = {}


class Script(ThreadingHTTPServer):
    """Answers by method and path; what was asked is kept."""

    answers: Answers
    asked: list[tuple[str, str, str | None]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Script
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        self.server.asked.append((self.command, self.path, self.headers.get("Authorization")))
        missing = (404, {"error_code": 404, "message": "HTTP 404 Not Found"})
        status, body = self.server.answers.get((self.command, self.path), missing)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = _answer  # noqa: N815 - the names are the library's

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def script() -> Iterator[Script]:
    with Script(("127.0.0.1", 0), Handler) as server:
        server.answers, server.asked = {}, []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADGATE_TOKEN", raising=False)


def connectors(script: Script, *arguments: str, base: str = "") -> int:
    return main(["connectors", "--url", script.url + base, *arguments])


def both(connect: list[str] | None, wire: list[str] | None, problems: dict[str, str] = NONE) -> tuple[int, Any]:
    row = {"cluster": "main", "connector": "src", "connect": connect, "wire": wire}
    return 200, {"connectors": [row], "truncated": False, "problems": problems}


def test_topics_are_printed_in_order(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.answers["GET", "/connectors/src/topics"] = (200, {"src": {"topics": ["b", "a"]}})
    assert connectors(script, "topics", "src") == 0
    assert capsys.readouterr().out == "a\nb\n"
    assert connectors(script, "topics", "src", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"src": {"topics": ["a", "b"]}}


def test_odd_names_are_quoted_on_the_way_and_escaped_on_the_screen(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a/b?é\x1b[2J"
    script.answers["PUT", "/connectors/a%2Fb%3F%C3%A9%1B%5B2J/topics/reset"] = (202, b"")
    assert connectors(script, "reset", name) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_cluster_of_several_has_a_path(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.answers["GET", "/connect/eu/connectors/src/topics"] = (200, {"src": {"topics": []}})
    assert connectors(script, "topics", "src", "--json", base="/connect/eu/") == 0
    assert json.loads(capsys.readouterr().out) == {"src": {"topics": []}}
    script.answers["GET", "/api/v1/connectors?name=src&cluster=eu"] = both([], [])
    assert connectors(script, "compare", "src", base="/connect/eu") == 0


def test_a_reset_is_confirmed(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.answers["PUT", "/connectors/src/topics/reset"] = (202, b"")
    assert connectors(script, "reset", "src", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"connector": "src", "reset": True}


def test_a_refusal_has_the_message_of_the_server_and_exit_code_1(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = {"error_code": 403, "message": "Topic tracking reset is disabled."}
    script.answers["PUT", "/connectors/src/topics/reset"] = (403, refusal)
    assert connectors(script, "reset", "src", "--json") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"headgate: {script.url} refused: Topic tracking reset is disabled. (403)\n"


def test_both_views_that_agree(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.answers["GET", "/api/v1/connectors?name=src"] = both(["b", "a"], ["a", "b"])
    assert connectors(script, "compare", "src", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "connector": "src",
        "connect": ["a", "b"],
        "wire": ["a", "b"],
        "only_connect": [],
        "only_wire": [],
    }


def test_a_difference_is_exit_code_1(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.answers["GET", "/api/v1/connectors?name=src"] = both(["a", "b"], ["b", "c"])
    assert connectors(script, "compare", "src", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["only_connect"], document["only_wire"]) == (["a"], ["c"])
    assert connectors(script, "compare", "src") == 1
    assert capsys.readouterr().out == "both          b\nonly Connect  a\nonly wire     c\n"


@pytest.mark.parametrize(
    ("connect", "wire", "said"),
    [
        (None, ["a"], "the active topics of Connect are not known"),
        (["a"], None, "the topics seen on the wire are not known"),
    ],
)
def test_unknown_topics_are_not_compared(
    script: Script,
    capsys: pytest.CaptureFixture[str],
    connect: list[str] | None,
    wire: list[str] | None,
    said: str,
) -> None:
    script.answers["GET", "/api/v1/connectors?name=src"] = both(connect, wire, {"activity": "it is away"})
    assert connectors(script, "compare", "src", "--json") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert "it is away" in captured.err


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[" * 100_000, [], {"src": {}}, {"src": {"topics": [1]}}])
@pytest.mark.parametrize("action", ["topics", "compare"])
def test_an_invalid_response_is_an_error(
    script: Script, capsys: pytest.CaptureFixture[str], body: object, action: str
) -> None:
    script.answers["GET", "/connectors/src/topics"] = (200, body)
    script.answers["GET", "/api/v1/connectors?name=src"] = (200, body)
    assert connectors(script, action, "src") == 1
    assert "invalid response" in capsys.readouterr().err


def test_a_connect_worker_cannot_compare(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    assert connectors(script, "compare", "src") == 1
    assert "HTTP 404 Not Found (404)" in capsys.readouterr().err


def test_the_token_comes_from_a_file_or_the_environment(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.answers["PUT", "/connectors/src/topics/reset"] = (202, b"")
    (tmp_path / "token").write_text("from-file\n")
    assert connectors(script, "reset", "src") == 0
    monkeypatch.setenv("HEADGATE_TOKEN", "from-environment")
    assert connectors(script, "reset", "src") == 0
    assert connectors(script, "reset", "src", "--token-file", str(tmp_path / "token")) == 0
    assert [sent for _, _, sent in script.asked] == [None, "Bearer from-environment", "Bearer from-file"]


@pytest.mark.parametrize(
    "url",
    ["nonsense", "ftp://x", "http://", "http://h:x", "http://h:99999", "http://u:p@h", "http://h/?a=1", "http://[h"],
)
def test_an_invalid_url_is_a_usage_error(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connectors", "--url", url, "topics", "src"]) == 2
    assert "--url" in capsys.readouterr().err


def test_an_invalid_token_is_not_sent_and_not_shown(
    script: Script, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_TOKEN", "secret\r\nX-More: 1")
    assert connectors(script, "reset", "src") == 2
    assert script.asked == []
    assert "secret" not in capsys.readouterr().err


def test_missing_files_are_usage_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "missing")
    assert main(["connectors", "--url", "http://h", "reset", "src", "--token-file", missing]) == 2
    assert main(["connectors", "--url", "https://h", "reset", "src", "--tls-ca", missing]) == 2
    assert "--token-file" in capsys.readouterr().err


def test_an_unreachable_server_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connectors", "--url", "http://127.0.0.1:1", "topics", "src"]) == 1
    assert "does not answer" in capsys.readouterr().err
