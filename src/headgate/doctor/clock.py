"""The cluster's clock against ours, read without writing a record.

No call tells a broker's time as such. DescribeQuorum (KIP-836) does by the way: the active controller enters its own
time as the moment when its own copy of the metadata was last fetched. So that one clock can be measured; the clocks of
the other nodes cannot without producing to a topic with LogAppendTime, and that the doctor does not do.
"""

from dataclasses import dataclass

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.doctor.broker import Broker
from headgate.doctor.commands import KafkaTools, Resource
from headgate.doctor.findings import Check, Finding, ok, problem, warning
from headgate.doctor.messages import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumPartition,
    QuorumTopic,
)

CLUSTER_AUTHORIZATION_FAILED = 31
SUBJECT = "the active controller"
TOLERATED_MS = 1_000
# message.timestamp.after.max.ms: a record that is further ahead is refused by the brokers (KIP-937).
REFUSED_MS = 3_600_000
_METADATA_TOPIC = "__cluster_metadata"
_BY_HAND = "compare by hand: run `date -u +%T.%3N` on a broker and here at the same time"


@dataclass(frozen=True, slots=True)
class Offset:
    """How far their clock is ahead of ours: somewhere between `least` and `most`, negative when it is behind."""

    least_ms: int
    most_ms: int

    @property
    def surely_ms(self) -> int:
        """What cannot be explained by the time that the answer took."""
        if self.least_ms <= 0 <= self.most_ms:
            return 0
        return self.least_ms if self.least_ms > 0 else self.most_ms


def offset(*, asked_ms: int, theirs_ms: int, answered_ms: int) -> Offset:
    """Their clock showed `theirs_ms` at some moment between our two."""
    return Offset(theirs_ms - answered_ms, theirs_ms - asked_ms)


async def examine(broker: Broker, clock: Clock, tools: KafkaTools) -> Finding:
    partition = QuorumTopic(topic_name=_METADATA_TOPIC, partitions=(QuorumPartition(),))
    asked_ms = clock.epoch_ms()
    try:
        answer = await broker.call(DescribeQuorumRequest(topics=(partition,)), 1)
    except ClusterError as failure:
        return warning(Check.CLOCK, SUBJECT, f"its clock cannot be read: {failure}", mend=_BY_HAND)
    answered_ms = clock.epoch_ms()
    if answer.error_code == CLUSTER_AUTHORIZATION_FAILED:
        text = f"its clock cannot be read: {tools.principal} may not describe the cluster"
        return warning(Check.CLOCK, SUBJECT, text, mend=tools.allow(Resource.CLUSTER, ["Describe"], ""))
    theirs_ms = controller_time(answer)
    if theirs_ms is None:
        text = f"its clock cannot be read: DescribeQuorum answered without it (error {answer.error_code})"
        return warning(Check.CLOCK, SUBJECT, text, mend=_BY_HAND)
    return judge(offset(asked_ms=asked_ms, theirs_ms=theirs_ms, answered_ms=answered_ms))


def controller_time(answer: DescribeQuorumResponse) -> int | None:
    """The controller's own time in epoch milliseconds; None when the answer has none."""
    for topic in answer.topics:
        for partition in topic.partitions:
            for voter in partition.current_voters:
                if voter.replica_id == partition.leader_id and voter.last_fetch_timestamp > 0:
                    return voter.last_fetch_timestamp
    return None


def judge(seen: Offset) -> Finding:
    surely = seen.surely_ms
    if abs(surely) <= TOLERATED_MS:
        exact = max(abs(seen.least_ms), abs(seen.most_ms))
        return ok(Check.CLOCK, SUBJECT, f"its clock and ours agree within {exact} ms; other brokers' cannot be read")
    text = f"its clock is {abs(surely) / 1000:.1f} s {'ahead of' if surely > 0 else 'behind'} ours"
    mend = "chronyc makestep   (or: timedatectl set-ntp true; on the machine whose clock is wrong)"
    if -surely >= REFUSED_MS:
        text += ": brokers refuse records that are an hour ahead of them, and so every fact that we write"
        return problem(Check.CLOCK, SUBJECT, text, mend=mend)
    return warning(Check.CLOCK, SUBJECT, f"{text}: times in facts and in the brokers' logs do not match", mend=mend)
