"""A share group under load that rejects a tenth of its records, and blows against what serves it: nothing may be lost.

One rule: what must become of a record stands in its key, so after any number of blows each offset is judged by itself:
the broker's final state of it, the dead letters, and what the gateway wrote down.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from tests.support.share_consumers import LibrdkafkaMember, ShareJvm, ShareMember
from tests.support.share_load import Load
from tests.support.share_scene import BREAKER, DLQ_TOPIC, MINIMUM, THRESHOLD, WINDOW, ShareScene, until
from tests.support.share_truth import Spot, spots_of

PARTITIONS = 4
# A breaker whose threshold is twice what is rejected: it must never trip.
ABOVE: Mapping[str, str] = {BREAKER: "true", THRESHOLD: "20", MINIMUM: "50", WINDOW: "30000"}
# What a member holds that lost its broker comes again after this.
LOCK = {"share.record.lock.duration.ms": "10000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """The figures of a campaign; `problems` is empty when every promise was kept."""

    seconds: float
    blows: int
    sent: int
    delivered: int
    archived: int
    dead_letters: int
    repeated_dead_letters: int
    over_limit: int
    timed_out: int
    withdrawn: int
    refused: int
    trips: int
    problems: tuple[str, ...]


@contextmanager
def members(scene: ShareScene, jvms: Sequence[ShareJvm], group: str, topic: str, percent: int) -> Iterator["Crew"]:
    """Two of each Java client, with and without commits, and one of librdkafka."""
    with ExitStack() as stack:
        java = [
            jvm.join(
                f"{group}-{place}-{commit}",
                scene.bootstrap,
                group,
                [topic],
                commit=commit,
                rejects_percent=percent,
                work_ms=200,  # so that a blow meets records that are held
            )
            for place, jvm in enumerate(jvms)
            for commit in ("sync", "none")
        ]
        other = stack.enter_context(LibrdkafkaMember(scene.clients, group, [topic], rejects_percent=percent))
        yield Crew(java, other)
        for one in java:
            one.close()


@dataclass(frozen=True, slots=True)
class Crew:
    java: Sequence[ShareMember]
    other: LibrdkafkaMember

    def deliveries(self) -> list[tuple[Spot, int, str]]:
        found = [one for member in self.java for one in member.deliveries()] + self.other.deliveries
        return [((place[1], place[2]), count, verdict) for place, count, verdict in found]

    def are_busy(self) -> bool:
        return bool(self.other.deliveries) and all(member.events("polled") for member in self.java)

    def refusals(self) -> int:
        """Acknowledgements that the clients were told have failed: what was in flight at a blow."""
        java: int = sum(event["count"] for member in self.java for event in member.events("refused"))
        return java + len(self.other.errors)


def campaign(
    scene: ShareScene,
    jvms: Sequence[ShareJvm],
    blows: Sequence[Callable[[str], object]],
    *,
    rejects_percent: int = 10,
    configs: Mapping[str, str] = ABOVE,
    rate: int = 200,
    between_s: tuple[float, float] = (1.0, 3.0),
    seed: int = 7,
    topic: str | None = None,
    dlq: str | None = None,
    mend: Callable[[], object] = lambda: None,
) -> Aftermath:
    """Load, blow after blow (each is told the group), and when all is done with, the judgement.

    `mend` comes before the members close: a Java member waits a minute for a broker that is gone.
    """
    chance = random.Random(seed)
    topic, dlq = topic or scene.new_topic(partitions=PARTITIONS), dlq or scene.new_topic("dlq", partitions=2)
    group = scene.new_group({DLQ_TOPIC: dlq, **configs}, **LOCK)
    scene.topic_id(topic)  # while all brokers are there
    began = time.monotonic()
    with members(scene, jvms, group, topic, rejects_percent) as crew:
        load = Load(scene, topic, rate=rate, partitions=PARTITIONS)
        try:
            # A blow before everybody has records would meet nothing.
            until(crew.are_busy)
            for blow in blows:
                time.sleep(chance.uniform(*between_s))
                blow(group)
            time.sleep(between_s[1])
        finally:
            sent = load.stop()
        fate = scene.wait_for_end(group, topic, sent)
        refused = crew.refusals()
        mend()
    rejected = load.rejected(rejects_percent)
    with suppress(AssertionError):  # from the spool; missing ones are reported below
        until(lambda: fate.archived <= {one.spot for one in scene.dead_letters(dlq)})
    all_dead_letters = scene.dead_letters(dlq)
    over = {
        one.spot for one in all_dead_letters if one.headers["__dlq.errors.message"].startswith("Offset delivery count")
    }
    dead_letters = Counter(one.spot for one in all_dead_letters)
    timed_out = {spot for event in scene.events(group, "write_timeout") for spot in spots_of(event["detail"])}
    withdrawn = {spot for event in scene.events(group, "dead_letter_withdrawn") for spot in spots_of(event["detail"])}
    trips = len(scene.events(group, "tripped"))
    problems = {
        "archived without a dead letter": fate.archived - set(dead_letters),
        "acknowledged and dead-lettered, and not withdrawn": (fate.acknowledged & set(dead_letters)) - withdrawn,
        "rejected and acknowledged": fate.acknowledged & rejected,
        "a dead letter of a record that was not rejected": set(dead_letters) - rejected - over,
    }
    told = [f"{what}: {sorted(spots)[:10]} ({len(spots)})" for what, spots in problems.items() if spots]
    if trips and configs is ABOVE:
        told.append(f"the breaker tripped {trips} times at half its threshold")
    return Aftermath(
        seconds=round(time.monotonic() - began, 1),
        blows=len(blows),
        sent=sent,
        delivered=len(crew.deliveries()),
        archived=len(fate.archived),
        dead_letters=len(dead_letters),
        repeated_dead_letters=dead_letters.total() - len(dead_letters),
        over_limit=len(over),
        timed_out=len(timed_out),
        withdrawn=len(withdrawn),
        refused=refused,
        trips=trips,
        problems=tuple(told),
    )
