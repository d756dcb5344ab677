"""Share groups that fail for four causes, from their first record to their last replayed one (`test_incidents.py`).

Members report each record that they were given and what they did with it, so all numbers are known without asking
Headgate. What an operator does is a command.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from itertools import count, islice
from typing import Any, ClassVar

from confluent_kafka import Producer

from headgate.cli.main import main
from headgate.config import load
from headgate.dead_letters.model.episodes import BASE_ATTEMPTS, BUCKET_ATTEMPTS
from headgate.tables.definitions import table_named
from headgate.tables.reader import Condition, TableReader
from tests.support.share_consumers import ShareJvm, ShareMember, is_rejected
from tests.support.share_scene import BREAKER, DLQ_TOPIC, LIMIT, MINIMUM, THRESHOLD, ShareScene, until
from tests.support.share_truth import Spot

PARTITIONS = 3
# The usual rate of a group is that of at least 300 attempts; the last few may share a bucket with the first failures.
HEALTHY = BASE_ATTEMPTS + BUCKET_ATTEMPTS
WAITING = 40  # when none of 35 fails, the bounds say that at most 10 % do
LONG_POLLS_S = 1.0  # five of each member
LOOK_S = 0.5  # between two commands that wait for the pipeline
DEADLINE_S = 120.0

Document = dict[str, Any]


def command(*words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; the pipeline here writes to the latter too."""
    out, errors = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        code = main(words)
    return code, out.getvalue(), errors.getvalue()


def headgate(*words: str) -> tuple[str, str]:
    """The output of a command that succeeds."""
    code, out, errors = command(*words)
    assert code == 0, f"headgate {' '.join(words)}: exit code {code}\n{errors}"
    return out, errors


def rows_of(scene: ShareScene, table: str, where: Sequence[Condition]) -> list[Document]:
    reader = TableReader(load(scene.gateway.setup.folder / "headgate.toml", {}).tables.path)
    try:
        return [dict(row) for row in reader.rows(table_named(table), where=where).rows]
    finally:
        reader.close()


class OrderProducer:
    """An idempotent producer, through the gateway; `id` is the one that the broker gave it."""

    def __init__(self, scene: ShareScene) -> None:
        self.id = -1
        settings = {"enable.idempotence": True, "statistics.interval.ms": 50, "stats_cb": self._take}
        self._producer = Producer({**scene.clients, **settings})

    def send(self, topic: str, keys: Sequence[bytes]) -> None:
        """A record for each key, over the partitions in turn; all alike but for the key, and acknowledged."""
        for number, key in enumerate(keys):
            headers: list[tuple[str, str | bytes | None]] = [("type", b"order"), ("trace", key[::-1])]
            self._producer.produce(topic, b"pay " + key, key, partition=number % PARTITIONS, headers=headers)
        assert self._producer.flush(DEADLINE_S) == 0
        until(lambda: self._producer.poll(0.05) >= 0 and self.id >= 0)

    def close(self) -> None:
        self._producer.close()

    def _take(self, statistics: str) -> None:
        self.id = json.loads(statistics)["eos"]["producer_id"]


