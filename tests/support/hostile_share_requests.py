"""What ShareAcknowledges cost a healthy client: of clients that have not logged in, and of 1 MB, which are decoded.

A gateway before the SASL listener, a share group with a dead-letter topic, and the attacker and the watcher of the
other campaigns. Nothing of an unproved request is decoded (`docs/security.md`, A), so its phase has the limits of all
others. A request of 1 MB is decoded beside the event loop for a client that may read the group: its latency is for the
record.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.cluster import USERS, Cluster
from tests.support.hostile_campaign import Outcome, watched
from tests.support.hostile_child import Child
from tests.support.share_scene import DLQ_TOPIC, share_scene
from tests.support.streams_client import SASL_PLAINTEXT

_ATTACKER_NICENESS = 10
_ADMIN = "admin"
_LOGIN = f"{_ADMIN}:{USERS[_ADMIN]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRequestsSize:
    """How much of everything.

    What is decoded is 1 MB of one partition: a broker 4.3.1 needs 18 s for one request of 40,000 partitions.
    """

    quiet_seconds: float = 30.0
    connections: int = 40
    partitions: int = 10_000
    waves: int = 20
    decode_batches: int = 50_000
    decode_seconds: float = 20.0
    recovery_seconds: float = 60.0


def with_share_requests(cluster: Cluster, folder: Path, size: ShareRequestsSize) -> Outcome:
    password = folder / "password"
    password.write_text(USERS[_ADMIN], "utf-8")
    password.chmod(0o600)
    upstream = cluster.kafka.bootstrap_of(SASL_PLAINTEXT)
    with (
        share_scene(
            cluster,
            folder,
            upstream=upstream,
            upstream__service_user=_ADMIN,
            upstream__service_mechanism="PLAIN",
            upstream__service_password_file=str(password),
            clients={
                name: value
                for name, value in cluster.client_config(SASL_PLAINTEXT, user=_ADMIN, mechanism="PLAIN").items()
                if name != "bootstrap.servers"
            },
        ) as scene,
        Child("tests.support.hostile_attacks", niceness=_ATTACKER_NICENESS) as attacker,
    ):
        topic = scene.new_topic()
        about: dict[str, Any] = {
            "group": scene.new_group({DLQ_TOPIC: scene.new_topic("dlq")}),
            "topic_id": scene.topic_id(topic).hex(),
        }
        with watched(scene.gateway, int(upstream.rpartition(":")[2]), scene.new_topic(), login=_LOGIN) as campaign:
            campaign.outcome.is_spliced = False
            unproved = {"partitions": size.partitions, "connections": size.connections, **about}
            large = {"batches": size.decode_batches, "login": _LOGIN, **about}
            campaign.warm_up(attacker, "large_acknowledges", seconds=2.0, **large)
            campaign.warm_up(attacker, "unproved_acknowledges", waves=1, **unproved)
            campaign.be_quiet(size.quiet_seconds)
            campaign.attack(
                attacker,
                "unproved_acknowledges",
                name="unproved acknowledges",
                patience=60 + 20 * size.waves,
                waves=size.waves,
                **unproved,
            )
            campaign.attack(
                attacker,
                "large_acknowledges",
                name="1 MB decoded",
                is_bounded=False,
                patience=120 + size.decode_seconds,
                seconds=size.decode_seconds,
                **large,
            )
            campaign.recover(size.recovery_seconds)
            return campaign.finish()
