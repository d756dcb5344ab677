"""ListOffsets and OffsetFetch against the definitions inside kafka-clients 4.4.0."""

import json
import re
from zipfile import ZipFile

import pytest

from headgate.kafka import offset_messages as messages
from headgate.kafka.java import JARS
from headgate.wire.schema import Message, versions_of
from tests.contract.test_tables import Definition, ours, theirs

TABLES = (
    messages.ListOffsetsRequest,
    messages.ListOffsetsResponse,
    messages.OffsetFetchRequest,
    messages.OffsetFetchResponse,
)


def definition_of(cls: type[Message]) -> Definition:
    (jar,) = (JARS / "clients").glob("kafka-clients-*.jar")
    with ZipFile(jar) as opened:
        text = opened.read(f"common/message/{cls.__name__}.json").decode()
    found: Definition = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return found


@pytest.mark.parametrize("cls", TABLES, ids=lambda cls: cls.__name__)
def test_the_table_is_kafkas(cls: type[Message]) -> None:
    definition = definition_of(cls)
    assert cls.valid == versions_of(definition["validVersions"])
    for version in cls.valid:
        assert ours(cls, version) == theirs(definition, version)
