"""A group without any config of ours: what its members send and get passes byte for byte."""

from pathlib import Path

from confluent_kafka import Producer

from tests.integration.equivalence.bench import running
from tests.support.compare_calls import Frame, frames
from tests.support.recorder import Connection, Side
from tests.support.share_consumers import ShareJvm
from tests.support.share_scene import done, kafka, until

SHARE_CALLS = {76, 78, 79}  # ShareGroupHeartbeat, ShareFetch, ShareAcknowledge
TOPIC, GROUP = "bytes-topic", "bytes-group"


def test_a_group_without_a_config_of_ours_passes_byte_for_byte(tmp_path: Path, java_440: ShareJvm) -> None:
    with running(tmp_path, more={"share_groups.enable": True}) as bench:
        prepare(bench.broker)
        until(lambda: bench.gateway.problems() == {})
        one = java_440.join("bytes", bench.gateway.bootstrap, GROUP, [TOPIC], commit="sync")
        one.wait_for_records(6)  # one is released and one is renewed
        one.close()
        assert one.errors == []
        clients = bench.at_gateway.take(quiet=is_quiet)
        broker = bench.at_broker.take(quiet=is_quiet)
    for side in Side:
        among_clients, at_broker = share_frames(clients, side), share_frames(broker, side)
        assert {int.from_bytes(frame[:2]) for frame in share_frames(clients, Side.CLIENT)} == SHARE_CALLS
        assert among_clients == at_broker


def prepare(bootstrap: str) -> None:
    """Records of all fates for a group that nobody has configured at Headgate."""
    admin = kafka.AdminClient({"bootstrap.servers": bootstrap})
    done(admin.create_topics([kafka.NewTopic(TOPIC, 1, 1)]))
    entry = kafka.ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=kafka.AlterConfigOpType.SET)
    group = kafka.ConfigResource(kafka.ConfigResource.Type.GROUP, GROUP, incremental_configs=[entry])
    done(admin.incremental_alter_configs([group]))
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in ("A:", "R:", "l:", "N:"):
        producer.produce(TOPIC, value)
    assert producer.flush(30) == 0


def is_quiet(connection: Connection) -> bool:
    """It carries none of the calls in question, so it may stay open."""
    return not share_frames([connection], Side.CLIENT)


def share_frames(connections: list[Connection], side: Side) -> list[bytes]:
    """The frames of share calls of that side, in an order that does not depend on the connection."""
    found: list[bytes] = []
    for connection in connections:
        asked = {_correlation(frame): int.from_bytes(frame.data[:2]) for frame in frames(connection, Side.CLIENT)}
        for frame in frames(connection, side):
            number = _correlation(frame) if side is Side.CLIENT else int.from_bytes(frame.data[:4])
            if asked.get(number) in SHARE_CALLS:
                found.append(bytes(frame.data))
    return sorted(found)


def _correlation(frame: Frame) -> int:
    return int.from_bytes(frame.data[4:8])
