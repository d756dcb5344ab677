"""Inside a run through the gateway: what clients saw against what the broker sent, call by call, byte by byte.

One rule: no tolerance. Where the gateway rewrites, the expected answer is made from the broker's own, and the client
must have got exactly that: the addresses of brokers, and the versions that ApiVersions announces.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.support.compare_calls import Call, Conversation, Difference, Tree, diff_of
from tests.support.recorder import Endpoint

API_VERSIONS = 18
GATEWAY_CLIENT_ID = "headgate"
# What Headgate announces in another range than a 4.3.1 broker, and why.
ANNOUNCED = {
    # After SaslHandshake v0 come tokens without headers, which no gateway can follow.
    17: (1, 1),
    # The gateway answers version 5 (KIP-1242) itself.
    18: (0, 5),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """What clients may see of the gateway."""

    host: str
    port: int

    def address(self, node_id: int) -> Endpoint:
        return Endpoint(self.host, self.port + 1 + node_id)


def compare_inside(
    clients: Sequence[Conversation], broker: Sequence[Conversation], gateway: Gateway
) -> list[Difference]:
    """Everything in which the two recordings of one run differ; empty when the gateway was transparent."""
    differences: list[Difference] = []
    for seen, sent in _matched(clients, [_without_own_calls(one) for one in broker], differences):
        differences += _compare_pair(seen, sent, gateway)
    return differences


def _without_own_calls(conversation: Conversation) -> Conversation:
    """The gateway may ask the broker on a client's connection; such calls carry its own client id."""
    clients = tuple(call for call in conversation.calls if call.client_id != GATEWAY_CLIENT_ID)
    return replace(conversation, calls=clients)


def _matched(
    clients: Sequence[Conversation], broker: Sequence[Conversation], differences: list[Difference]
) -> list[tuple[Conversation, Conversation]]:
    """Each client's connection with its upstream: the same calls by key, correlation id and client id.

    Several connections can look alike. Then equal requests decide, and among equals the order of opening: whatever
    else they differ in is found when they are compared.
    """
    upstreams: defaultdict[object, list[Conversation]] = defaultdict(list)
    for conversation in broker:
        if conversation.calls:
            upstreams[_outline(conversation)].append(conversation)
    matched: list[tuple[Conversation, Conversation]] = []
    for conversation in clients:
        if not conversation.calls:
            continue
        alike = upstreams[_outline(conversation)]
        if not alike:
            differences.append(Difference(str(conversation), _missing(conversation, broker)))
            continue
        exact = [one for one in alike if _requests(one) == _requests(conversation)]
        upstream = (exact or alike)[0]
        alike.remove(upstream)
        matched.append((conversation, upstream))
    differences += [
        Difference(str(left), "the broker was asked by nobody whom we know:\n" + _listing(left))
        for alike in upstreams.values()
        for left in alike
    ]
    return matched


def _outline(conversation: Conversation) -> object:
    return tuple((call.api_key, call.correlation_id, call.client_id) for call in conversation.calls)


def _requests(conversation: Conversation) -> list[bytes]:
    return [call.request.data for call in conversation.calls if call.api_key != API_VERSIONS]


def _missing(conversation: Conversation, broker: Sequence[Conversation]) -> str:
    """Say what is nearest: most often the same connection with a call lost, added or changed."""

    def shared(other: Conversation) -> int:
        return sum(a == b for a, b in zip(_listing_lines(conversation), _listing_lines(other), strict=False))

    nearest = max((one for one in broker if one.calls), key=shared, default=None)
    if nearest is None:
        return "no connection of the gateway to the broker has these calls:\n" + _listing(conversation)
    return "the broker did not get these calls on one connection; the nearest differs so:\n" + diff_of(
        _listing_lines(nearest), _listing_lines(conversation), "broker got", "client sent"
    )


def _listing_lines(conversation: Conversation) -> list[str]:
    return [str(call) for call in conversation.calls]


def _listing(conversation: Conversation) -> str:
    return "\n".join(_listing_lines(conversation))


def _compare_pair(seen: Conversation, sent: Conversation, gateway: Gateway) -> list[Difference]:
    differences: list[Difference] = []
    for client, broker in zip(seen.calls, sent.calls, strict=True):
        where = f"{seen}: {client}"
        differences += _compare_requests(where, client, broker)
        if client.answer is None and broker.answer is not None and not seen.left_by_client:
            differences.append(Difference(f"{where}: answer", "the broker sent one, and the client got none"))
        differences += _compare_answers(where, client, broker, gateway)
    return differences


