"""Header versions, names and classes by api key."""

import pytest

from headgate.base.errors import WireError
from headgate.wire.registry import CALLS, api_name, api_of, request_header_version, response_header_version


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (18, 2, 1, 0),
        (18, 3, 2, 0),  # ApiVersions responses keep header 0
        (18, 5, 2, 0),
        (18, 99, 2, 0),
        (0, 8, 1, 0),
        (0, 9, 2, 1),
        (17, 1, 1, 0),  # SaslHandshake never became flexible
        (47, 0, 1, 0),
        (89, 0, 2, 1),
    ],
)
def test_headers_follow_the_first_flexible_version(
    key: int, version: int, request_header: int, response_header: int
) -> None:
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header


def test_an_unknown_key_is_refused_and_has_one_label() -> None:
    for key in (-1, 4, 95, 32767):
        assert api_name(key) == "unknown"
        with pytest.raises(WireError, match=f"api key {key}"):
            api_of(key)
    assert api_name(88) == "StreamsGroupHeartbeat"


def test_classes_carry_the_name_and_the_versions_of_their_call() -> None:
    for call in CALLS.values():
        for cls, suffix in ((call.request, "Request"), (call.response, "Response")):
            assert cls.__name__ == call.api.name + suffix
            assert (cls.valid[0], cls.valid[-1]) == (call.api.min_version, call.api.max_version)
            assert all((version in cls.flexible) == call.api.is_flexible(version) for version in cls.valid)
