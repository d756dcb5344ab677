"""A member of a share group that says exactly what a test wants, on connections that the test chooses.

One rule: its session is one count of epochs, whatever connection a call goes out on, as the broker has it (KIP-932).
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from headgate.wire.messages.share import (
    AcknowledgementBatch,
    AcquiredRecords,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchPartition,
    ShareFetchPartitionResponse,
    ShareFetchRequest,
    ShareFetchTopic,
    ShareGroupHeartbeatRequest,
)
from tests.support.raw_client import RawClient
from tests.support.share_scene import until

ACCEPT, RELEASE, REJECT = 1, 2, 3


@dataclass(slots=True, kw_only=True)
class RawShareMember:
    """Of one partition of one topic; `version` is that of both calls: 1 as librdkafka's, 2 as Java's."""

    group: str
    topic: str
    topic_id: bytes
    version: int = 2
    partition: int = 0
    member: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 0
    session: int = 0

    def join(self, client: RawClient) -> None:
        """Until the partition is assigned to it."""

        def is_assigned() -> bool:
            request = ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member,
                member_epoch=self.epoch,
                subscribed_topic_names=(self.topic,),
            )
            answer = client.call(request, 1)
            if answer.error_code == 0:
                self.epoch = answer.member_epoch
            return answer.assignment is not None and bool(answer.assignment.topic_partitions)

        until(is_assigned)

    def fetch(
        self, client: RawClient, *, records: int = 500, wait_ms: int = 200, accepts: Sequence[int] = ()
    ) -> ShareFetchPartitionResponse | None:
        """What the partition answers; None when it has nothing to say. `accepts` are offsets that it acknowledges."""
        batches = tuple(
            AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=(ACCEPT,))
            for offset in accepts
        )
        partition = ShareFetchPartition(partition_index=self.partition, acknowledgement_batches=batches)
        topics = (ShareFetchTopic(topic_id=self.topic_id, partitions=(partition,)),)
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.session,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_records=records,
            batch_size=records,
            topics=topics if self.session == 0 or accepts else (),
        )
        answer = client.call(request, self.version)
        assert answer.error_code == 0, answer
        self.session += 1
        found = [partition for one in answer.responses for partition in one.partitions]
        return found[0] if found else None

    def acquire(self, client: RawClient, *, records: int = 500) -> list[AcquiredRecords]:
        """Fetch until there is something."""
        acquired: list[AcquiredRecords] = []

        def has_some() -> bool:
            found = self.fetch(client, records=records)
            acquired.extend(found.acquired_records if found else ())
            return bool(acquired)

        until(has_some)
        return acquired

    def acknowledge(
        self, client: RawClient, first: int, last: int, types: Sequence[int], *, close: bool = False
    ) -> int:
        """The error of the partition, or of the call."""
        batch = AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=tuple(types))
        partition = ShareAcknowledgePartition(partition_index=self.partition, acknowledgement_batches=(batch,))
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=-1 if close else self.session,
            topics=(ShareAcknowledgeTopic(topic_id=self.topic_id, partitions=(partition,)),),
        )
        answer = client.call(request, self.version)
        self.session += 1
        codes = [partition.error_code for one in answer.responses for partition in one.partitions]
        return answer.error_code or (codes[0] if codes else 0)
