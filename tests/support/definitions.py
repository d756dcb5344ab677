"""Kafka's own message definitions, as they stand inside the jar of kafka-clients 4.4.0."""

import json
import re
from typing import Any
from zipfile import ZipFile

from headgate.embedded.java import jars_folder

JAR = jars_folder() / "clients" / "kafka-clients-4.4.0.jar"
Definition = dict[str, Any]


def definition_of(name: str) -> Definition:
    """The definition of one message."""
    with ZipFile(JAR) as jar:
        return _read(jar, f"common/message/{name}.json")


def all_definitions() -> dict[str, Definition]:
    """Every definition in the jar by its name."""
    with ZipFile(JAR) as jar:
        paths = [path for path in jar.namelist() if re.fullmatch(r"common/message/\w+\.json", path)]
        return {found["name"]: found for found in (_read(jar, path) for path in paths)}


def _read(jar: ZipFile, path: str) -> Definition:
    # Comments stand on lines of their own.
    found: Definition = json.loads(re.sub(r"^\s*//.*$", "", jar.read(path).decode(), flags=re.MULTILINE))
    return found