class Incident:
    """A share group from its first record to its last replayed one; a subclass is a cause and its repair."""

    size: ClassVar = 2
    trips: ClassVar = False
    configs: ClassVar[dict[str, str]] = {}
    misses_percent: ClassVar = 0  # of the keys, whose records members cannot process until they are repaired
    releases: ClassVar = False

    def __init__(self, scene: ShareScene, jvm: ShareJvm) -> None:
        self.scene, self.jvm = scene, jvm
        self.config = ("--config", str(scene.gateway.setup.folder / "headgate.toml"))
        self.topic, self.dlq = scene.new_topic(partitions=PARTITIONS), scene.new_topic("dlq")
        committed = {"share.isolation.level": "read_committed"}  # see docs/incident.md
        self.group = scene.new_group({DLQ_TOPIC: self.dlq, BREAKER: "true"} | committed | self.configs)
        self.producer, self.bad_producer = OrderProducer(scene), OrderProducer(scene)
        self.members: list[ShareMember] = []  # all that ever joined
        self.sent = 0
        self.tried = 0  # of these, since it fails
        self._numbers = count()
        # What the steps leave behind.
        self.failing: Document = {}  # the verdict while it fails, or while it is paused
        self.repaired: Document = {}  # the verdict when it works again
        self.plan: Document = {}
        self.replay: Document = {}
        self.trail: list[Document] = []
        self.warnings = ""

    # --- the group

    def close(self) -> None:
        self.producer.close()
        self.bad_producer.close()

    def join(self, *, misses_percent: int = 0) -> ShareMember:
        member = self.jvm.join(
            f"{self.group}-{len(self.members)}",
            self.scene.bootstrap,
            self.group,
            [self.topic],
            commit="sync",
            rejects_percent=misses_percent,
            releases=self.releases,
        )
        self.members.append(member)
        return member

    def send(self, number: int, *, bad: bool = False, producer: OrderProducer | None = None) -> None:
        """So many records with new keys, those that members cannot process or others."""
        keys = (f"order-{one:06d}".encode() for one in self._numbers)
        chosen = (key for key in keys if is_rejected(key, self.misses_percent) is bad)
        (producer or self.producer).send(self.topic, list(islice(chosen, number)))
        self.sent += number

    def begin(self) -> None:
        """A group that works."""
        for _ in range(self.size):
            self.join(misses_percent=self.misses_percent)
        self.send(HEALTHY)

    def fail(self) -> None:
        """The cause begins, and goes on until nothing changes any more."""
        raise NotImplementedError

    def repair(self) -> None:
        """Members of another release take the place of those that cannot process some records."""
        for member in self.members[:]:
            member.close()
            self.join()

    # --- what its members did

    def outcomes(self) -> dict[Spot, list[str]]:
        """What members did with each record, once for each delivery."""
        found: dict[Spot, list[str]] = defaultdict(list)
        for member in self.members:
            for (_, partition, offset), _, outcome in member.deliveries():
                found[partition, offset].append(outcome)
        return found

    def failed(self) -> list[Spot]:
        """The records that became dead letters, in the order in which they are to be replayed."""
        return sorted(spot for spot, outcomes in self.outcomes().items() if "accept" not in outcomes)

    def wait_until_it_works(self) -> None:
        self.scene.wait_for_status(self.group, lambda status: status["delivered"] == HEALTHY)
        until(lambda: len(self.scene.member_ids(self.group)) == self.size)

    def wait_until_it_has_failed(self) -> None:
        """Until it is paused, or all of its dead letters are counted.

        A fetch that was sent before the pause waits for records in the broker, and would be given the next ones.
        """
        if self.trips:
            self.scene.wait_for_status(self.group, lambda status: status["paused"])
            time.sleep(LONG_POLLS_S)
        else:
            self.scene.wait_for_status(self.group, lambda status: status["dlq_written"] == len(self.failed()))

    def wait_until_all_is_delivered(self) -> None:
        until(lambda: len(self.outcomes()) == self.sent)

    def wait_until_targets_are_accepted(self) -> None:
        until(lambda: set(self.targets) <= self.scene.fate(self.group, self.topic).acknowledged)

    # --- the operator

    def triage(self) -> Document:
        """The newest episode of the group; nothing before there is one."""
        code, out, errors = command("dlq", "triage", "--group", self.group, *self.config, "--json")
        if "no tables of dead letters yet" in errors:
            return {}
        assert code == 0, errors
        clusters = json.loads(out)["clusters"]
        return dict(clusters[0]) if clusters else {}

    def wait_for_triage(self, is_so: Callable[[Document], bool]) -> Document:
        by = time.monotonic() + DEADLINE_S
        while not (found := self.triage()) or not is_so(found):
            assert time.monotonic() < by, f"{type(self).__name__}: {found}"
            time.sleep(LOOK_S)
        return found

    def is_triaged(self, episode: Document) -> bool:
        """Whether the pipeline has read all attempts since it fails; they may come in several batches."""
        failed = len(self.failed())
        attempts = episode["evidence"]["attempts"]
        return bool((episode["count"], attempts["failed"]) == (failed, failed) and attempts["attempts"] >= self.tried)

    def is_repaired(self, _episode: Document) -> bool:
        """Whether the pipeline knows the readers of the topic, which a plan asks for."""
        where = [Condition("topic", "=", self.topic), Condition("app_id", "=", self.group)]
        return bool(rows_of(self.scene, "lineage_edges", where))

    def resume(self) -> None:
        words = ("--resume", "--group", self.group, "--reason", "repaired")
        headgate("share-groups", "--bootstrap-server", self.scene.bootstrap, *words)

    def put_back(self) -> None:
        """Plan, replay and audit, with the commands that triage names."""
        chosen = ("--group", self.group, "--cluster", self.repaired["id"], "--to", "original")
        self.plan = json.loads(headgate("dlq", "plan", *chosen, *self.config, "--json")[0])
        said, self.warnings = headgate("dlq", "replay", self.plan["plan"], *self.config, "--json")
        self.replay = json.loads(said)
        said, _ = headgate("dlq", "audit", "--plan", self.plan["plan"], *self.config, "--json")
        self.trail = [json.loads(line) for line in said.splitlines()]

    @property
    def targets(self) -> list[Spot]:
        """Where the replayed records are, in the order of the plan."""
        return [(row["target_partition"], row["target_offset"]) for row in self.trail]


