"""Which packages each command and a worker import: every one costs time at each start, and memory in each worker."""

import argparse
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from headgate.cli.main import COMMANDS, main

HEAVY: Final = frozenset(
    {
        *("asyncio", "confluent_kafka", "cramjam", "cryptography", "deltalake", "duckdb", "fastapi", "google_crc32c"),
        *(
            "greenlet",
            "h11",
            "numpy",
            "pandas",
            "prometheus_client",
            "pyarrow",
            "pydantic",
            "pyspark",
            "rich",
            "scramp",
            "starlette",
            "structlog",
        ),
        *("importlib.metadata", "rustworkx", "uvicorn", "uvloop"),
    }
)
TABLES: Final = {"deltalake", "duckdb", "numpy", "pyarrow"}
GATEWAY: Final = {"asyncio", "confluent_kafka", "structlog", "uvloop"}

# Packages that no worker uses; how texts of topologies are read, compared and drawn is for commands.
ELSEWHERE: Final = (
    *("headgate.client", "headgate.doctor", "headgate.embedded", "headgate.lineage", "headgate.pipeline"),
    *("headgate.sample", "headgate.spark", "headgate.tables", "headgate.web", "headgate.proxy.supervisor"),
    *("headgate.proxy.status", "headgate.proxy.exposition", "headgate.topologies.admin", "headgate.share_groups.admin"),
    *("headgate.topologies.model.topology_diff", "headgate.topologies.model.topology_parser"),
    *("headgate.topologies.model.topology_pictures", "headgate.topologies.model.topology_text"),
)

COMMAND: Final = """
from headgate.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
"""


def imported(program: str, *arguments: str) -> set[str]:
    """The heavy packages that a program has imported at its end."""
    report = f"\nprint(json.dumps([name for name in {sorted(HEAVY)} if sys.modules.get(name)]))"
    return set(json.loads(run(f"{program}{report}", *arguments)))


def run(program: str, *arguments: str) -> str:
    """The last line that a program prints."""
    command = [sys.executable, "-c", f"import json, sys\n{program}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (("--help",), set()),
        (("--version",), set()),
        (("nonsense",), set()),
        (("config", "check", "FILE"), set()),
        (("kafka", "--help"), set()),
        (("topology", "parse", "FILE"), GATEWAY - {"uvloop"}),
        (("connectors", "--url", "http://127.0.0.1:1", "topics", "a"), set()),
        (("tables", "--help"), set()),
        (("tables", "list", "--path", "."), TABLES | {"importlib.metadata"}),
        (("tables", "show", "changes", "--path", "."), TABLES | {"importlib.metadata"}),
        (("lineage", "--help"), set()),
        (("dlq", "--help"), set()),
        (("dlq", "audit", "--path", "."), TABLES | {"importlib.metadata"}),
        (("lineage", "impact", "orders", "--path", "."), TABLES | {"importlib.metadata", "rustworkx"}),
        (("streams-groups", "--bootstrap-server", "127.0.0.1:1", "--list"), {"asyncio"}),
        # structlog loads rich and greenlet where they are installed, unless headgate.cli.logs is imported before it.
        (("share-groups", "--help"), {"asyncio", "structlog", "rich", "greenlet"}),
        (("doctor", "--help"), {"asyncio", "confluent_kafka", "cryptography", "structlog", "rich", "greenlet"}),
        (("web", "--help"), {"asyncio", "structlog", "uvloop"}),
        (("pipeline", "--help"), {"asyncio", "confluent_kafka", "h11", "structlog"}),
        (("serve", "--help"), GATEWAY | {"h11"}),
        (("dev", "--help"), GATEWAY),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_command_imports_only_what_it_uses(arguments: tuple[str, ...], allowed: set[str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    found = imported(COMMAND, *(str(file) if word == "FILE" else word for word in arguments))
    assert found <= allowed


def test_a_worker_imports_only_what_it_uses() -> None:
    assert imported("import headgate.cli.worker") == GATEWAY


def test_a_worker_does_not_import_how_a_configuration_is_read() -> None:
    loaded = "print(json.dumps([name for name in sys.modules if name.startswith(('headgate.', 'tomllib', 'ctypes'))]))"
    done = run(f"import headgate.cli.worker\n{loaded}")
    names = set(json.loads(done))
    assert "headgate.config.model" in names
    absent = {"headgate.config.loading", "headgate.config.rules", "headgate.config.environment", "tomllib", "ctypes"}
    assert names.isdisjoint(absent)
    assert not {name for name in names if name.startswith(ELSEWHERE)}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_of_the_help_has_a_module_that_defines_its_arguments(name: str) -> None:
    parser = argparse.ArgumentParser()
    import_module(f"headgate.cli.{name.replace('-', '_')}").define_arguments(parser)
    assert parser.format_usage()


def test_the_help_lists_all_commands_with_their_summaries(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert all(f"{name} {summary}" in shown for name, summary in COMMANDS.items())
