"""What the doctor reports: findings, each with the command or setting that corrects it.

Invariant: a finding that is not ok says how to correct it. `mend` is a command to paste, a key of the configuration
with its value, or, where neither exists, what to do on which machine.
"""

import enum
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from headgate.config.model import UpstreamConfig

ADMIN_FILE = "admin.properties"  # an administrator's own client configuration, for clusters with SASL or TLS


class FindingVerdict(enum.Enum):
    """`WARNING`: it works, or the doctor could not find out. `PROBLEM`: it does not work."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Check(enum.Enum):
    """The subject of a finding, in the order in which the doctor checks."""

    CONFIGURATION = "configuration"
    MACHINE = "machine"  # ports, names and limits of this machine
    UPSTREAM = "upstream"  # each address: resolves, connects, TLS, SASL
    CERTIFICATES = "certificates"  # the gateway's files, and those of brokers
    CLUSTER = "cluster"  # one cluster, and its nodes against gateway.nodes
    VERSIONS = "versions"  # APIs that features need
    RIGHTS = "rights"  # of the service account
    TOPICS = "topics"  # Headgate's own
    SHARE_GROUPS = "share groups"  # the rights for dead letters, and the dead-letter topics
    CLOCK = "clock"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """A verdict on `subject` (an address, a topic, a right, a file); `mend` is empty when all is well."""

    verdict: FindingVerdict
    check: Check
    subject: str
    text: str
    mend: str = ""

    def __post_init__(self) -> None:
        assert bool(self.mend) == (self.verdict is not FindingVerdict.OK), self


def ok(check: Check, subject: str, text: str) -> DoctorFinding:
    return DoctorFinding(verdict=FindingVerdict.OK, check=check, subject=subject, text=text)


def warning(check: Check, subject: str, text: str, *, mend: str) -> DoctorFinding:
    return DoctorFinding(verdict=FindingVerdict.WARNING, check=check, subject=subject, text=text, mend=mend)


def problem(check: Check, subject: str, text: str, *, mend: str) -> DoctorFinding:
    return DoctorFinding(verdict=FindingVerdict.PROBLEM, check=check, subject=subject, text=text, mend=mend)


def count(findings: Iterable[DoctorFinding]) -> dict[FindingVerdict, int]:
    """The number of findings of each verdict."""
    counts = dict.fromkeys(FindingVerdict, 0)
    for finding in findings:
        counts[finding.verdict] += 1
    return counts


class Resource(enum.StrEnum):
    """The type of resource of an ACL, as `kafka-acls.sh` names it."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTools:
    """Command lines of Kafka's tools for one cluster, quoted for the shell."""

    bootstrap: str
    principal: str  # of the service account, such as "User:headgate"
    secured: bool = False

    @classmethod
    def of(cls, upstream: UpstreamConfig, bootstrap: str | None = None) -> "KafkaTools":
        """For the configured cluster; `bootstrap` is one of its addresses that responds."""
        return cls(
            bootstrap=bootstrap or str(upstream.bootstrap[0]),
            principal=f"User:{upstream.service_user or 'ANONYMOUS'}",
            secured=upstream.tls or upstream.service_user is not None,
        )

    def allow(self, resource: Resource, operations: Iterable[str], name: str, *, is_prefix: bool = False) -> str:
        """Grant operations to the service account; `name` is not used for the cluster, and `*` is all of the others."""
        words = ["--add", "--allow-principal", self.principal]
        for operation in operations:
            words += ["--operation", operation]
        if resource is Resource.CLUSTER:
            words.append("--cluster")
        else:
            words += [f"--{resource}", name, *(("--resource-pattern-type", "prefixed") if is_prefix else ())]
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

    def list_acls(self, topic: str) -> str:
        return self._line("kafka-acls.sh", ["--list", "--topic", topic, "--resource-pattern-type", "match"])

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
