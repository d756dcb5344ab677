"""The table of all calls; the contract tests compare its rows with Kafka's definitions."""

from headgate.wire.apis import APIS, RETIRED_KEYS


def test_every_key_to_94_is_known_or_retired() -> None:
    assert set(APIS) | RETIRED_KEYS == set(range(95))
    assert not set(APIS) & RETIRED_KEYS


def test_names_are_labels_and_so_are_all_different() -> None:
    assert len({api.name for api in APIS.values()}) == len(APIS)
    assert all(api.name.isalnum() for api in APIS.values())


def test_a_call_carries_its_versions_and_is_flexible_from_one_on() -> None:
    produce, handshake = APIS[0], APIS[17]
    assert [version for version in range(20) if produce.carries(version)] == list(range(3, 14))
    assert [produce.is_flexible(version) for version in (8, 9)] == [False, True]
    assert not any(handshake.is_flexible(version) for version in range(20))
