"""Java on this machine: the runtime, the jars, and the command line of a Kafka node.

What is missing is reported before anything is started. A class path names every jar in a fixed order, never a pattern,
so that the same tree always loads the same classes.
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
from headgate.base.ids import NodeId
from headgate.embedded.spec import ClusterSpec

ClassPath = Literal["broker", "clients"]  # Kafka 4.3.1 whole, or kafka-clients 4.4.0
Command = list[str | Path]

JAVA_NEEDED = 17
_CHECKOUT = Path(__file__).resolve().parents[3]
_JARS_HELP = "a folder with broker/, clients/ and spark/, such as java/lib of a source checkout after `make setup`"
_LOG4J = Path(__file__).with_name("log4j2.xml")
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
                f"JAVA_HOME is {home}, but {command} cannot be run: set it to Java {JAVA_NEEDED} or newer, or unset it"
            )
    else:
        found = shutil.which("java", path=environ.get("PATH"))
        if found is None:
            raise PlatformError(
                f"Java is not installed: install Java {JAVA_NEEDED} or newer (`make system` in a source checkout)"
            )
        command = Path(found)
    version = _version_of(command)
    if version < JAVA_NEEDED:
        raise PlatformError(
            f"{command} is Java {version}, and Kafka needs {JAVA_NEEDED} or newer:"
            " install it (`make system` in a source checkout), or set JAVA_HOME to it"
        )
    return Java(command=command, version=version)


def jars_folder(environ: Mapping[str, str] = os.environ, checkout: Path = _CHECKOUT) -> Path:
    """HEADGATE_JARS, or else java/lib of a source checkout; `PlatformError` when Headgate runs from neither."""
    if environ.get("HEADGATE_JARS"):
        return Path(environ["HEADGATE_JARS"])
    if not (checkout / "pyproject.toml").is_file():
        raise PlatformError(f"Headgate's jars are not part of its package: set HEADGATE_JARS to {_JARS_HELP}")
    return checkout / "java" / "lib"


def class_path(name: ClassPath, *own: str, jars: Path | None = None) -> str:
    """The -cp argument: the jars of `name`, after Headgate's own ("oracle" is headgate-oracle.jar)."""
    folder = jars_folder() if jars is None else jars
    first = [folder / f"headgate-{part}.jar" for part in own]
    rest = sorted((folder / name).glob("*.jar"))
    missing = next((jar for jar in first if not jar.is_file()), None if rest else folder / name)
    if missing is None:
        return os.pathsep.join(str(jar) for jar in (*first, *rest))
    if os.environ.get("HEADGATE_JARS"):
        raise PlatformError(f"{missing} does not exist: set HEADGATE_JARS to {_JARS_HELP}")
    raise PlatformError(f"the Java parts are not built ({missing} is missing): run `make setup` in {folder.parents[1]}")


def archive_of(name: ClassPath, jars: Path | None = None) -> Path:
    """The class archive of a class path without own jars; `scripts/class-archive` writes that of `broker`."""
    return (jars_folder() if jars is None else jars) / f"{name}.jsa"


def archive_options(archive: Path) -> Command:
    """Options by which a JVM maps the classes of the archive instead of loading them from jars; none without it.

    A JVM ignores an archive of another Java, or of other jars: it must not report that among a program's output.
    """
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off", "-Xlog:class+path=off"] if archive.is_file() else []


def _version_of(command: Path) -> int:
    """The major version: from the runtime's `release` file, which needs no JVM, or else by running it."""
    try:
        text = (command.resolve().parents[1] / "release").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = _VERSION.search(text)
    if found is None:
        try:
            asked = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PlatformError(f"{command} cannot be run ({error}): install Java {JAVA_NEEDED}") from error
        found = _VERSION.search(asked.stderr)
    if found is None:
        raise PlatformError(f"{command} does not print its version: install Java {JAVA_NEEDED}")
    return int(found[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaJvm:
    """Runs a program of the broker's class path for a node of this cluster."""

    java: Path
    jars: str
    archive: Path
    spec: ClusterSpec

    @classmethod
    def find(cls, spec: ClusterSpec) -> "KafkaJvm":
        """`PlatformError` when Java or the jars are missing."""
        java, jars = find_java().command.absolute(), class_path("broker")
        return cls(java=java, jars=jars, archive=archive_of("broker"), spec=spec)

    def log(self, node: NodeId) -> Path:
        return self.spec.logs.absolute() / f"node-{node}.log"

    def command(self, node: NodeId, main_class: str, *arguments: str | Path) -> Command:
        # The first compiler alone and the serial collector start fastest on few cores.
        quick = [] if self.spec.full_jit else ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        return [
            self.java,
            *quick,
            *archive_options(self.archive),
            f"-Xmx{self.spec.heap_mb}m",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={_LOG4J}",
            f"-Dheadgate.log={self.log(node)}",
            "-cp",
            self.jars,
            main_class,
            *arguments,
        ]
