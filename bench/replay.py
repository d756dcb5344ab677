"""`python -m bench.replay`: how fast a replay is beside a plain producer loop, and the order of every key, as markdown.

Records are written to one real broker and replayed from there to another topic, by the real process and its
transactions. The plain loop writes the same records from memory with the same client, without reading or transactions:
what an operator's own script would do at its best. Then every record of the target is read, committed records only, and
its number must be the next one of its key.

After that, how well `--rate` is kept: for each rate, so many seconds of records go to a topic of their own. The first
two seconds do not count. Target: within 5 %.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from bench import machine
from bench.cluster import admin
from headgate.base.clock import SystemClock
from headgate.dead_letters.model.plans import PlanRecord, ReplayPlan
from headgate.dead_letters.plan_store import topic_limits
from headgate.dead_letters.progress_topic import ensure_progress_topic
from headgate.dead_letters.replay_control import ReplayControl
from headgate.dead_letters.replayer import Replayer, ReplayOptions
from headgate.embedded import ClusterSpec, EmbeddedKafka
from headgate.kafka.topics import TopicAdmin
from tests.support.ports import port_block

_SOURCE, _PLAIN, _TARGET = "replay-source", "replay-plain", "replay-target"
_CALL_S = 60.0
_TARGET_DEVIATION = 0.05
_START_S = 2.0  # the first transaction takes longer than others, and what it delays is made up for


def fill(bootstrap: str, topic: str, args: argparse.Namespace) -> float:
    """Write the records in a plain loop, each key to one partition, and return the seconds."""
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "compression.type": "zstd"}
    producer = Producer({**settings, "enable.idempotence": True})  # without it a retry changes the order
    padding = b"x" * max(0, args.bytes - 12)
    began = time.perf_counter()
    for number in range(args.records):
        key = number % args.keys
        value = b"%012d" % (number // args.keys) + padding
        while True:
            try:
                producer.produce(topic, key=b"%d" % key, value=value, partition=key % args.partitions)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(_CALL_S):
        raise SystemExit(f"{topic}: records were not confirmed")
    return time.perf_counter() - began


def records(topics: TopicAdmin, args: argparse.Namespace, target: str) -> Iterator[PlanRecord]:
    source = topics.ids([_SOURCE])[_SOURCE]
    position = 0
    for partition, (first, end) in topics.bounds(_SOURCE, range(args.partitions), timeout_s=_CALL_S).items():
        for offset in range(first, end):
            yield PlanRecord(
                position=position,
                topic=_SOURCE,
                topic_id=source,
                partition=partition,
                offset=offset,
                dlq_topic="dlq.replay",
                dlq_topic_id=None,
                dlq_partition=0,
                dlq_offset=0,
                copied=False,
                action="replay",
                why=None,
                target_topic=target,
                target_partition=partition,
            )
            position += 1


def replay(
    bootstrap: str, args: argparse.Namespace, target: str, number: int, rate: float | None = None
) -> list[tuple[float, int]]:
    """Replay the first records, as a plan of its own group; when it began, and when how many had been written."""
    settings = {"bootstrap.servers": bootstrap}
    topics = TopicAdmin(settings)
    ensure_progress_topic(topics)
    plan = ReplayPlan(
        cluster_id="bench",
        plan=target,
        at=0,
        by="bench",
        group=target,
        to=target,
        targets=topics.ids([target]),
        records=number,
        parked=0,
        expired=0,
        superseded=0,
        already_replayed=0,
        over_max_replays=0,
        reasons={},
        readers=(),
        oldest_at=None,
    )
    listed = list(islice(records(topics, args, target), number))
    progress: list[tuple[float, int]] = []
    replayer = Replayer(
        plan=plan,
        limits=topic_limits(topics, [target]),
        settings=settings,
        admin=topics,
        clock=SystemClock(),
        options=ReplayOptions(by="User:bench", rate=rate),
        control=ReplayControl(),
        on_progress=lambda now: progress.append((time.perf_counter(), now.written)),
    )
    progress.append((time.perf_counter(), 0))
    result = replayer.run(listed)
    if (result.state, result.written) != ("DONE", number):
        raise SystemExit(f"the replay did not write everything: {result}")
    progress.append((time.perf_counter(), number))
    return progress


def whole_rate(progress: Sequence[tuple[float, int]]) -> float:
    """Records a second from the call to its end."""
    return progress[-1][1] / (progress[-1][0] - progress[0][0])


def kept_rate(progress: Sequence[tuple[float, int]]) -> float:
    """Records a second from two seconds after the first transaction to the last one."""
    steady = [one for one in progress[1:-1] if one[0] >= progress[1][0] + _START_S]
    if len(steady) < 2:
        raise SystemExit("too few transactions for a rate: ask for more seconds")
    (began, before), (ended, after) = steady[0], steady[-1]
    return (after - before) / (ended - began)


def rates_table(bootstrap: str, args: argparse.Namespace) -> str:
    lines = [
        "| asked for, records/s | records | kept, records/s | deviation | within 5 % |",
        "|---:|---:|---:|---:|---|",
    ]
    for asked in args.rate:
        number = min(args.records, round(asked * args.rate_seconds))
        kept = kept_rate(replay(bootstrap, args, rate_topic(asked), number, asked))
        away = kept / asked - 1
        met = "yes" if abs(away) <= _TARGET_DEVIATION else "**no**"
        lines.append(f"| {asked:,.0f} | {number:,} | {kept:,.1f} | {away:+.1%} | {met} |")
    return "\n".join(lines)


def rate_topic(asked: float) -> str:
    return f"{_TARGET}-{asked:g}"


def check_order(bootstrap: str, topic: str, args: argparse.Namespace) -> int:
    """The number of keys, all of whose records are there once and in order; anything else ends the program."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(args.partitions)])
    following: dict[bytes, int] = {}
    ended = seen = 0
    while ended < args.partitions:
        for message in consumer.consume(1000, 1.0):
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise SystemExit(str(error))
                ended += 1
                continue
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            if int(value[:12]) != following.get(key, 0):
                raise SystemExit(
                    f"{topic}, key {key!r}: record {int(value[:12])} came instead of {following.get(key, 0)}"
                )
            following[key] = following.get(key, 0) + 1
            seen += 1
    consumer.close()
    if seen != args.records:
        raise SystemExit(f"{seen} of {args.records} records are in {topic}")
    return len(following)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=200, help="of each value")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument(
        "--rate", type=float, nargs="*", default=[50.0, 1_000.0, 20_000.0], help="measure how well these are kept"
    )
    parser.add_argument("--rate-seconds", type=float, default=30.0, help="of records for each rate")
    args = parser.parse_args()
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-"))
        kafka = stack.enter_context(EmbeddedKafka(ClusterSpec(data_dir=Path(name) / "kafka", port=port_block())))
        names = (_SOURCE, _PLAIN, _TARGET, *map(rate_topic, args.rate))
        wanted = [NewTopic(topic, args.partitions, 1) for topic in names]
        client = admin(kafka.bootstrap, None)  # its requests end with it
        for made in client.create_topics(wanted).values():
            made.result(_CALL_S)
        fill(kafka.bootstrap, _SOURCE, args)
        check_order(kafka.bootstrap, _SOURCE, args)
        plain = args.records / fill(kafka.bootstrap, _PLAIN, args)
        replayed = whole_rate(replay(kafka.bootstrap, args, _TARGET, args.records))
        keys = check_order(kafka.bootstrap, _TARGET, args)
        rates = rates_table(kafka.bootstrap, args) if args.rate else None
    print(", ".join(f"{key} {value}" for key, value in machine.facts().items()))
    print(
        f"\n| records | bytes | plain loop, records/s | replay, records/s | share | keys in order |\n"
        f"|---:|---:|---:|---:|---:|---:|\n"
        f"| {args.records:,} | {args.bytes} | {plain:,.0f} | {replayed:,.0f} | {replayed / plain:.2f} | {keys:,} |"
    )
    if rates is not None:
        print(f"\n{rates}")


if __name__ == "__main__":
    main()
