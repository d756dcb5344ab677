"""`python -m bench.record_incidents`: incidents of real share consumers, into tests/fixtures/incidents.

One broker, one gateway and two JVMs of share consumers (kafka-clients 4.3.1 and 4.4.0) run the incidents of
`bench.incident_plans`, some at a time, each with a topic, a dead-letter topic and a group of its own. Records are
produced at a steady rate; while the fault lasts, the downstream of members or marked records fail. Afterwards what
triage reads is taken from the topics: dispositions, events, dead letters, and the records around these with their
producers. `python -m bench.triage` evaluates the verdict on them.

It takes about six minutes. A verdict depends on counts and not on speed, so other programs may run meanwhile.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from bench.incident_fixtures import (
    FOLDER,
    TYPE_HEADER,
    DisposedSecond,
    RecordedIncident,
    RecordedLetter,
    dump,
    record_features,
)
from bench.incident_plans import FAMILIES, SEEDS, BreakerPlan, IncidentPlan, RecordTraits, incident_plan
from headgate.config.addresses import Address
from headgate.config.model import UpstreamConfig
from headgate.dead_letters.model.clusters import SourceRecord, pauses_of
from headgate.dead_letters.model.headers import read_headers
from headgate.embedded import ClusterSpec, EmbeddedKafka
from headgate.embedded.spec import QUICK_SETTINGS
from headgate.facts.codec import decode
from headgate.facts.observations import DispositionsCounted, EventHappened
from headgate.kafka.producer_ids import ProducerIdReader
from headgate.share_groups.model.recorded_history import RecordedEvent
from tests.support.certificates import make_certificates
from tests.support.cluster import Cluster
from tests.support.ports import port_block
from tests.support.share_consumers import ShareError, ShareJvm, ShareMember
from tests.support.share_scene import (
    AUTO_RESUME,
    AUTO_RESUME_MS,
    BREAKER,
    DLQ_TOPIC,
    LIMIT,
    MINIMUM,
    THRESHOLD,
    WINDOW,
    ShareScene,
    share_scene,
    until,
)
from tests.support.share_truth import Reading

_SETTINGS = {**QUICK_SETTINGS, "auto.create.topics.enable": "false"}
_AT_ONCE = 8
_TURN_S = 0.02
_DRAIN_S = 3.0
_WINDOW_MS, _MIN_MESSAGES, _RESUME_MS = 10_000, 40, 5_000
_FLUSH_S = 60.0
_PRODUCERS = 3

_scene_lock = threading.Lock()  # one scene makes the topics and groups of all incidents


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRun:
    """An incident that was run: where to look for what became of it."""

    plan: IncidentPlan
    group: str
    topic: str
    dlq: str


class IncidentLoad:
    """Produces the records of a plan, each with the features that the plan gives it."""

    def __init__(self, scene: ShareScene, topic: str, plan: IncidentPlan) -> None:
        self._topic, self._plan = topic, plan
        config = {**scene.direct, "linger.ms": 5, "enable.idempotence": True}
        self._producers = [Producer(config) for _ in range(_PRODUCERS)]
        self._count = 0

    def send(self, at_s: float) -> None:
        traits = self._plan.traits(self._count)
        self._producers[traits.producer].produce(
            self._topic,
            _value(traits, self._plan.mark(traits, at_s)),
            f"key-{traits.key}".encode(),
            partition=self._plan.random.randrange(self._plan.partitions),
            headers={TYPE_HEADER: traits.kind.encode()},
        )
        self._count += 1

    def poll(self) -> None:
        for one in self._producers:
            one.poll(0)

    def flush(self) -> None:
        for one in self._producers:
            if one.flush(_FLUSH_S):
                raise RuntimeError(f"{self._plan.name}: records were not acknowledged in {_FLUSH_S:.0f} s")


def _value(traits: RecordTraits, letter: str) -> bytes:
    head = b"\0" + traits.schema.to_bytes(4, "big") + letter.encode() + b":"
    size = (1 << traits.band) * 3 // 2 - len(f"key-{traits.key}")
    return head + b"x" * (size - len(head))


def run_incident(scene: ShareScene, jvm: ShareJvm, plan: IncidentPlan) -> IncidentRun:
    """From its first record to its last acknowledgement."""
    with _scene_lock:
        topic, dlq = scene.new_topic(partitions=plan.partitions), scene.new_topic("dlq")
        group = scene.new_group(_configs(plan, dlq))
    members = [jvm.join(f"{plan.name}-{at}", scene.bootstrap, group, [topic], each=False) for at in range(plan.members)]
    until(lambda: _member_count(scene, jvm, group) == plan.members, what=lambda: f"{plan.name}: members")
    _produce(IncidentLoad(scene, topic, plan), plan, members)
    time.sleep(_DRAIN_S)
    for one in members:
        one.close()
    return IncidentRun(plan=plan, group=group, topic=topic, dlq=dlq)


def _member_count(scene: ShareScene, jvm: ShareJvm, group: str) -> int:
    try:
        return int(jvm.describe(scene.bootstrap, group)["members"])
    except ShareError:  # the group begins with its first member
        return 0


def _configs(plan: IncidentPlan, dlq: str) -> dict[str, str]:
    configs = {DLQ_TOPIC: dlq, LIMIT: str(plan.limit)}
    if plan.breaker is not BreakerPlan.OFF:
        configs |= {
            BREAKER: "true",
            THRESHOLD: str(plan.threshold_percent),
            WINDOW: str(_WINDOW_MS),
            MINIMUM: str(_MIN_MESSAGES),
        }
    if plan.breaker is BreakerPlan.RESUMES:
        configs |= {AUTO_RESUME: "true", AUTO_RESUME_MS: str(_RESUME_MS)}
    return configs


def _produce(load: IncidentLoad, plan: IncidentPlan, members: Sequence[ShareMember]) -> None:
    """Records at the plan's rate, and the changes of the downstream when they are due."""
    changes = sorted(plan.changes, key=lambda one: one.at_s)
    began = time.monotonic()
    sent = 0
    while (at_s := time.monotonic() - began) < plan.length_s:
        while changes and changes[0].at_s <= at_s:
            change = changes.pop(0)
            for at, member in enumerate(members):
                if change.members is None or at in change.members:
                    member.set_downstream(failing_percent=change.failing_percent, on_failure=change.on_failure)
        while sent < at_s * plan.rate:
            load.send(at_s)
            sent += 1
        load.poll()
        time.sleep(_TURN_S)
    load.flush()


