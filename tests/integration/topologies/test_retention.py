"""With a real broker: records of a deleted group are removed in time, and those of groups that live stay."""

import json
import secrets
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.support.cluster import Cluster
from tests.support.gateway import HEADGATE, GatewayProcess, running_gateway
from tests.support.member_topologies import chain
from tests.support.members import Members
from tests.support.topics import create_topics

WAIT_S = 60.0
REMOVED = "headgate_topologies_removed_records_total"
AVAILABLE, NOT_STORED = "AVAILABLE", "NOT_STORED"


def wait_until(is_so: Callable[[], bool], gateway: GatewayProcess) -> None:
    by = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < by, gateway.log_lines()
        time.sleep(0.05)


def kept(cluster: Cluster, topic: str) -> dict[str, list[list[Any]]]:
    """The keys that a compaction would keep, by group."""
    consumer = Consumer(cluster.client_config() | {"group.id": "test", "enable.auto.commit": False})
    partition = TopicPartition(topic, 0, 0)
    try:
        consumer.assign([partition])
        _, end = consumer.get_watermark_offsets(partition, timeout=30)
        last: dict[bytes, bytes | None] = {}
        position = 0
        while position < end:
            for record in consumer.consume(100, timeout=1):
                last[bytes(record.key() or b"")] = record.value()
                position = (record.offset() or 0) + 1
    finally:
        consumer.close()
    found: dict[str, list[list[Any]]] = {}
    for key, value in last.items():
        if value is not None:
            parts = json.loads(key)
            found.setdefault(parts[0], []).append(parts)
    return found


def push(members: Members, gateway: GatewayProcess, group: str, name: str) -> None:
    one = members.join(name, gateway.bootstrap, group, topics=[group], topology=chain(group))
    one.wait("pushed")
    one.close()
    members.wait_for_group(gateway.bootstrap, group, lambda seen: seen.state == "Empty")


def test_deleted_groups_leave_the_topics_in_time_and_live_ones_stay(
    cluster: Cluster, members: Members, tmp_path: Path
) -> None:
    gone, here, again = (f"{name}-{secrets.token_hex(4)}" for name in ("gone", "here", "again"))
    create_topics(cluster, [gone, here, again])
    topic = f"{gone}.topologies"
    settings: dict[str, Any] = {
        "topologies__owner": "gateway",
        "topologies__cleanup_interval_ms": 1000,
        "facts__prefix": f"{gone}.",
        "tables__path": str(tmp_path / "data" / "tables"),
    }
    with running_gateway(tmp_path, cluster.bootstrap, **settings) as gateway:
        wait_until(lambda: gateway.metric("headgate_topologies_ready") == 1, gateway)
        for name in (gone, here, again):
            push(members, gateway, name, name)
        for name in (gone, again):
            assert members.delete(gateway.bootstrap, name)[name].error == ""
        push(members, gateway, again, f"{again}-2")
        # Within the seven days nothing is removed.
        cycles = gateway.metric("headgate_topologies_cleanup_cycles_total")
        wait_until(lambda: gateway.metric("headgate_topologies_cleanup_cycles_total") >= cycles + 3, gateway)
        assert gateway.metric(REMOVED, reason="deleted") == 0
    before = kept(cluster, topic)
    assert {name: len(found) for name, found in before.items()} == {gone: 2, here: 1, again: 3}

    soon: dict[str, Any] = {"topologies__deleted_retention_ms": 1000, "topologies__versions_kept": 1}
    with running_gateway(tmp_path, cluster.bootstrap, **settings, **soon) as gateway:
        wait_until(lambda: gateway.metric(REMOVED, reason="deleted") >= 2, gateway)
        wait_until(lambda: gateway.metric(REMOVED, reason="versions") >= 1, gateway)
        after = kept(cluster, topic)
        assert gone not in after
        assert after[here] == before[here]
        # Of the group that was created again the current version, and the record of its earlier deletion.
        assert {len(key) for key in after[again]} == {2, 5}
        assert len(after[again]) == 2
        for name in (here, again):
            assert members.describe(gateway.bootstrap, name, topology=True)[name].status == AVAILABLE

    settings["tables__path"] = str(tmp_path / "new" / "tables")  # without its cache
    with running_gateway(tmp_path, cluster.bootstrap, **settings) as gateway:
        wait_until(lambda: gateway.metric("headgate_topologies_ready") == 1, gateway)
        wait_until(lambda: gateway.metric("headgate_topologies_groups") == 2, gateway)
        for name in (here, again):
            assert members.describe(gateway.bootstrap, name, topology=True)[name].status == AVAILABLE

        forget = [str(HEADGATE), "topology", "forget", here, "--purge", "--json"]
        config = str(gateway.setup.folder / "headgate.toml")
        done = subprocess.run([*forget, "--config", config], capture_output=True, text=True, timeout=WAIT_S, check=True)
        # The version and its deletion, and the epochs if the state topic has any.
        assert json.loads(done.stdout)["records"] >= 2
        assert list(kept(cluster, topic)) == [again]
        wait_until(lambda: members.describe(gateway.bootstrap, here, topology=True)[here].status == NOT_STORED, gateway)
        push(members, gateway, here, f"{here}-2")
        assert members.describe(gateway.bootstrap, here, topology=True)[here].status == AVAILABLE
