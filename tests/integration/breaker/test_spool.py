"""Dead letters whose topic is away, in the spool of a real broker."""

import time

from headgate.share_groups.spool.model.records import SpooledDeadLetter, SpoolTombstone, decode_spooled, spool_partition
from tests.support.raw_client import RawClient
from tests.support.share_member import REJECT, RawShareMember
from tests.support.share_scene import COPY, DLQ_TOPIC, WRITE_TIMEOUT, ShareScene, done, until
from tests.support.share_truth import Reading

NUMBER = 10
TIMEOUT_MS = 3_600_000  # of the report, which is not part of this test
COMMIT_S = 8.0  # on a busy machine; it was 10 s before there was a spool


def spooled(scene: ShareScene, group: str) -> list[tuple[int, SpooledDeadLetter]]:
    """The outstanding dead letters of a group and their partitions, in order."""
    reader = Reading(scene.direct, f"{scene.facts}spool")
    found: dict[tuple[int, object], SpooledDeadLetter] = {}
    try:
        for partition, key, value, headers in reader.to_the_end():
            match decode_spooled(key, value, headers):
                case SpooledDeadLetter() as dead_letter if dead_letter.group == group:
                    found[partition, dead_letter.identity] = dead_letter
                case SpoolTombstone() as tombstone:
                    found.pop((partition, tombstone.identity), None)
    finally:
        reader.close()
    in_order = sorted(found.items(), key=lambda item: item[1].sequence)
    return [(partition, dead_letter) for (partition, _), dead_letter in in_order]


def test_rejects_go_on_and_their_dead_letters_are_in_the_spool_while_their_topic_is_deleted(scene: ShareScene) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq, COPY: "true", WRITE_TIMEOUT: str(TIMEOUT_MS)})
    scene.send(topic, [f"value {at}" for at in range(NUMBER)])
    done(scene.admin().delete_topics([dlq]))
    until(lambda: dlq not in scene.admin().list_topics(timeout=10).topics)
    member = RawShareMember(group=group, topic=topic, topic_id=scene.topic_id(topic))
    took: list[float] = []
    began_ms = time.time_ns() // 1_000_000
    with RawClient(scene.bootstrap) as client:
        member.join(client)
        assert sum(one.last_offset - one.first_offset + 1 for one in member.acquire(client)) == NUMBER
        for offset in range(NUMBER):
            began = time.monotonic()
            assert member.acknowledge(client, offset, offset, [REJECT]) == 0
            took.append(time.monotonic() - began)
    print(f"the longest commit took {max(took) * 1000:.0f} ms, the others {sorted(took)[-2] * 1000:.0f} ms at most")
    assert max(took) < COMMIT_S
    assert scene.fate(group, topic).archived == {(0, offset) for offset in range(NUMBER)}
    dead_letters = spooled(scene, group)
    assert [dead_letter.offset for _, dead_letter in dead_letters] == list(range(NUMBER))
    for partition, dead_letter in dead_letters:
        assert partition == spool_partition(dead_letter.lane, 8)
        assert (dead_letter.key, dead_letter.value) == (
            f"{dead_letter.offset}".encode(),
            f"value {dead_letter.offset}".encode(),
        )
        assert (dead_letter.target, dead_letter.parked) == (dlq, None)
        assert began_ms + TIMEOUT_MS <= dead_letter.deadline <= time.time_ns() // 1_000_000 + TIMEOUT_MS
        headers = dict(dead_letter.headers)
        assert headers["__dlq.errors.topic"] == topic.encode()
        assert headers["__dlq.errors.offset"] == f"{dead_letter.offset}".encode()
        assert headers["__dlq.errors.group"] == group.encode()
        assert headers["__dlq.errors.message"] == b"Offset rejected by client."
    assert scene.events(group, "write_timeout") == []
