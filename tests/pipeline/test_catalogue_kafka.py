"""The estate as OpenLineage events in a topic of a real Kafka."""

import json
import uuid
from pathlib import Path

from headgate.base.clock import SystemClock
from headgate.config import load
from headgate.pipeline.catalogue_export import create_export
from tests.support.cluster import Cluster
from tests.support.topics import committed_records, create_topics
from tests.unit.lineage.shop import write_shop


def test_each_job_is_two_events_in_the_topic(cluster: Cluster, tmp_path: Path) -> None:
    topic = f"lineage-{uuid.uuid4().hex[:8]}"
    create_topics(cluster, [topic])
    write_shop(tmp_path / "tables")
    settings = tmp_path / "openlineage.yml"
    settings.write_text(
        f"transport:\n  type: composite\n  transports:\n    bus:\n      type: kafka\n      topic: {topic}\n"
        f"      config: {{bootstrap.servers: '{cluster.bootstrap}'}}\n",
        encoding="utf-8",
    )
    places = {"tables.path": str(tmp_path / "tables"), "pipeline.checkpoint": str(tmp_path / "checkpoint")}
    export = create_export(load(None, {}, {**places, "pipeline.openlineage": str(settings)}), SystemClock())
    try:
        assert export.export("c1") == 4
    finally:
        export.close()
    found = [(message.key(), message.value()) for message in committed_records(cluster.client_config(), topic)]
    names = ("share_group.billing", "spark.night-job", *(f"streams_component.shop-app.{one}" for one in "01"))
    assert sorted(str(key) for key, _ in found) == sorted(
        str(f"{kind}:headgate://c1/{name}".encode()) for name in names for kind in ("job", "run")
    )
    assert {json.loads(value or b"{}")["job"]["name"] for _, value in found} == set(names)
