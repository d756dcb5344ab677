"""The two witnesses of the codec: the message definitions inside the client's jar, and its classes in a JVM."""

import json
import re
from collections.abc import Iterator
from typing import Any
from zipfile import ZipFile

import pytest

from tests.support.oracle import CLIENTS, Oracle

JAR = CLIENTS / "kafka-clients-4.4.0.jar"


@pytest.fixture(scope="session")
def definitions() -> dict[str, dict[str, Any]]:
    """Every definition in the jar by its name; comments stand on lines of their own."""
    found = {}
    with ZipFile(JAR) as jar:
        for name in jar.namelist():
            if re.fullmatch(r"common/message/\w+\.json", name):
                text = re.sub(r"^\s*//.*$", "", jar.read(name).decode(), flags=re.MULTILINE)
                definition = json.loads(text)
                found[definition["name"]] = definition
    return found


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running
