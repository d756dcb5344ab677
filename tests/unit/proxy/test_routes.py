"""Which calls have a route to a broker, and how each is treated."""

import pytest

from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.cluster import common_versions
from headgate.proxy.interceptor import Interceptor, Oversize, Session, Versions
from headgate.proxy.routes import MOST_TABLES, Route, Routes
from headgate.wire.apis import APIS
from tests.support.fake_upstream import BROKER_VERSIONS
from tests.unit.proxy.scripted import Scripted

TAILS = {0: range(10, 14), 1: range(16, 19), 78: range(1, 3), 79: range(1, 3)}


def test_a_table_has_what_the_broker_has_and_we_carry() -> None:
    table = Routes(()).table(BROKER_VERSIONS)
    found: dict[int, list[int]] = {}
    for number, route in table.items():
        assert (number >> 16, number & 0xFFFF) == (route.api_key, route.api_version)
        found.setdefault(route.api_key, []).append(route.api_version)
    assert found[0] == list(range(3, 14))  # announced from 0, carried from 3
    assert found[17] == [1]
    assert found[88] == [0]
    assert found.keys() == {key for key in BROKER_VERSIONS if key in APIS}


def test_only_answers_that_may_hold_addresses_are_walked() -> None:
    for number, route in Routes(()).table(BROKER_VERSIONS).items():
        is_walked = route.tail_program is not None
        assert is_walked == (number & 0xFFFF in TAILS.get(number >> 16, ())), route.name


def test_a_broker_that_announces_nonsense_gets_no_routes_for_it() -> None:
    routes = Routes(())
    assert routes.table({12: (5, 3), 3: (14, 99), 1: (-5, 2), 9999: (0, 1)}) == {}
    assert routes.table({12: (-3, 32767)}).keys() == {12 << 16 | version for version in range(5)}


def test_brokers_with_the_same_versions_share_a_table_and_all_share_their_routes() -> None:
    routes = Routes(())
    one = routes.table({12: (0, 4)})
    assert routes.table({12: (0, 4)}) is one
    other = routes.table({12: (2, 4), 3: (0, 13)})
    assert other[12 << 16 | 3] is one[12 << 16 | 3]


def test_a_broker_that_says_another_thing_each_time_does_not_fill_the_memory() -> None:
    routes = Routes(())
    for low in range(-1000, 0):
        routes.table({12: (low, 4)})
    assert routes.table_count <= MOST_TABLES


def test_a_denied_call_has_no_route_even_when_an_interceptor_adds_it() -> None:
    routes = Routes((Scripted(adds={93: (0, 0), 12: (0, 9)}),), denied=[93])
    announced = routes.announce({12: (1, 3)})
    assert announced == {12: (0, 9)}
    assert (93 << 16) not in routes.table({12: (1, 3)})


def test_a_route_knows_who_opens_and_who_watches_it() -> None:
    opening, watching = Scripted(keys=(12,)), Scripted(keys=(), stream_keys=(12, 1))
    routes = Routes((opening, watching))
    route = routes.route(ApiKey(12), ApiVersion(4))
    assert (route.interceptors, route.watchers) == ((opening,), (watching,))
    fetch = routes.route(ApiKey(1), ApiVersion(18))
    assert (fetch.interceptors, fetch.watchers) == ((), (watching,))
    assert not list(routes.used())


def test_the_bootstrap_port_carries_what_every_broker_has() -> None:
    newer = {3: (0, 13), 12: (0, 4), 93: (0, 0)}
    older = {3: (0, 12), 12: (1, 3), 17: (0, 1)}
    assert common_versions([newer, older]) == {3: (0, 12), 12: (1, 3)}
    assert common_versions([newer]) == newer
    assert common_versions([{12: (0, 1)}, {12: (2, 3)}]) == {}
    assert common_versions([]) == {}


class _Oversized(Interceptor[None]):
    api_keys = frozenset((ApiKey.HEARTBEAT,))

    def __init__(self, choice: Oversize) -> None:
        self._choice = choice

    def oversize(self, api_version: ApiVersion) -> Oversize:  # noqa: ARG002
        return self._choice


@pytest.mark.parametrize(
    ("choices", "passes_unproved", "awaits_proof", "passes_large"),
    [
        ([Oversize.CLOSE], False, False, False),
        ([Oversize.PASS_UNPROVED], True, False, False),
        ([Oversize.AWAIT_PROOF], False, True, False),
        ([Oversize.AWAIT_PROOF_OR_PASS], False, True, True),
        ([Oversize.AWAIT_PROOF, Oversize.AWAIT_PROOF_OR_PASS], False, True, False),
        ([Oversize.AWAIT_PROOF_OR_FILTER, Oversize.AWAIT_PROOF_OR_PASS], False, True, True),
        ([Oversize.AWAIT_PROOF_OR_FILTER, Oversize.AWAIT_PROOF], False, True, False),
        ([Oversize.AWAIT_PROOF_OR_FILTER, Oversize.CLOSE], False, False, False),
        ([Oversize.PASS_UNPROVED, Oversize.AWAIT_PROOF], False, False, False),
        ([Oversize.PASS_UNPROVED, Oversize.CLOSE], False, False, False),
        ([Oversize.AWAIT_PROOF_OR_PASS, Oversize.CLOSE], False, False, False),
    ],
)
def test_all_interceptors_of_a_request_permit_what_becomes_of_one_that_is_too_large(
    choices: list[Oversize], passes_unproved: bool, awaits_proof: bool, passes_large: bool
) -> None:
    route = Route(ApiKey.HEARTBEAT, ApiVersion(4), [_Oversized(choice) for choice in choices])
    assert (route.passes_unproved, route.awaits_proof, route.passes_large) == (
        passes_unproved,
        awaits_proof,
        passes_large,
    )


def test_a_table_is_found_by_the_mapping_and_by_its_content_and_never_confused() -> None:
    routes = Routes(())
    versions: Versions = {ApiKey.PRODUCE: (3, 13)}
    table = routes.table(versions)
    assert routes.table(versions) is table
    assert routes.table(dict(versions)) is table
    for number in range(200):  # as many mappings as a broken broker may send: numbers of freed ones are used again
        fetch: Versions = {ApiKey.FETCH: (4, 4 + number % 5)}
        other = routes.table(fetch)
        assert len(other) == 1 + number % 5
    assert routes.table(versions) == table


def test_only_interceptors_that_want_to_know_hear_of_connections() -> None:
    class Opening(Interceptor[None]):
        def on_open(self, session: Session) -> None: ...

    class Closing(Interceptor[None]):
        def on_close(self, session: Session) -> None: ...

    opening, closing, neither = Opening(), Closing(), Interceptor[None]()
    routes = Routes((opening, closing, neither))
    assert (routes.on_open, routes.on_close) == ((opening,), (closing,))
