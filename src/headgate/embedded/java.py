"""Java on this machine: which runtime, which class path.

One rule: say what is missing before anything is started. The jars come from `make setup` (scripts/jars); a class
path names every jar in a fixed order, never a pattern, so that the same tree always loads the same classes.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headgate.base.errors import PlatformError

ClassPath = Literal["broker", "clients"]  # Kafka 4.3.1 whole, or kafka-clients 4.4.0

JAVA_NEEDED = 17
JARS = Path(__file__).resolve().parents[3] / "java" / "lib"

_VERSION = re.compile(r'(?:^JAVA_VERSION=|version )"(?:1\.)?(\d+)', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime that is new enough."""

    command: Path
    version: int


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The runtime of JAVA_HOME, or else the one on PATH; `PlatformError` when there is none of version 17 or newer."""
    home = environ.get("JAVA_HOME")
    if home:
        command = Path(home) / "bin" / "java"
        if not os.access(command, os.X_OK):
            raise PlatformError(
                f"JAVA_HOME is {home}, but {command} cannot be run: set it to a Java {JAVA_NEEDED} or unset it"
            )
    else:
        found = shutil.which("java", path=environ.get("PATH"))
        if found is None:
            raise PlatformError(f"Java is not installed: `make system` installs a Java {JAVA_NEEDED}")
        command = Path(found)
    version = _version_of(command)
    if version < JAVA_NEEDED:
        raise PlatformError(
            f"{command} is Java {version}, and Kafka needs {JAVA_NEEDED} or newer:"
            " install one with `make system`, or set JAVA_HOME to it"
        )
    return Java(command=command, version=version)


def class_path(name: ClassPath, *own: str, jars: Path = JARS) -> str:
    """The jars of `name`, after those of our own `own` ("oracle" is headgate-oracle.jar), as the -cp argument."""
    missing = f"the Java parts are not built ({{}} is missing): run `make setup` in {jars.parents[1]}"
    first = [jars / f"headgate-{part}.jar" for part in own]
    for jar in first:
        if not jar.is_file():
            raise PlatformError(missing.format(jar))
    rest = sorted((jars / name).glob("*.jar"))
    if not rest:
        raise PlatformError(missing.format(jars / name))
    return os.pathsep.join(str(jar) for jar in (*first, *rest))


def _version_of(command: Path) -> int:
    """The feature version: from the runtime's `release` file, which costs no JVM, or else by asking it."""
    try:
        text = (command.resolve().parents[1] / "release").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = _VERSION.search(text)
    if found is None:
        try:
            asked = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PlatformError(f"{command} does not run ({error}): install a Java {JAVA_NEEDED}") from error
        found = _VERSION.search(asked.stderr)
    if found is None:
        raise PlatformError(f"{command} does not say which Java it is: install a Java {JAVA_NEEDED}")
    return int(found[1])
