"""The messages that the doctor sends against the definitions inside kafka-clients 4.4.0."""

import pytest

from headgate.wire.messages import admin as messages
from headgate.wire.schema import Message, versions_of
from tests.contract.test_tables import ours, theirs
from tests.support.definitions import definition_of

TABLES = (
    messages.CreateTopicsRequest,
    messages.CreateTopicsResponse,
    messages.EndTxnRequest,
    messages.EndTxnResponse,
    messages.DescribeTransactionsRequest,
    messages.DescribeTransactionsResponse,
    messages.DescribeQuorumRequest,
    messages.DescribeQuorumResponse,
)
LEFT_OUT = "topicConfigErrorCode"  # a tag, kept as an unknown one


@pytest.mark.parametrize("cls", TABLES, ids=lambda cls: cls.__name__)
def test_the_table_is_kafkas(cls: type[Message]) -> None:
    definition = definition_of(cls.__name__)
    assert cls.valid == versions_of(definition["validVersions"])
    for version in cls.valid:
        expected = theirs(definition, version)
        for one in expected:
            if one["fields"]:
                one["fields"] = [inner for inner in one["fields"] if inner["name"] != LEFT_OUT]
        assert ours(cls, version) == expected
