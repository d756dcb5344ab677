"""`headgate doctor` as an operator sees it, in front of what is no cluster at all."""

import argparse
import asyncio
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.cli import doctor
from headgate.config import Address, ConfigError
from headgate.config.model import UpstreamConfig
from headgate.doctor.dialling import Dialler, resolve
from headgate.doctor.findings import Check, Verdict, problem
from tests.support.ports import port_block


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADGATE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def silent() -> Iterator[Address]:
    """A listener whose queue takes connections, and that never says a word."""
    with socket.create_server(("127.0.0.1", port_block())) as server:
        yield Address(*server.getsockname())


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser(prog="headgate")
    doctor.add_parser(parser.add_subparsers())
    args = parser.parse_args(["doctor", *arguments])
    code: int = args.run(args)
    return code


def write(folder: Path, bootstrap: str, *, connect_timeout_ms: int = 500) -> str:
    port = port_block()
    file = folder / "headgate.toml"
    file.write_text(
        f'[gateway]\nlisten = "127.0.0.1:{port}"\nnodes = "0-0"\nconnect_timeout_ms = {connect_timeout_ms}\n'
        f'[upstream]\nbootstrap = ["{bootstrap}"]\n[metrics]\nlisten = "127.0.0.1:{port + 8}"\n'
    )
    return str(file)


def visit(address: Address, **upstream: object) -> str:
    dialler = Dialler(upstream=UpstreamConfig(**upstream), deadline_s=0.5)  # type: ignore[arg-type]
    seen = asyncio.run(dialler.visit(address, label="x", source="upstream.bootstrap"))
    assert seen.broker is None
    assert seen.finding.verdict is Verdict.PROBLEM
    return f"{seen.finding.text} -> {seen.finding.mend}"


def test_no_broker_at_all_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--config", write(tmp_path, f"127.0.0.1:{port_block()}")) == 1
    out, err = capsys.readouterr()
    assert "Connection refused" in out
    assert "-> nc -vz 127.0.0.1" in out
    assert out.splitlines()[-1].startswith("1 problem, ")
    assert err == ""


def test_json_is_one_object_with_every_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--config", write(tmp_path, f"127.0.0.1:{port_block()}"), "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["counts"]["problem"] == 1
    assert sum(found["counts"].values()) == len(found["findings"])
    (bad,) = [one for one in found["findings"] if one["verdict"] == "problem"]
    assert set(bad) == {"verdict", "check", "subject", "text", "mend"}
    assert bad["check"] == "upstream"


def test_a_configuration_that_cannot_be_used_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "headgate.toml"
    file.write_text("[gateway]\nworkers = 0\n")
    with pytest.raises(ConfigError) as raised:
        run("--config", str(file))
    assert raised.value.exit_code == 2
    assert run("--config", str(file), "--json") == 2
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["check"], finding["subject"]) == ("configuration", "gateway.workers")


def test_a_peer_that_says_nothing_is_given_up_at_the_deadline_and_waited_for_aloud(
    tmp_path: Path, silent: Address, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    assert run("--config", write(tmp_path, str(silent), connect_timeout_ms=2_600)) == 1
    # ApiVersions, and then the look whether it is TLS that it waits for: one deadline each.
    assert time.monotonic() - began < 15
    out, err = capsys.readouterr()
    assert "is no Kafka broker" in out
    assert f"headgate: still asking {silent}" in err


def test_a_name_that_does_not_resolve_is_said_to() -> None:
    text = visit(Address("no.such.host.invalid", 9092))
    assert "does not resolve on this machine" in text
    assert "getent hosts no.such.host.invalid" in text


@pytest.mark.parametrize("address", [Address("a\0b", 9092), Address("x" * 300, 9092), Address("127.0.0.1", 99999)])
def test_what_a_broker_announces_may_be_no_address_at_all(address: Address) -> None:
    assert "->" in visit(address)


def test_a_name_that_a_broker_chose_is_quoted_in_lines_to_paste() -> None:
    assert "getent hosts 'x; reboot' " in visit(Address("x; reboot", 9092))


def test_a_port_that_says_nothing_in_tls_is_given_up(silent: Address) -> None:
    assert "no TLS handshake: no answer in time" in visit(silent, tls=True)


def test_a_resolver_that_fails_is_an_error_and_not_a_hang() -> None:
    with pytest.raises(OSError, match=r".+"):
        asyncio.run(resolve("no.such.host.invalid", deadline_s=10))


def test_what_brokers_say_is_escaped() -> None:
    finding = problem(Check.UPSTREAM, "b:1", "said \x1b[31mred\nand more", mend="look\r")
    assert all(line.isprintable() for line in doctor.lines(finding))


def test_what_is_not_in_order_must_say_how_to_mend_it() -> None:
    with pytest.raises(AssertionError):
        problem(Check.UPSTREAM, "b:1", "broken", mend="")
