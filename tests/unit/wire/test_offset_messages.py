"""ListOffsets and OffsetFetch against the definitions inside kafka-clients 4.4.0."""

import pytest

from headgate.wire.messages import offsets as messages
from headgate.wire.schema import Message, versions_of
from tests.contract.test_tables import ours, theirs
from tests.support.definitions import definition_of

TABLES = (
    messages.ListOffsetsRequest,
    messages.ListOffsetsResponse,
    messages.OffsetFetchRequest,
    messages.OffsetFetchResponse,
)


@pytest.mark.parametrize("cls", TABLES, ids=lambda cls: cls.__name__)
def test_the_table_is_kafkas(cls: type[Message]) -> None:
    definition = definition_of(cls.__name__)
    assert cls.valid == versions_of(definition["validVersions"])
    for version in cls.valid:
        assert ours(cls, version) == theirs(definition, version)
