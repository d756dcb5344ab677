"""Five ways in which a dead-letter topic fails, and the gateways that they need.

Deleted, too large for its topic, and a right that is revoked need one broker; a broker that is stopped and too few
replicas in sync need three and are one event: the broker of the one topic is a replica of the other.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headgate.embedded import SecurityProtocol
from tests.support.cluster import USERS, Cluster
from tests.support.raw_client import is_served
from tests.support.share_consumers import Settings
from tests.support.share_outages import Outage
from tests.support.share_scene import ShareScene, done, kafka, share_scene, until

SERVICE = "bob"
_PROTOCOL = SecurityProtocol.SASL_PLAINTEXT
_STOPPED = 2


# --- one broker


def deleted(scene: ShareScene) -> Outage:
    dlq = scene.new_topic("dlq")

    def create() -> None:
        done(scene.admin().create_topics([kafka.NewTopic(dlq, 1, 1)]))

    return Outage(
        kind="topic deleted",
        dlq=dlq,
        begin=lambda: done(scene.admin().delete_topics([dlq])),
        end=create,
        is_read_before=True,
    )


def too_large(scene: ShareScene) -> Outage:
    """Even without a copy of the record."""
    dlq = scene.new_topic("dlq")

    def limit_messages(largest: str) -> None:
        entry = kafka.ConfigEntry("max.message.bytes", largest, incremental_operation=kafka.AlterConfigOpType.SET)
        resource = kafka.ConfigResource(kafka.ConfigResource.Type.TOPIC, dlq, incremental_configs=[entry])
        done(scene.admin().incremental_alter_configs([resource]))

    return Outage(
        kind="records too large",
        dlq=dlq,
        begin=lambda: limit_messages("100"),
        end=lambda: limit_messages("1000000"),
    )


def revoked(scene: ShareScene) -> Outage:
    """For a scene of `guarded`, whose service account is no super user."""
    dlq = scene.new_topic("dlq")
    denied = _acl(kafka.ResourceType.TOPIC, dlq, kafka.AclPermissionType.DENY)
    return Outage(
        kind="right revoked",
        dlq=dlq,
        begin=lambda: done(scene.admin().create_acls([denied])),
        end=lambda: done(scene.admin().delete_acls([_as_filter(denied)])),
    )


@contextmanager
def guarded(cluster: Cluster, folder: Path, **more: Any) -> Iterator[ShareScene]:
    """A gateway whose service account is no super user, before a listener with logins."""
    password = folder / "password"
    password.write_text(USERS[SERVICE], "utf-8")
    password.chmod(0o600)
    admin = kafka.AdminClient(cluster.client_config())
    everything = [
        _acl(kind, name, kafka.AclPermissionType.ALLOW)
        for kind, name in (
            (kafka.ResourceType.TOPIC, "*"),
            (kafka.ResourceType.GROUP, "*"),
            (kafka.ResourceType.TRANSACTIONAL_ID, "*"),
            (kafka.ResourceType.BROKER, "kafka-cluster"),
        )
    ]
    done(admin.create_acls(everything))
    with (
        _removed(admin, everything),
        share_scene(
            cluster,
            folder,
            upstream=cluster.kafka.bootstrap_of(_PROTOCOL),
            upstream__service_user=SERVICE,
            upstream__service_mechanism="PLAIN",
            upstream__service_password_file=str(password),
            clients={
                name: value
                for name, value in cluster.client_config(_PROTOCOL, user="admin", mechanism="PLAIN").items()
                if name != "bootstrap.servers"
            },
            **more,
        ) as scene,
    ):
        yield scene


@contextmanager
def _removed(admin: Any, rights: list[Any]) -> Iterator[None]:
    """Remove these rights at the end, whatever happens: other tests expect that the user has none."""
    try:
        yield
    finally:
        for one in rights:
            done(admin.delete_acls([_as_filter(one)]))


def logged_in(scene: ShareScene) -> Settings:
    """The settings of a Java client for a scene of `guarded`."""
    return scene.cluster.java_config(_PROTOCOL, user="admin", mechanism="PLAIN", bootstrap=scene.bootstrap)


def _acl(kind: Any, name: str, permission: Any) -> Any:
    operation = kafka.AclOperation.WRITE if permission is kafka.AclPermissionType.DENY else kafka.AclOperation.ALL
    return kafka.AclBinding(
        kind, name, kafka.ResourcePatternType.LITERAL, f"User:{SERVICE}", "*", operation, permission
    )


def _as_filter(one: Any) -> Any:
    return kafka.AclBindingFilter(
        one.restype, one.name, one.resource_pattern_type, one.principal, one.host, one.operation, one.permission_type
    )


# --- three brokers


def stopped_and_too_few(scene: ShareScene, partitions: int) -> list[Outage]:
    """One broker is stopped: it has the one topic, is the second replica of the other, and has nothing of the third.

    The third is the control: coordinators and leaders of other topics move too when a broker stops.
    """
    alone = scene.new_topic("dlq", replicas=[[_STOPPED]])
    in_sync = scene.new_topic("dlq", replicas=[[1, _STOPPED]], configs={"min.insync.replicas": "2"})
    elsewhere = scene.new_topic("dlq", replicas=[[0]])
    replicas = [[partition % 2] for partition in range(partitions)]  # the primary topics are elsewhere
    stop = scene.cluster.kafka.nodes[_STOPPED].stop

    def start() -> None:
        start_broker(scene, _STOPPED)

    return [
        Outage(
            kind=kind,
            dlq=dlq,
            begin=stop,
            end=start,
            replicas=replicas,
            is_control=dlq is elsewhere,
            stopped=_STOPPED,
        )
        for kind, dlq in (
            ("broker stopped", alone),
            ("too few replicas in sync", in_sync),
            ("none, beside the broker that is stopped", elsewhere),
        )
    ]


def start_broker(scene: ShareScene, node: int) -> None:
    """Return when every broker is served through the gateway."""
    scene.cluster.kafka.nodes[node].start()
    scene.cluster.kafka.wait_ready()
    until(lambda: all(is_served(scene.gateway.address(one)) for one in range(3)))