class Outage(Incident):
    """All that the members call fails, for 80 records, which are more than 20 % of all."""

    trips = True
    number = 80
    configs: ClassVar = {MINIMUM: str(HEALTHY + number)}

    def fail(self) -> None:
        for member in self.members:
            member.set_downstream(failing_percent=100)
        self.send(self.number)

    def repair(self) -> None:
        for member in self.members:
            member.set_downstream(failing_percent=0)

    def is_repaired(self, episode: Document) -> bool:
        """And whether it has read what the group did after the resume."""
        return episode["action"] != "resume_and_watch" and super().is_repaired(episode)


class BadProducer(Incident):
    """A producer of a new release writes orders that no member understands; those of the other one are as before."""

    trips = True
    misses_percent = 50
    number, others = 96, 64
    configs: ClassVar = {MINIMUM: str(HEALTHY + number + others)}

    def fail(self) -> None:
        for _ in range(4):
            self.send(self.number // 4, bad=True, producer=self.bad_producer)
            self.send(self.others // 4)


class Poison(Incident):
    """Three records that members release again and again, among many that they accept."""

    misses_percent = 5
    releases = True
    number, limit = 3, 3
    configs: ClassVar = {LIMIT: str(limit)}

    def fail(self) -> None:
        self.send(WAITING)
        self.send(self.number, bad=True)
        self.send(WAITING)
        until(lambda: self.scene.status(self.group)["dlq_written"] == self.number)
        self.send(WAITING)  # no bucket is left with failures alone

    def is_triaged(self, episode: Document) -> bool:
        others = episode["evidence"].get("attempts_of_others", {"attempts": 0})
        return bool(episode["count"] == self.number and others["attempts"] >= self.tried - self.number)


class BrokenMember(Incident):
    """One instance of three fails; the breaker, which counts the records of the group, has another threshold."""

    size = 3
    configs: ClassVar = {THRESHOLD: "50"}

    def fail(self) -> None:
        self.broken = self.members[0]
        self.broken_id = self.scene.member_ids(self.group)[self.broken.name]
        self.broken.set_downstream(failing_percent=100)
        until(lambda: self._send_more() >= WAITING and len(self.failed()) >= 2 * BUCKET_ATTEMPTS)

    def _send_more(self) -> int:
        """Send some records; so many were accepted since the member fails."""
        self.send(4 * PARTITIONS)
        return sum("accept" in outcomes for outcomes in self.outcomes().values()) - HEALTHY

    def repair(self) -> None:
        self.broken.close()
        self.join()
