"""`headgate doctor` as an operator sees it, without a cluster."""

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
from headgate.doctor.brokers import AddressCheck
from headgate.doctor.findings import Check, FindingVerdict, problem
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
    doctor.define_arguments(parser.add_subparsers().add_parser("doctor"))
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
    check = AddressCheck(upstream=UpstreamConfig(**upstream), deadline_s=0.5)  # type: ignore[arg-type]
    seen = asyncio.run(check.visit(address, label="x", source="upstream.bootstrap"))
    assert seen.broker is None
    assert seen.finding.verdict is FindingVerdict.PROBLEM
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


def test_a_silent_peer_times_out_and_the_slow_step_is_reported(
    tmp_path: Path, silent: Address, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    assert run("--config", write(tmp_path, str(silent), connect_timeout_ms=2_600)) == 1
    # ApiVersions, then a TLS handshake to see whether the port expects TLS: one timeout each.
    assert time.monotonic() - began < 15
    out, err = capsys.readouterr()
    assert "does not respond as a Kafka broker" in out
    assert f"headgate: still asking {silent}" in err


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (Address("no.such.host.invalid", 9092), "does not resolve on this machine"),
        (Address("x; reboot", 9092), "getent hosts 'x; reboot' "),  # brokers choose names in commands to paste
        *(
            (address, "->")
            for address in (Address("a\0b", 9092), Address("x" * 300, 9092), Address("127.0.0.1", 99999))
        ),
    ],
)
def test_an_address_that_cannot_be_resolved_is_a_problem(address: Address, text: str) -> None:
    assert text in visit(address)


def test_a_port_that_does_not_answer_a_tls_handshake_times_out(silent: Address) -> None:
    assert "no TLS handshake: no response in time" in visit(silent, tls=True)


def test_what_brokers_say_is_escaped() -> None:
    finding = problem(Check.UPSTREAM, "b:1", "said \x1b[31mred\nand more", mend="look\r")
    assert all(line.isprintable() for line in doctor.lines(finding))


def test_a_finding_that_is_not_ok_must_say_how_to_correct_it() -> None:
    with pytest.raises(AssertionError):
        problem(Check.UPSTREAM, "b:1", "broken", mend="")
