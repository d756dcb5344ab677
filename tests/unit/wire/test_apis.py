"""The table of all apis; the contract tests compare its rows with Kafka's definitions."""

import pytest
from confluent_kafka import KafkaError

from headgate.base.errors import WireError
from headgate.base.ids import ApiKey
from headgate.wire.apis import APIS, RETIRED_KEYS, api_name, api_of, has_flexible_request, has_flexible_response
from headgate.wire.errors import ErrorCode
from tests.support.messages import REQUESTS


def test_every_key_to_94_is_known_or_retired() -> None:
    assert set(ApiKey) == set(range(95))
    assert {4, 5, 6, 7} == RETIRED_KEYS == set(ApiKey) - set(APIS)


def test_names_are_labels_and_so_are_all_different() -> None:
    assert len({api.name for api in APIS.values()}) == len(APIS)
    assert all(api.name.isalnum() for api in APIS.values())


def test_an_api_has_versions_and_is_flexible_from_one_on() -> None:
    produce, handshake = APIS[0], APIS[17]
    assert [version for version in range(20) if produce.has_version(version)] == list(range(3, 14))
    assert [produce.is_flexible(version) for version in (8, 9)] == [False, True]
    assert not any(handshake.is_flexible(version) for version in range(20))


@pytest.mark.parametrize(
    ("key", "version", "in_request", "in_response"),
    [
        (18, 2, False, False),
        (18, 3, True, False),  # ApiVersions responses keep header 0
        (18, 5, True, False),
        (18, 99, True, False),
        (0, 8, False, False),
        (0, 9, True, True),
        (17, 1, False, False),  # SaslHandshake never became flexible
        (47, 0, False, False),
        (89, 0, True, True),
    ],
)
def test_headers_follow_the_first_flexible_version(key: int, version: int, in_request: bool, in_response: bool) -> None:
    assert has_flexible_request(key, version) == in_request
    assert has_flexible_response(key, version) == in_response


def test_an_unknown_key_is_refused_and_has_one_label() -> None:
    for key in (-1, 4, 95, 32767):
        assert api_name(key) == "unknown"
        with pytest.raises(WireError, match=f"api key {key}"):
            api_of(key)
    assert api_name(88) == "StreamsGroupHeartbeat"


def test_a_request_knows_its_response_and_both_have_the_versions_of_their_api() -> None:
    for request in REQUESTS.values():
        api = APIS[request.api_key]
        for cls, suffix in ((request, "Request"), (request.response_class(), "Response")):
            assert cls.__name__ == api.name + suffix
            assert cls.api_key == api.key
            assert (cls.valid[0], cls.valid[-1]) == (api.min_version, api.max_version)
            assert all((version in cls.flexible) == api.is_flexible(version) for version in cls.valid)


def test_error_codes_are_those_that_librdkafka_has_under_the_same_name() -> None:
    theirs = {code.name: getattr(KafkaError, code.name) for code in ErrorCode if hasattr(KafkaError, code.name)}
    assert len(theirs) > 20
    assert theirs == {code.name: code.value for code in ErrorCode if code.name in theirs}