def _compare_requests(where: str, client: Call, broker: Call) -> list[Difference]:
    if client.api_key == API_VERSIONS and client.version != broker.version:
        # Asked in the broker's own highest version, without the fields that it does not know.
        expected = {key: value for key, value in client.request.body.items() if key not in {"clusterId", "nodeId"}}
        expected_header = client.request.header | {"requestApiVersion": broker.version}
        return [
            *_unequal(f"{where}: request", broker.request.body, expected),
            *_unequal(f"{where}: request header", broker.request.header, expected_header),
        ]
    return _same_bytes(
        f"{where}: request", broker.request.data, client.request.data, broker.request.body, client.request.body
    )


def _compare_answers(where: str, client: Call, broker: Call, gateway: Gateway) -> list[Difference]:
    if client.answer is None:
        return []
    if broker.answer is None:
        return [Difference(f"{where}: answer", "the broker sent none, and the client got one")]
    title = f"{where}: answer"
    if client.answer.header != broker.answer.header:
        return _unequal(f"{title} header", client.answer.header, broker.answer.header)
    rewrite = REWRITTEN.get(client.api_key)
    expected = broker.answer.body if rewrite is None else rewrite(broker.answer.body, gateway)
    if expected == broker.answer.body and client.version == broker.version:
        return _same_bytes(title, client.answer.data, broker.answer.data, client.answer.body, broker.answer.body)
    differences = _unequal(title, client.answer.body, expected)
    if broker.answer.is_canonical and not client.answer.is_canonical:
        differences.append(Difference(title, f"bytes that are in no field: {client.answer.data.hex(' ')}"))
    return differences


def _same_bytes(title: str, got: bytes, wanted: bytes, got_tree: Tree, wanted_tree: Tree) -> list[Difference]:
    if got == wanted:
        return []
    return _unequal(title, got_tree, wanted_tree) or [
        Difference(title, f"the same tree in other bytes:\n- {wanted.hex(' ')}\n+ {got.hex(' ')}")
    ]


def _unequal(title: str, got: Tree, wanted: Tree) -> list[Difference]:
    if got == wanted:
        return []
    return [Difference(title, diff_of(_lines(wanted), _lines(got), "expected", "got"))]


def _lines(tree: Tree) -> list[str]:
    return json.dumps(tree, indent=2, sort_keys=True).splitlines()


def _moved(tree: Tree, gateway: Gateway) -> Tree:
    """A struct with the address of a node, at the gateway; a struct that names no node stays as it is."""
    node = tree.get("nodeId", tree.get("brokerId", -1))
    if node < 0:
        return tree
    host, port = gateway.address(node)
    return tree | {"host": host, "port": port}


def _addresses(tree: Tree, gateway: Gateway) -> Tree:
    """An answer with the addresses of nodes at the gateway: in one of these arrays, or an old FindCoordinator's own."""
    for name in {"brokers", "coordinators", "nodeEndpoints"} & tree.keys():
        return tree | {name: [_moved(one, gateway) for one in tree[name]]}
    return _moved(tree, gateway)


def _api_versions(tree: Tree, gateway: Gateway) -> Tree:  # noqa: ARG001
    """A broker that does not know the asked version says so with error 35, and that passes."""
    if tree["errorCode"] != 0:
        return tree
    ranges = {one["apiKey"]: (one["minVersion"], one["maxVersion"]) for one in tree["apiKeys"]}
    ranges |= {key: value for key, value in ANNOUNCED.items() if key in ranges}
    return tree | {
        "apiKeys": [
            {"apiKey": key, "minVersion": low, "maxVersion": high} for key, (low, high) in sorted(ranges.items())
        ]
    }


REWRITTEN: dict[int, Callable[[Tree, Gateway], Tree]] = {
    API_VERSIONS: _api_versions,
    **dict.fromkeys((0, 1, 3, 10, 60, 78, 79), _addresses),
}


def addresses_seen(conversations: Sequence[Conversation]) -> set[Endpoint]:
    """Every address of a node that any answer showed."""
    found: set[Endpoint] = set()
    for conversation in conversations:
        for call in conversation.calls:
            if call.answer is not None and call.api_key in REWRITTEN:
                _collect(call.answer.body, found)
    return found


def _collect(tree: Tree, found: set[Endpoint]) -> None:
    if isinstance(tree, list):
        for item in tree:
            _collect(item, found)
    elif isinstance(tree, dict):
        if "host" in tree and "port" in tree and tree["host"]:
            found.add(Endpoint(tree["host"], tree["port"]))
        for value in tree.values():
            _collect(value, found)
