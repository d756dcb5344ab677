"""Record batches against Kafka's MemoryRecords, with every compression, in both directions."""

import random
from base64 import b64decode
from typing import Any

import pytest

from headgate.wire.codec import encode
from headgate.wire.compression import Compression
from headgate.wire.messages.data import FetchPartitionResponse, FetchResponse, FetchTopicResponse
from headgate.wire.records import WireRecord, batches
from tests.support.oracle import Oracle, text_of
from tests.support.record_batches import write_batch

SEED = 20261106
SIZES = (1, 2, 40, 700)  # from a batch of one record to one of several compressed blocks


def some_records(size: int) -> list[WireRecord]:
    rng = random.Random(f"{SEED} {size}")
    return [
        WireRecord(
            offset=1000 + index,
            timestamp=1_794_731_901_727 + rng.randrange(-5, 5000),
            key=rng.choice((None, b"", rng.randbytes(9))),
            value=rng.choice((None, b"", rng.randbytes(200), b"abc" * 200)),
            headers=tuple((rng.choice(("a", "é", "")), rng.choice((None, b"", b"x"))) for _ in range(rng.randrange(3))),
        )
        for index in range(size)
    ]


def tree_of(record: WireRecord) -> dict[str, Any]:
    def optional(data: bytes | None) -> str | None:
        return None if data is None else text_of(data)

    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": optional(record.key),
        "value": optional(record.value),
        "headers": [{"key": name, "value": optional(data)} for name, data in record.headers],
    }


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", list(Compression))
def test_kafka_reads_the_batches_that_we_write(kind: Compression, size: int, oracle: Oracle) -> None:
    records = some_records(size)
    data = write_batch(
        records,
        compression=kind,
        producer_id=5,
        producer_epoch=1,
        base_sequence=9,
        partition_leader_epoch=4,
        transactional=True,
    )
    [batch] = oracle.decode_records(data)
    assert batch["records"] == [tree_of(each) for each in records]
    assert (batch["base_offset"], batch["last_offset"]) == (1000, 999 + size)
    assert (batch["producer_id"], batch["producer_epoch"], batch["base_sequence"]) == (5, 1, 9)
    assert (batch["partition_leader_epoch"], batch["transactional"], batch["control"]) == (4, True, False)
    assert batch["compression"] == kind.name.lower()
    assert batch["max_timestamp"] == max(each.timestamp for each in records)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", list(Compression))
def test_we_read_the_batches_that_kafka_writes(kind: Compression, size: int, oracle: Oracle) -> None:
    records = some_records(size)
    data = oracle.encode_records(
        {
            "compression": kind.name.lower(),
            "base_offset": 1000,
            "producer_id": 5,
            "producer_epoch": 1,
            "base_sequence": 9,
            "records": [tree_of(each) for each in records],
        }
    )
    [batch] = batches(data)
    batch.check_crc()
    assert batch.compression is kind
    assert list(batch.records(max_bytes=1_000_000)) == records
    if kind is Compression.NONE:
        assert write_batch(records, producer_id=5, producer_epoch=1, base_sequence=9) == data


def test_records_inside_a_fetch_answer_are_opened_by_the_oracle(oracle: Oracle) -> None:
    records = some_records(3)
    partition = FetchPartitionResponse(records=write_batch(records, compression=Compression.LZ4))
    answer = FetchResponse(responses=(FetchTopicResponse(topic="t", partitions=(partition,)),))
    decoded = oracle.decode("response", 1, 12, encode(answer, 12), open_records=True)
    [batch] = decoded["tree"]["responses"][0]["partitions"][0]["records"]
    assert batch["records"] == [tree_of(each) for each in records]
    assert b64decode(decoded["bytes"]) == encode(answer, 12)
