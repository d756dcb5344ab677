"""Which requests the gateway carries to a certain broker, and how each is treated.

A `Route` is one (api key, version): passed as it is, walked for its tail, or opened for interceptors. A table of them
is made once for each set of versions that brokers announce, so that a call that a broker does not have, which it
would answer by closing the socket, has no route.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.interceptor import Interceptor, Oversize, Prefilter, Versions
from headgate.wire import splice
from headgate.wire.apis import APIS, has_flexible_request, has_flexible_response
from headgate.wire.messages.data import FetchResponse, ProduceResponse
from headgate.wire.messages.share import ShareAcknowledgeResponse, ShareFetchResponse
from headgate.wire.schema import NEWEST, Message
from headgate.wire.walk import response_program

# Requests that a client may send before it is authenticated.
HANDSHAKE_KEYS = frozenset((ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS))

MOST_TABLES = 64  # brokers of a cluster have few versions; a broken one could say another at each connection

# The responses that may carry NodeEndpoints (KIP-951): from which version on, and their tail with nothing in it.
_TAILS: Final[dict[int, tuple[int, type[Message], splice.TailSplice, bytes]]] = {
    ApiKey.PRODUCE: (10, ProduceResponse, splice.tagged_endpoints, b"\x00"),
    ApiKey.FETCH: (16, FetchResponse, splice.tagged_endpoints, b"\x00"),
    ApiKey.SHARE_FETCH: (0, ShareFetchResponse, splice.plain_endpoints, b"\x01\x00"),
    ApiKey.SHARE_ACKNOWLEDGE: (0, ShareAcknowledgeResponse, splice.plain_endpoints, b"\x01\x00"),
}
_NO_TAIL: Final = (NEWEST + 1, Message, splice.tagged_endpoints, b"")


class Route:
    """How one version of one call goes through; the counters are read by the metrics page."""

    __slots__ = (
        "api_key",
        "api_version",
        "awaits_proof",
        "calls",
        "empty_tail",
        "flexible_request",
        "flexible_response",
        "interceptors",
        "knows",
        "max_bytes",
        "max_response_bytes",
        "name",
        "opened_calls",
        "passes_large",
        "passes_unproved",
        "plain_responses",
        "prefilter",
        "prefilter_of_large",
        "spliced_calls",
        "tail_program",
        "tail_splice",
        "truncated_bytes",
        "watchers",
    )

    def __init__(self, api_key: ApiKey, api_version: ApiVersion, interceptors: Sequence[Interceptor[Any]]) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.name = APIS[api_key].name
        self.flexible_request = has_flexible_request(api_key, api_version)
        self.flexible_response = has_flexible_response(api_key, api_version)
        self.interceptors = tuple(one for one in interceptors if api_key in one.api_keys)
        self.watchers = tuple(one for one in interceptors if api_key in one.stream_keys)
        # The only interceptor, if it recognizes requests and responses (`Interceptor.known_request`).
        knowing = [one for one in self.interceptors if type(one).known_request is not Interceptor.known_request]
        self.knows = knowing[0] if knowing and len(self.interceptors) == 1 and not self.flexible_response else None
        self.max_bytes = min((one.max_bytes for one in self.interceptors), default=Interceptor.max_bytes)
        self.max_response_bytes = min(
            (one.max_bytes if one.max_response_bytes is None else one.max_response_bytes for one in self.interceptors),
            default=Interceptor.max_bytes,
        )
        self.prefilter = _any_of([one.prefilter(api_version) for one in self.interceptors])
        oversize = {one.oversize(api_version) for one in self.interceptors}
        self.passes_unproved = oversize == {Oversize.PASS_UNPROVED}
        passing = {Oversize.AWAIT_PROOF_OR_PASS, Oversize.AWAIT_PROOF_OR_FILTER}
        self.awaits_proof = oversize <= {Oversize.AWAIT_PROOF, *passing}
        self.passes_large = oversize <= passing
        filtering = [one for one in self.interceptors if one.oversize(api_version) is Oversize.AWAIT_PROOF_OR_FILTER]
        self.prefilter_of_large = _any_of([one.prefilter(api_version) for one in filtering])
        self.truncated_bytes = min(
            (one.truncated_bytes for one in self.interceptors if one.truncated_bytes is not None), default=None
        )
        first, response_class, self.tail_splice, self.empty_tail = _TAILS.get(api_key, _NO_TAIL)
        self.tail_program = response_program(response_class, api_version) if api_version >= first else None
        # By length: how to know small responses without addresses (`cut_through.with_own_addresses`).
        self.plain_responses: dict[int, tuple[int, int]] = {}
        self.calls = 0
        self.opened_calls = 0
        self.spliced_calls = 0


def _any_of(prefilters: Sequence[Prefilter | None]) -> Prefilter | None:
    """Opens what one of them opens; None, which opens everything, if one of the interceptors has none."""
    tests = [one for one in prefilters if one is not None]
    if not tests or len(tests) < len(prefilters):
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda view, pos, end: any(test(view, pos, end) for test in tests)


RouteTable = Mapping[int, Route]  # by api key << 16 | version


class Routes:
    """All routes of a process, and the table for each set of versions."""

    def __init__(self, interceptors: Sequence[Interceptor[Any]], denied: Iterable[int] = ()) -> None:
        self.interceptors = tuple(interceptors)
        self.denied = frozenset(denied)
        # Those that want to know, of every connection.
        self.on_open = tuple(one for one in interceptors if type(one).on_open is not Interceptor.on_open)
        self.on_close = tuple(one for one in interceptors if type(one).on_close is not Interceptor.on_close)
        self._routes: dict[int, Route] = {}
        self._tables: dict[tuple[tuple[int, tuple[int, int]], ...], RouteTable] = {}
        # The same tables by the identity of the mapping, which is kept, so that no other can have its number.
        self._by_identity: dict[int, tuple[Versions, RouteTable]] = {}

    @property
    def table_count(self) -> int:
        """Tables that are kept, each for another set of versions."""
        return len(self._tables)

    def announce(self, broker: Versions) -> dict[int, tuple[int, int]]:
        """The versions that clients may use: the broker's that the gateway carries, and those of interceptors."""
        announced: dict[int, tuple[int, int]] = {}
        for key, (lowest, highest) in broker.items():
            api = APIS.get(key)
            if api is None or key in self.denied:
                continue
            # Brokers announce Produce from 0, which they refuse: old librdkafka looks for it. Stay equal to them.
            low = lowest if key == ApiKey.PRODUCE else max(lowest, api.min_version)
            high = min(highest, api.max_version)
            if low <= high:
                announced[key] = (low, high)
        if announced.pop(ApiKey.SASL_HANDSHAKE, (0, 0))[1]:
            announced[ApiKey.SASL_HANDSHAKE] = (1, 1)  # version 0 is followed by tokens without headers
        for interceptor in self.interceptors:
            for key, (low, high) in interceptor.added_versions(broker).items():
                if key not in self.denied:
                    was = announced.get(key, (low, high))
                    announced[key] = (min(was[0], low), max(was[1], high))
            for key, highest in interceptor.version_limits(broker).items():
                if key in announced:
                    low, high = announced.pop(key)
                    if low <= highest:
                        announced[key] = (low, min(high, highest))
        return announced

    def table(self, broker: Versions) -> RouteTable:
        """The routes to a broker that has these versions; the mapping does not change afterwards."""
        known = self._by_identity.get(id(broker))
        if known is not None:
            return known[1]
        signature = tuple(sorted(broker.items()))
        table = self._tables.get(signature)
        if table is None:
            table = {}
            for key, (low, high) in self.announce(broker).items():
                for version in range(max(low, APIS[key].min_version), high + 1):
                    table[key << 16 | version] = self.route(ApiKey(key), ApiVersion(version))
            if len(self._tables) >= MOST_TABLES:
                self._tables.clear()
            self._tables[signature] = table
        if len(self._by_identity) >= MOST_TABLES:
            self._by_identity.clear()
        self._by_identity[id(broker)] = (broker, table)
        return table

    def route(self, api_key: ApiKey, api_version: ApiVersion) -> Route:
        number = api_key << 16 | api_version
        route = self._routes.get(number)
        if route is None:
            route = self._routes[number] = Route(api_key, api_version, self.interceptors)
        return route

    def api_versions(self) -> Route:
        """The route of an ApiVersions request of any version: it must be answered, never refused (KIP-511)."""
        return self.route(ApiKey.API_VERSIONS, ApiVersion(APIS[ApiKey.API_VERSIONS].max_version))

    def used(self) -> Iterable[Route]:
        return [route for route in self._routes.values() if route.calls]