# --- what Kafka has of it ---------------------------------------------------------------------------------------------


class IncidentTopics:
    """Reads what the gateway and the producers wrote; `now_ms` is when the incidents were over."""

    def __init__(self, cluster: Cluster, facts: str, now_ms: int) -> None:
        self._config = cluster.client_config()
        self._now_ms = now_ms
        self._dispositions: dict[str, list[DispositionsCounted]] = defaultdict(list)
        self._events: dict[str, list[EventHappened]] = defaultdict(list)
        self._seen: set[object] = set()
        host, _, port = cluster.bootstrap.rpartition(":")
        self._upstream = UpstreamConfig(bootstrap=(Address(host, int(port)),), service_mechanism="none")
        for suffix in ("dispositions", "events"):
            for _, key, value, _ in self._read(f"{facts}{suffix}"):
                self._take(decode(suffix, key, value))

    def incident(self, run: IncidentRun, *, recorded_on: str) -> RecordedIncident:
        """What triage reads of this group."""
        plan, counted = run.plan, self._dispositions[run.group]
        if not counted:
            raise RuntimeError(f"{plan.name}: the gateway counted no attempts")
        begin = min(one.second for one in counted)
        numbers = {member: at for at, member in enumerate(sorted({one.member for one in counted}))}
        letters = self._letters(run, begin * 1000)
        pauses = pauses_of(RecordedEvent(at=one.at, event=one.event, by=one.by) for one in self._events[run.group])
        return RecordedIncident(
            family=plan.family,
            seed=plan.seed,
            truth=plan.truth,
            is_overlapping=plan.is_overlapping,
            made={
                "recorded_on": recorded_on,
                "clients": f"kafka-clients {'4.4.0' if plan.clients == 'clients' else '4.3.1'}",
                "members": plan.members,
                "partitions": plan.partitions,
                "records_a_second": plan.rate,
                "delivery_limit": plan.limit,
                "breaker": plan.breaker.value,
                "fault_s": plan.fault_s,
            },
            now_ms=self._now_ms - begin * 1000,
            attempts=_seconds(counted, begin, numbers),
            pauses=[
                (one.since - begin * 1000, None if one.until is None else one.until - begin * 1000) for one in pauses
            ],
            letters=letters,
            sources=self._sources(run, letters),
        )

    def _take(self, fact: object) -> None:
        if isinstance(fact, DispositionsCounted):
            origin = (fact.writer, fact.boot, fact.seq)
            if origin not in self._seen:
                self._seen.add(origin)
                self._dispositions[fact.group].append(fact)
        elif isinstance(fact, EventHappened) and fact.subject_kind == "share_group" and fact.id not in self._seen:
            self._seen.add(fact.id)
            self._events[fact.subject].append(fact)

    def _letters(self, run: IncidentRun, begin_ms: int) -> list[RecordedLetter]:
        """Each once, without those that were withdrawn."""
        found: dict[tuple[int, int], RecordedLetter] = {}
        for _, _, _, headers in self._read(run.dlq):
            said = read_headers(headers)
            if said.topic != run.topic or said.partition is None or said.offset is None or said.at is None:
                raise RuntimeError(f"{run.plan.name}: a dead letter that does not name its record: {said}")
            letter = RecordedLetter(
                partition=said.partition,
                offset=said.offset,
                at_ms=said.at - begin_ms,
                delivery_count=said.delivery_count,
            )
            found.setdefault((said.partition, said.offset), letter)
        for event in self._events[run.group]:
            if event.event == "dead_letter_withdrawn":
                detail = json.loads(event.detail.text)
                for first, last in detail["offsets"]:
                    for offset in range(first, last + 1):
                        found.pop((detail["partition"], offset), None)
        return [found[place] for place in sorted(found)]

    def _sources(self, run: IncidentRun, letters: Iterable[RecordedLetter]) -> dict[int, list[SourceRecord]]:
        """The records from the first to the last dead letter of each partition."""
        bounds: dict[int, tuple[int, int]] = {}
        for one in letters:
            first, last = bounds.get(one.partition, (one.offset, one.offset))
            bounds[one.partition] = (min(first, one.offset), max(last, one.offset))
        ranges = {(run.topic, number): (first, last + 1) for number, (first, last) in bounds.items()}
        reader = ProducerIdReader(self._upstream)
        producers = reader.read(ranges)
        if reader.problem is not None:
            raise RuntimeError(f"{run.plan.name}: {reader.problem}")
        found: dict[int, list[SourceRecord]] = defaultdict(list)
        offsets: dict[int, int] = defaultdict(int)  # without transactions every offset is a record
        for number, key, value, headers in self._read(run.topic):
            offset = offsets[number]
            offsets[number] += 1
            first, last = bounds.get(number, (0, -1))
            if first <= offset <= last:
                producer = producers[run.topic, number].producer_of(offset)
                features = record_features(key, value, headers, producer)
                found[number].append(SourceRecord(offset=offset, features=features))
        return dict(found)

    def _read(self, topic: str) -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
        reader = Reading(self._config, topic)
        try:
            return reader.to_the_end()
        finally:
            reader.close()


