"""The lines that mend: Kafka's own tools, spelt for this cluster and this account.

One rule: text that can be pasted. Names are quoted for the shell, and where the cluster asks for more than an
address, the line names the file that an administrator's tools need.
"""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from headgate.config.model import UpstreamConfig

ADMIN_FILE = "admin.properties"  # an administrator's own client configuration, for clusters with SASL or TLS


class Resource(StrEnum):
    """What an ACL is about, as `kafka-acls.sh` names it."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTools:
    """Kafka's command line tools, pointed at one cluster."""

    bootstrap: str
    principal: str  # of the service account, such as "User:headgate"
    secured: bool = False

    @classmethod
    def of(cls, upstream: UpstreamConfig, bootstrap: str | None = None) -> "KafkaTools":
        """For the configured cluster; `bootstrap` is an address of it that answers."""
        return cls(
            bootstrap=bootstrap or str(upstream.bootstrap[0]),
            principal=f"User:{upstream.service_user or 'ANONYMOUS'}",
            secured=upstream.tls or upstream.service_user is not None,
        )

    def allow(self, resource: Resource, operations: Iterable[str], prefix: str) -> str:
        """Grant operations to the service account; `prefix` is where the names begin, unused for the cluster."""
        return self._allow(resource, operations, prefix, "--resource-pattern-type", "prefixed")

    def allow_named(self, resource: Resource, operations: Iterable[str], name: str) -> str:
        """The same for this very name; `*` stands for all."""
        return self._allow(resource, operations, name)

    def _allow(self, resource: Resource, operations: Iterable[str], name: str, *pattern: str) -> str:
        words = ["--add", "--allow-principal", self.principal]
        for operation in operations:
            words += ["--operation", operation]
        words += ["--cluster"] if resource is Resource.CLUSTER else [f"--{resource}", name, *pattern]
        return self._line("kafka-acls.sh", words)

    def set_topic_config(self, topic: str, key: str, value: str) -> str:
        words = ["--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", f"{key}={value}"]
        return self._line("kafka-configs.sh", words)

    def add_partitions(self, topic: str, partitions: int) -> str:
        return self._line("kafka-topics.sh", ["--alter", "--topic", topic, "--partitions", str(partitions)])

    def create_topic(self, topic: str) -> str:
        return self._line("kafka-topics.sh", ["--create", "--topic", topic])

    def delete_topic(self, topic: str) -> str:
        return self._line("kafka-topics.sh", ["--delete", "--topic", topic])

    def describe_topic(self, topic: str) -> str:
        return self._line("kafka-topics.sh", ["--describe", "--topic", topic])

    def reassign(self, brokers: str) -> str:
        words = ["--generate", "--topics-to-move-json-file", "topics.json", "--broker-list", brokers]
        return self._line("kafka-reassign-partitions.sh", words)

    def upgrade_feature(self, feature: str, level: int) -> str:
        return self._line("kafka-features.sh", ["upgrade", "--feature", f"{feature}={level}"])

    def set_scram_password(self, user: str, mechanism: str) -> str:
        words = ["--alter", "--entity-type", "users", "--entity-name", user]
        return self._line("kafka-configs.sh", [*words, "--add-config", f"{mechanism}=[password=NEW]"])

    def _line(self, tool: str, words: Iterable[str]) -> str:
        start = [tool, "--bootstrap-server", self.bootstrap]
        if self.secured:
            start += ["--command-config", ADMIN_FILE]
        return shlex.join([*start, *words])
