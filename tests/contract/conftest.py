"""The two witnesses of the codec: the message definitions inside the client's jar, and its classes in a JVM."""

from collections.abc import Iterator

import pytest

from tests.support.definitions import Definition, all_definitions
from tests.support.oracle import Oracle


@pytest.fixture(scope="session")
def definitions() -> dict[str, Definition]:
    return all_definitions()


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running
