"""Where the comparisons are made: one broker, one gateway, and recorders on both sides of it.

    direct       client -> 127.0.0.2:B recorder -> 127.0.0.1:B broker
    gateway      client -> 127.0.0.3:P recorder -> 127.0.0.1:P gateway -> 127.0.0.2:B recorder -> 127.0.0.1:B broker

The broker announces 127.0.0.2:B, the gateway 127.0.0.3:P+1+node: a client that follows an address it was told meets
a recorder, and an address that leaks is one that no client of the gateway may know.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from headgate.embedded import ClusterAccess, ClusterSpec, EmbeddedKafka
from headgate.embedded.spec import QUICK_SETTINGS
from tests.support.compare_across import Run, compare_across
from tests.support.compare_calls import Conversation, Difference, Frame, frames, read, report
from tests.support.compare_inside import GATEWAY_CLIENT_ID, Gateway, addresses_seen, compare_inside
from tests.support.gateway import GatewayProcess, GatewaySetup
from tests.support.oracle import Oracle
from tests.support.ports import port_block
from tests.support.recorder import Connection, Endpoint, Recorder, Side

LOOPBACK, BROKER_HOST, GATEWAY_HOST = "127.0.0.1", "127.0.0.2", "127.0.0.3"
# Within a block of 16 ports; three brokers take the first nine.
_GATEWAY_OFFSET, _METRICS_OFFSET, _FREE_OFFSET = 9, 13, 14

# Python clients ask for metadata with auto-creation on: a topic that was just deleted would come back.
_SETTINGS = {"auto.create.topics.enable": "false"}

_REPORTED_S = 10.0

Script = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Through:
    """A run through the gateway: what the clients saw, and what the broker saw."""

    clients: Sequence[Conversation]
    broker: Sequence[Conversation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Scripts are given a bootstrap address and run to their end; their clients must be closed then."""

    oracle: Oracle
    gateway: GatewayProcess
    at_broker: Recorder
    at_gateway: Recorder
    brokers: tuple[Endpoint, ...]
    free_port: int

    @property
    def broker(self) -> str:
        """Where clients begin that go past the gateway."""
        return ",".join(str(one) for one in self.brokers)

    @property
    def seen_gateway(self) -> Gateway:
        return Gateway(host=GATEWAY_HOST, port=self.gateway.setup.port)

    def direct(self, script: Script) -> list[Conversation]:
        self._forget()
        script(self.broker)
        return read(self.oracle, self._recorded(self.at_broker))

    def through(self, script: Script) -> Through:
        clients, broker = self.record_through(script)
        return Through(read(self.oracle, clients), read(self.oracle, broker))

    def record_through(self, script: Script) -> tuple[list[Connection], list[Connection]]:
        """A run through the gateway as its recorders have it: at the clients' side, and at the broker's."""
        self._forget()
        script(self.gateway.bootstrap)
        return self._recorded(self.at_gateway), self._recorded(self.at_broker)

    def check(self, script: Script, *, free: Sequence[str] = (), unordered: Sequence[str] = ()) -> None:
        """The script direct and through the gateway; fails with everything in which the two differ.

        Once more when they differ: on a busy machine a client now and then joins its group twice, with or without a
        gateway. What the gateway does is there the second time too, and what it changes (`check_inside`) never passes.
        """
        differences: Sequence[Difference] = ()
        for _ in range(2):
            direct = self.direct(script)
            through = self.through(script)
            self.check_inside(through)
            differences = compare_across(
                Run(direct, self.nodes_direct, free=free, unordered=unordered),
                Run(through.clients, self.nodes_through, free=free, unordered=unordered),
            )
            if not differences:
                return
        raise AssertionError(report(differences))

    def check_inside(self, through: Through) -> None:
        """What the clients got is what the broker sent, and every address in it is the gateway's."""
        assert any(conversation.calls for conversation in through.clients), "no client came through the gateway"
        differences = compare_inside(through.clients, through.broker, self.seen_gateway)
        assert not differences, report(differences)
        assert addresses_seen(through.clients) <= self.nodes_through.keys()

    def check_spliced(self, script: Script, *, free: Sequence[str] = (), at_least: int) -> None:
        """`check` of a script with large responses, of which the gateway spliced so many bytes."""
        before = self._spliced_bytes()
        self.check(script, free=free)
        until = time.monotonic() + _REPORTED_S
        while (spliced := self._spliced_bytes() - before) < at_least and time.monotonic() < until:
            time.sleep(0.1)  # workers report twice a second
        assert spliced >= at_least, f"{spliced:.0f} bytes were spliced"

    def _spliced_bytes(self) -> float:
        return self.gateway.metric("headgate_splice_bytes_total")

    @property
    def nodes_direct(self) -> dict[Endpoint, int]:
        """Where clients find the brokers when there is no gateway."""
        return {broker: node for node, broker in enumerate(self.brokers)}

    @property
    def nodes_through(self) -> dict[Endpoint, int]:
        return {self.seen_gateway.address(node): node for node in range(len(self.brokers))}

    def _recorded(self, recorder: Recorder) -> list[Connection]:
        return [one for one in recorder.take(quiet=_is_gateways_own) if not _is_gateways_own(one)]

    def _forget(self) -> None:
        """What went before this script is not part of it."""
        self.at_broker.forget()
        self.at_gateway.forget()


def _is_gateways_own(connection: Connection) -> bool:
    """A connection on which the gateway asks for itself, and nobody else does: all its calls carry its client id."""
    asked = frames(connection, Side.CLIENT)
    return bool(asked) and all(_client_id(frame) == GATEWAY_CLIENT_ID.encode() for frame in asked)


def _client_id(frame: Frame) -> bytes:
    """Behind key, version and correlation id, in every version of the header."""
    size = int.from_bytes(frame.data[8:10], signed=True)
    return frame.data[10 : 10 + max(size, 0)]


@contextmanager
def running(folder: Path, brokers: int = 1, *, more: Mapping[str, object] | None = None) -> Iterator[Bench]:
    first = port_block()
    port = first + _GATEWAY_OFFSET
    announced = tuple(Endpoint(BROKER_HOST, first + node) for node in range(brokers))
    spec = ClusterSpec(
        data_dir=folder / "kafka",
        port=first,
        brokers=brokers,
        advertised_host=BROKER_HOST,
        access=ClusterAccess(authorizer=True, super_users=("ANONYMOUS",)),
        settings={**QUICK_SETTINGS, **_SETTINGS},
    )
    setup = GatewaySetup(
        folder=folder / "gateway",
        port=port,
        upstream=",".join(str(one) for one in announced),
        metrics_port=first + _METRICS_OFFSET,
        advertised_host=GATEWAY_HOST,
        nodes=f"0-{brokers - 1}",
        more=more or {},
    )
    gateways = [Endpoint(GATEWAY_HOST, port + place) for place in range(1 + brokers)]
    with ExitStack() as stack:
        stack.enter_context(EmbeddedKafka(spec))
        at_broker = stack.enter_context(Recorder({one: Endpoint(LOOPBACK, one.port) for one in announced}))
        at_gateway = stack.enter_context(Recorder({one: Endpoint(LOOPBACK, one.port) for one in gateways}))
        gateway = stack.enter_context(GatewayProcess(setup))
        oracle = stack.enter_context(Oracle())
        yield Bench(
            oracle=oracle,
            gateway=gateway,
            at_broker=at_broker,
            at_gateway=at_gateway,
            brokers=announced,
            free_port=first + _FREE_OFFSET,
        )
