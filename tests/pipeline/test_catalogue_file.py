"""The pipeline sends the estate that a gateway has seen to a catalogue: from the wire to the events, in a file.

A client with the name that Connect gives its producers stands for a connector: by that name the gateway knows one. The
share group and the Spark query are real. `tests/integration/test_dev.py` has real connectors and applications.
"""

from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from openlineage.client.event_v2 import JobEvent, RunEvent

from headgate.pipeline.derived.lineage import LINEAGE
from headgate.pipeline.queries import QUERIES
from headgate.spark import TopologyFacts, listen
from tests.pipeline.estate import Estate
from tests.pipeline.test_spark_seen import run_query
from tests.support.cluster import Cluster
from tests.support.gateway import running_gateway
from tests.support.openlineage_events import read_event
from tests.support.share_consumers import LibrdkafkaMember
from tests.support.share_scene import ShareScene, until

RECORDS = 10


def test_a_connector_a_share_group_and_a_query_are_sent_with_the_topics_that_the_gateway_saw(
    cluster: Cluster, estate: Estate, tmp_path: Path
) -> None:
    events = tmp_path / "events"
    estate.openlineage = tmp_path / "openlineage.yml"
    estate.openlineage.write_text(f"transport:\n  type: file\n  log_file_path: {events}\n  append: true\n", "utf-8")
    session = estate.spark.newSession()
    listener = listen(session, TopologyFacts(estate.settings, prefix=estate.prefix))
    keys: dict[str, Any] = {"activity__enable": True, "share_groups__enable": True, "facts__prefix": estate.prefix}
    try:
        with running_gateway(tmp_path / "gw", estate.settings["bootstrap.servers"], **keys) as gateway:
            scene = ShareScene(cluster=cluster, gateway=gateway, facts=estate.prefix)
            topic, group = scene.new_topic(), scene.new_group()
            producer = Producer({**scene.clients, "client.id": "connector-producer-catalog-0"})
            for _ in range(RECORDS):
                producer.produce(topic, b"A:")
            assert producer.flush(30) == 0
            with LibrdkafkaMember(scene.clients, group, [topic]) as member:
                until(lambda: len(member.deliveries) == RECORDS)
            run_query(session, gateway, topic, tmp_path, name="totals")
            scene.close()
    finally:
        listener.close(60)
    assert estate.run(*QUERIES, derivations=(LINEAGE,))
    sent = [read_event(line) for line in events.read_text("utf-8").splitlines()]
    uses = [
        (
            type(event),
            event.job.name,
            [one.name for one in event.inputs or ()],
            [one.name for one in event.outputs or ()],
        )
        for event in sent
    ]
    jobs = [
        ("connector.catalog", [], [topic]),
        (f"share_group.{group}", [topic], []),
        ("spark.totals", [topic], []),
    ]
    assert uses == [(kind, *job) for job in jobs for kind in (JobEvent, RunEvent)]
    assert {event.job.namespace for event in sent} == {f"headgate://{estate.cluster_id()}"}
