"""Plans over real records, replayed by the real process: what the tests of replays share."""

import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka import admin as kafka

from headgate.base.clock import SystemClock
from headgate.dead_letters.model.plans import PlanRecord, ReplayPlan
from headgate.dead_letters.plan_store import topic_limits
from headgate.dead_letters.progress_topic import ensure_progress_topic
from headgate.dead_letters.replay_control import ReplayControl
from headgate.dead_letters.replay_transactions import ReplayMoment
from headgate.dead_letters.replayer import Replayer, ReplayOptions, ReplayResult
from headgate.kafka.topics import TopicAdmin
from headgate.tables.definitions import TABLES
from headgate.tables.writer import TableWriter
from tests.support.cluster import Cluster
from tests.support.topics import committed_records, create_topics

DEADLINE_S = 60.0
_kafka: Any = kafka
Kind, Operation = _kafka.ResourceType, _kafka.AclOperation


def new_replayer(
    settings: dict[str, Any],
    plan: ReplayPlan,
    options: ReplayOptions | None = None,
    control: ReplayControl | None = None,
    on_progress: Callable[[ReplayResult], None] = lambda _result: None,
    on_moment: Callable[[ReplayMoment], None] = lambda _moment: None,
) -> Replayer:
    admin = TopicAdmin(settings)
    return Replayer(
        plan=plan,
        limits=topic_limits(admin, list(plan.targets)),
        settings=settings,
        admin=admin,
        clock=SystemClock(),
        options=options or ReplayOptions(by="User:ops"),
        control=control or ReplayControl(),
        on_progress=on_progress,
        on_moment=on_moment,
    )


class Scene:
    """A source topic with records, a target topic, and plans over them."""

    partitions = 2

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.source = f"orders-{uuid.uuid4().hex[:8]}"
        self.target = f"{self.source}.retry"
        self.dlq = f"dlq.{self.source}"
        self.group = f"sg-{self.source}"
        self.settings = self.cluster.client_config()
        self.admin = TopicAdmin(self.settings)
        create_topics(self.cluster, [self.source, self.target, self.dlq], partitions=self.partitions)
        ensure_progress_topic(self.admin)
        self.ids = self.admin.ids([self.source, self.target, self.dlq])

    def write(self, topic: str, records: Iterable[dict[str, object]]) -> list[tuple[int, int]]:
        """Write records, and return their partitions and offsets."""
        producer = Producer({**self.settings, "linger.ms": 5})
        places: list[tuple[int, int]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            places.append((message.partition() or 0, message.offset() or 0))

        for record in records:
            producer.produce(topic, on_delivery=delivered, **record)  # type: ignore[arg-type]
        assert producer.flush(DEADLINE_S) == 0
        return sorted(places)

    def fill(self, number: int, keys: int = 5) -> list[tuple[int, int]]:
        """Write records whose values count up for each key; a key stays in one partition."""
        return self.write(
            self.source,
            (
                {
                    "key": f"k{index % keys}".encode(),
                    "value": str(index).encode(),
                    "partition": index % keys % self.partitions,
                    "headers": [("type", b"order"), ("type", b"again"), ("empty", None)],
                }
                for index in range(number)
            ),
        )

    def record(self, position: int, partition: int, offset: int, **more: object) -> PlanRecord:
        fields: dict[str, object] = {
            "position": position,
            "topic": self.source,
            "topic_id": self.ids[self.source],
            "partition": partition,
            "offset": offset,
            "dlq_topic": self.dlq,
            "dlq_topic_id": self.ids[self.dlq],
            "dlq_partition": 0,
            "dlq_offset": 0,
            "copied": False,
            "action": "replay",
            "why": None,
            "target_topic": self.target,
            "target_partition": partition,
        }
        return PlanRecord(**(fields | more))  # type: ignore[arg-type]

    def records(self, places: Sequence[tuple[int, int]]) -> list[PlanRecord]:
        return [self.record(position, *place) for position, place in enumerate(places)]

    def plan(self, records: Sequence[PlanRecord]) -> ReplayPlan:
        metadata = self.admin.client.list_topics(timeout=DEADLINE_S)
        return ReplayPlan(
            cluster_id=metadata.cluster_id or "",
            plan=uuid.uuid4().hex[:12],
            at=1,
            by="User:ops",
            group=self.group,
            to=self.target,
            targets=self.admin.ids({record.target_topic for record in records} | {self.target}),
            records=len(records),
            parked=0,
            expired=0,
            superseded=0,
            already_replayed=0,
            over_max_replays=0,
            reasons={},
            readers=(),
            oldest_at=None,
        )

    def replayer(
        self,
        plan: ReplayPlan,
        *,
        options: ReplayOptions | None = None,
        control: ReplayControl | None = None,
        on_progress: Callable[[ReplayResult], None] = lambda _result: None,
        on_moment: Callable[[ReplayMoment], None] = lambda _moment: None,
    ) -> Replayer:
        return new_replayer(self.settings, plan, options, control, on_progress, on_moment)

    def committed(self, topic: str) -> list[Message]:
        """All records that readers of committed records see, by partition and offset."""
        return committed_records(self.settings, topic)

    def values(self, topic: str) -> list[bytes | None]:
        return [message.value() for message in self.committed(topic)]


def write_plan(root: Path, plan: ReplayPlan, records: list[PlanRecord]) -> None:
    head = asdict(plan) | {"selection": "{}"}
    head |= {name: json.dumps(head[name]) for name in ("targets", "reasons", "readers")}
    rows = [
        asdict(one)
        | {"cluster_id": plan.cluster_id, "plan": plan.plan, "source_at": None, "reason": None, "replays": 0}
        for one in records
    ]
    for name, some in (("replay_plan_records", rows), ("replay_plans", [head])):
        writer = TableWriter(root, TABLES[name])
        writer.upsert(pa.Table.from_pylist(some, schema=TABLES[name].columns), query=f"plan-{plan.plan}", batch=0)
        writer.close()


def grant(scene: Scene, user: str, kind: Any, name: str, *operations: Any, pattern: str = "LITERAL") -> None:
    bindings = [
        _kafka.AclBinding(
            kind,
            name,
            _kafka.ResourcePatternType[pattern],
            f"User:{user}",
            "*",
            one,
            _kafka.AclPermissionType.ALLOW,
        )
        for one in operations
    ]
    for created in scene.admin.client.create_acls(bindings).values():
        created.result(DEADLINE_S)
