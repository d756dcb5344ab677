"""Records the fuzz corpus anew: frames that real clients and a real broker exchange through the gateway.

    python -m tests.soak.record_corpus 127.0.0.1:19092        a broker that nobody needs any more

librdkafka produces, consumes in a group and asks as an admin; each frame of a call that the codec knows is kept, up to
three of a version and side, in `corpus/request-KEY-VERSION.hex` and `corpus/response-KEY-VERSION.hex`.
"""

import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from struct import unpack_from
from typing import Final
from uuid import uuid4

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]

from tests.soak.codec_properties import CORPUS
from tests.support.cluster import ClientConfig
from tests.support.gateway import running_gateway
from tests.support.messages import REQUESTS
from tests.support.recorder import Connection, Endpoint, Recorder, Side

_MOST_OF_A_KIND: Final = 3
_LONGEST: Final = 3000
_BESIDE: Final = "127.0.0.2"  # where clients dial, and the recorder listens


def exchange(bootstrap: str) -> None:
    """What clients do, a little of much."""
    name = f"corpus-{uuid4().hex[:6]}"
    config: ClientConfig = {"bootstrap.servers": bootstrap}
    admin = AdminClient(config)
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
    for linger in ("0", "50"):
        producer = Producer({**config, "linger.ms": linger, "compression.type": "lz4" if linger == "0" else "none"})
        for number in range(20):
            producer.produce(name, f"value {number}", key=str(number), headers={"h": b"x"})
        producer.flush(20)
    consumer = Consumer({**config, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    deadline = time.monotonic() + 20
    seen = 0
    while seen < 40 and time.monotonic() < deadline:
        seen += consumer.poll(0.5) is not None
    admin.describe_cluster().result(20)
    admin.list_consumer_groups().result(20)
    admin.describe_consumer_groups([name])[name].result(20)
    admin.describe_configs([ConfigResource("topic", name)])
    consumer.close()
    time.sleep(1)
    admin.delete_consumer_groups([name])[name].result(20)


def frames_of(data: bytes) -> Iterator[bytes]:
    pos = 0
    while pos + 4 <= len(data):
        (size,) = unpack_from(">i", data, pos)
        yield data[pos : pos + 4 + size]
        pos += 4 + size


def calls_of(connection: Connection) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Key, version, request and answer; calls that have no answer end it, as nothing behind them can be told apart."""
    answers = {unpack_from(">i", frame, 4)[0]: frame for frame in frames_of(connection.sent_by(Side.SERVER))}
    for frame in frames_of(connection.sent_by(Side.CLIENT)):
        key, version, correlation_id = unpack_from(">hhi", frame, 4)
        if correlation_id in answers:
            yield key, version, frame, answers[correlation_id]


def main() -> None:
    upstream = sys.argv[1]
    kept: dict[str, list[bytes]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory() as folder,
        running_gateway(Path(folder), upstream, gateway__advertised_host=_BESIDE) as gateway,
    ):
        port = gateway.setup.port
        routes = {Endpoint(_BESIDE, one): Endpoint("127.0.0.1", one) for one in (port, port + 1)}
        with Recorder(routes) as recorder:
            exchange(f"{_BESIDE}:{port}")
            for connection in recorder.take(quiet=lambda _: True):
                for key, version, *frames in calls_of(connection):
                    for side, frame in zip(("request", "response"), frames, strict=True):
                        kind = kept[f"{side}-{key}-{version}"]
                        if key in REQUESTS and len(frame) <= _LONGEST and len(kind) < _MOST_OF_A_KIND:
                            kind.append(frame)
    CORPUS.mkdir(exist_ok=True)
    for name, kind in kept.items():
        if kind:
            (CORPUS / f"{name}.hex").write_text("".join(f"{frame.hex()}\n" for frame in kind), encoding="ascii")
    print(f"{sum(map(len, kept.values()))} frames in {CORPUS}")


if __name__ == "__main__":
    main()
