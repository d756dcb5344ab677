"""Ways in which a dead-letter topic fails, and a primary stream that does not notice (KIP-1316, risk 2).

Some seconds each; `make soak` has the same for as long as the document's example lasts. Brokers that are stopped are in
`test_three_brokers.py`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.embedded import SecurityProtocol
from tests.integration.breaker.conftest import Report
from tests.support.cluster import USERS, Cluster
from tests.support.share_consumers import ShareJvm
from tests.support.share_outages import Ordeal, endure
from tests.support.share_scene import ShareScene, done, kafka, share_scene

SERVICE = "bob"


def test_a_topic_that_is_deleted(scene: ShareScene, java_440: ShareJvm, seconds: float, report: Report) -> None:
    dlq = scene.new_topic("dlq")

    def delete() -> None:
        done(scene.admin().delete_topics([dlq]))

    def create() -> None:
        done(scene.admin().create_topics([kafka.NewTopic(dlq, 1, 1)]))

    report(endure([Ordeal(scene, java_440, dlq)], delete, create, seconds=seconds))


def test_records_that_are_too_large(scene: ShareScene, java_431: ShareJvm, seconds: float, report: Report) -> None:
    """Even without a copy."""
    dlq = scene.new_topic("dlq")
    report(
        endure(
            [Ordeal(scene, java_431, dlq)],
            lambda: limit_messages(scene, dlq, "100"),
            lambda: limit_messages(scene, dlq, "1000000"),
            seconds=seconds,
        )
    )


def limit_messages(scene: ShareScene, topic: str, largest: str) -> None:
    entry = kafka.ConfigEntry("max.message.bytes", largest, incremental_operation=kafka.AlterConfigOpType.SET)
    resource = kafka.ConfigResource(kafka.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    done(scene.admin().incremental_alter_configs([resource]))


# --- rights ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(cluster: Cluster, tmp_path: Path) -> Iterator[ShareScene]:
    """A gateway whose service account is no super user, before a listener with logins."""
    password = tmp_path / "password"
    password.write_text(USERS[SERVICE], "utf-8")
    password.chmod(0o600)
    admin = kafka.AdminClient(cluster.client_config())
    everything = [
        acl(kind, name, kafka.AclPermissionType.ALLOW)
        for kind, name in (
            (kafka.ResourceType.TOPIC, "*"),
            (kafka.ResourceType.GROUP, "*"),
            (kafka.ResourceType.TRANSACTIONAL_ID, "*"),
            (kafka.ResourceType.BROKER, "kafka-cluster"),
        )
    ]
    done(admin.create_acls(everything))
    protocol = SecurityProtocol.SASL_PLAINTEXT
    with share_scene(
        cluster,
        tmp_path,
        upstream=cluster.kafka.bootstrap_of(protocol),
        upstream__service_user=SERVICE,
        upstream__service_mechanism="PLAIN",
        upstream__service_password_file=str(password),
        clients={
            name: value
            for name, value in cluster.client_config(protocol, user="admin", mechanism="PLAIN").items()
            if name != "bootstrap.servers"
        },
    ) as scene:
        yield scene
    for one in everything:
        done(admin.delete_acls([as_filter(one)]))


def test_a_right_that_is_revoked(
    guarded: ShareScene, cluster: Cluster, java_440: ShareJvm, seconds: float, report: Report
) -> None:
    dlq = guarded.new_topic("dlq")
    denied = acl(kafka.ResourceType.TOPIC, dlq, kafka.AclPermissionType.DENY)
    settings = cluster.java_config(
        SecurityProtocol.SASL_PLAINTEXT, user="admin", mechanism="PLAIN", bootstrap=guarded.bootstrap
    )
    report(
        endure(
            [Ordeal(guarded, java_440, dlq, settings=settings)],
            lambda: done(guarded.admin().create_acls([denied])),
            lambda: done(guarded.admin().delete_acls([as_filter(denied)])),
            seconds=seconds,
        )
    )


def acl(kind: Any, name: str, permission: Any) -> Any:
    operation = kafka.AclOperation.WRITE if permission is kafka.AclPermissionType.DENY else kafka.AclOperation.ALL
    return kafka.AclBinding(
        kind, name, kafka.ResourcePatternType.LITERAL, f"User:{SERVICE}", "*", operation, permission
    )


def as_filter(one: Any) -> Any:
    return kafka.AclBindingFilter(
        one.restype, one.name, one.resource_pattern_type, one.principal, one.host, one.operation, one.permission_type
    )
