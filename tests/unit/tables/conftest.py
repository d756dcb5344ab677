"""The places in which tables are tested: a folder, and an object store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.base.locations import Location
from tests.support.object_stores import ObjectStoreServer, moto_server


@pytest.fixture(scope="session")
def store() -> Iterator[ObjectStoreServer]:
    with moto_server() as server:
        yield server


@pytest.fixture(params=["folder", pytest.param("store", marks=pytest.mark.object_store)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """Where the tables of a test are; a rule that holds in both places is tested in both."""
    if request.param == "folder":
        return tmp_path
    server: ObjectStoreServer = request.getfixturevalue("store")
    return server.new_location()