def _seconds(counted: Iterable[DispositionsCounted], begin: int, numbers: dict[str, int]) -> list[DisposedSecond]:
    """All partitions and workers together."""
    summed: dict[tuple[int, int], list[int]] = {}
    deliveries: dict[tuple[int, int], dict[int, int]] = {}
    for one in counted:
        place = (one.second - begin, numbers[one.member])
        counts = summed.setdefault(place, [0, 0, 0, 0])
        for index, many in enumerate((one.accepted, one.released, one.rejected, one.over_limit)):
            counts[index] += many
        by_count = deliveries.setdefault(place, {})
        for count, many in one.by_delivery_count:
            by_count[count] = by_count.get(count, 0) + many
    return [
        DisposedSecond(
            second=second,
            member=member,
            accepted=summed[second, member][0],
            released=summed[second, member][1],
            rejected=summed[second, member][2],
            over_limit=summed[second, member][3],
            by_delivery_count=tuple(sorted(deliveries[second, member].items())),
        )
        for second, member in sorted(summed)
    ]


# --- all of them ------------------------------------------------------------------------------------------------------


def record(plans: Sequence[IncidentPlan], folder: Path, *, at_once: int, say: Callable[[str], None]) -> int:
    """Run these incidents and write their files; returns how many could not be read back."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name, ExitStack() as stack:
        work = Path(name)
        spec = ClusterSpec(data_dir=work / "kafka", port=port_block(), settings=_SETTINGS, heap_mb=768)
        cluster = Cluster(
            kafka=stack.enter_context(EmbeddedKafka(spec)), certificates=make_certificates(work / "certificates")
        )
        jvms = {which: stack.enter_context(ShareJvm(which, work / f"{which}.log")) for which in ("broker", "clients")}
        with share_scene(cluster, work / "gateway") as scene:
            facts = scene.facts

            def run(plan: IncidentPlan) -> IncidentRun:
                done = run_incident(scene, jvms[plan.clients], plan)
                say(f"{plan.name}: over")
                return done

            with ThreadPoolExecutor(at_once) as pool:
                runs = list(pool.map(run, plans))
        # The gateway has ended, so all that it counted is in the topics.
        topics = IncidentTopics(cluster, facts, time.time_ns() // 1_000_000)
        failed = 0
        for one in runs:
            try:
                found = topics.incident(one, recorded_on=time.strftime("%Y-%m-%d", time.gmtime()))
            except RuntimeError as failure:  # the others are good
                say(str(failure))
                failed += 1
                continue
            text = dump(found)
            (folder / f"{found.name}.json").write_text(text, encoding="utf-8")
            attempts = sum(second.accepted + second.failed for second in found.attempts)
            say(f"{found.name}: {attempts} attempts, {len(found.letters)} dead letters, {len(text):,} bytes")
        return failed


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.record_incidents",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=list(FAMILIES), default=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--at-once", type=int, default=_AT_ONCE, help="so many incidents run at a time")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    args = parser.parse_args(given)
    plans = [incident_plan(family, seed) for family in args.only for seed in args.seeds]
    return int(record(plans, args.folder, at_once=args.at_once, say=_say) > 0)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
