"""The command line turns errors into a sentence and an exit code, never into a traceback."""

import argparse
from collections.abc import Callable

import pytest

import headgate
from headgate.base.errors import ClusterError, HeadgateError, PlatformError, UsageError, WireError
from headgate.cli import main as cli
from headgate.config import ConfigError, Problem


def running(monkeypatch: pytest.MonkeyPatch, work: Callable[[argparse.Namespace], int]) -> None:
    """Let every command do this."""
    monkeypatch.setattr(cli, "parse_arguments", lambda _: argparse.Namespace(run=work))


def raises(failure: BaseException) -> Callable[[argparse.Namespace], int]:
    def work(_: argparse.Namespace) -> int:
        raise failure

    return work


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (UsageError("write it otherwise"), 2),
        (PlatformError("the port is taken"), 1),
        (ClusterError("it is away"), 1),
        (WireError("no Kafka"), 1),
        (HeadgateError("something"), 1),
    ],
)
def test_an_error_is_a_sentence_and_an_exit_code(
    failure: HeadgateError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running(monkeypatch, raises(failure))
    assert cli.main([]) == code
    captured = capsys.readouterr()
    assert captured.err == f"headgate: {failure}\n"
    assert captured.out == ""


def test_every_problem_of_a_configuration_is_said_with_its_path(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = (Problem("gateway.nodes", "is empty"), Problem("web.listen", "has no port"))
    running(monkeypatch, raises(ConfigError(problems)))
    assert cli.main([]) == 2
    assert capsys.readouterr().err == "headgate: gateway.nodes: is empty\nheadgate: web.listen: has no port\n"


def test_an_interrupted_command_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, raises(KeyboardInterrupt()))
    assert cli.main([]) == 130


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["serve"], ["serve", "--config"], ["config"], ["--nonsense"]])
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: headgate" in capsys.readouterr().err


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"headgate {headgate.__version__}\n"


def test_help_says_that_the_web_server_serves_the_page_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "serve the page and the REST interface" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["dev", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert "port of the page and the REST interface" in out
    assert "do not start the web server" in out
