"""What the figures were measured on and with: they mean nothing without it."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from headgate.embedded.java import find_java, jars_folder

ROOT = Path(__file__).resolve().parents[1]


def facts() -> dict[str, str]:
    """Machine and versions, in the order in which the page shows them; `cores` is a plain number."""
    return {
        "headgate": _commit(),
        "processor": _line("/proc/cpuinfo", "model name"),
        "cores": str(os.cpu_count() or 1),
        "memory": f"{int(_line('/proc/meminfo', 'MemTotal').split()[0]) / 1e6:.0f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "Python": f"{platform.python_version()}, uvloop {version('uvloop')}",
        "Java": str(find_java().version),
        "Kafka": _kafka(),
    }


def _commit() -> str:
    git = ["git", "-C", str(ROOT)]
    try:
        commit = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
        changed = subprocess.run(
            [*git, "status", "--porcelain", "src"], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown commit"
    return f"commit {commit}{' with changes in src' if changed else ''}"


def _line(file: str, name: str) -> str:
    for line in Path(file).read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "0 unknown"


def _kafka() -> str:
    jars = sorted((jars_folder() / "broker").glob("kafka-server-[0-9]*.jar"))
    return jars[-1].stem.removeprefix("kafka-server-") if jars else "unknown"
