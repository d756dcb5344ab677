"""`headgate doctor` in front of a real broker: each missing right or topic is found, and its command corrects it."""

import argparse
import json
import shlex
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from headgate.cli import doctor
from headgate.config import Config
from headgate.config.model import LagsConfig
from headgate.doctor.findings import Resource
from headgate.doctor.rights import AclRight, Name, Scope, own_rights, rights_in
from headgate.embedded import SecurityProtocol
from headgate.facts import GroupConfigSet, encode
from headgate.facts.topics import topic_specs
from headgate.share_groups.model.group_configs import DLQ_TOPIC
from tests.support.cluster import USERS, Cluster, start_test_cluster
from tests.support.gateway import GatewayProcess, GatewaySetup
from tests.support.ports import port_block

Capture = pytest.CaptureFixture[str]
Found = list[dict[str, str]]
WAIT_S = 60.0
OWN = own_rights(Config())
ADVISED = ("Describe on kafka-cluster", "Describe on group *", "Describe on topic *")
FOR_DEAD_LETTERS = tuple(one for one in rights_in(Scope.SHARE_GROUPS, Scope.TRIAGE) if one.need != "optional")
_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,  # librdkafka's name of it
}


ALICES_ACLS = AclBindingFilter(
    ResourceType.ANY,
    None,  # type: ignore[arg-type]
    ResourcePatternType.ANY,
    "User:alice",
    None,  # type: ignore[arg-type]
    AclOperation.ANY,
    AclPermissionType.ANY,
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with start_test_cluster(tmp_path_factory) as running:
        yield running


@dataclass
class Ward:
    """A configuration in front of the cluster, and the doctor's findings on it."""

    cluster: Cluster
    folder: Path
    prefix: str
    admin: AdminClient
    granted: set[AclBinding] = field(default_factory=set)
    share_groups: str = "enable = false"
    lags: bool = True

    @property
    def dlq_prefix(self) -> str:
        return f"dlq-{self.prefix}"

    def examine(
        self,
        capsys: Capture,
        *,
        protocol: SecurityProtocol = SecurityProtocol.SASL_PLAINTEXT,
        bootstrap: Iterable[str] = (),
        password: str = USERS["alice"],
        code: int,
    ) -> Found:
        """What `headgate doctor --json` says when it ends with `code`."""
        file = self._write(protocol, list(bootstrap) or [self.cluster.kafka.bootstrap_of(protocol)], password)
        parser = argparse.ArgumentParser()
        doctor.define_arguments(parser.add_subparsers().add_parser("doctor"))
        args = parser.parse_args(["doctor", "--config", str(file), "--json"])
        self.wait_for_acls()
        capsys.readouterr()
        got = args.run(args)
        findings: Found = json.loads(capsys.readouterr().out)["findings"]
        assert got == code, not_ok(findings)
        return findings

    def _write(self, protocol: SecurityProtocol, bootstrap: list[str], password: str) -> Path:
        port = port_block()
        secret = self.folder / "password"
        secret.write_text(password + "\n")
        lines = [
            f'[gateway]\nlisten = "127.0.0.1:{port}"\nnodes = "0-0"\nmax_connections = 100',
            f'[metrics]\nlisten = "127.0.0.1:{port + 8}"',
            f'[facts]\nprefix = "{self.prefix}"',
            f'[share_groups]\ndlq_prefix = "{self.dlq_prefix}"\n{self.share_groups}',
            f"[lags]\nenable = {json.dumps(self.lags)}",
            f"[upstream]\nbootstrap = {json.dumps(bootstrap)}",
        ]
        if protocol in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}:
            lines += ['service_user = "alice"', f'service_password_file = "{secret}"']
        else:
            lines += ['service_mechanism = "none"']
        if protocol in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}:
            lines += ["tls = true", f'tls_ca = "{self.cluster.certificates.ca}"']
        file = self.folder / "headgate.toml"
        file.write_text("\n".join(lines) + "\n")
        return file

    def grant_everything(self) -> None:
        for right in own_rights(Config(lags=LagsConfig(enable=self.lags))):
            self.grant_own(right)

    def grant_own(self, right: AclRight) -> None:
        if right.need != "implied":
            self.grant(str(right.resource), right.operation, "*" if right.name is Name.ALL else "")

    def grant_for_dead_letters(self, *rights: AclRight) -> None:
        for right in rights:
            name = self.dlq_prefix if right.resource is Resource.TOPIC else "*"
            self.grant(str(right.resource), right.operation, name)

    def grant(self, resource: str, operation: str, name: str = "") -> None:
        """For what begins with the name, which is the prefix unless given; `*` is all."""
        is_literal = resource == "cluster" or name == "*"
        binding = AclBinding(
            _RESOURCES[resource],
            "kafka-cluster" if resource == "cluster" else name or self.prefix,
            ResourcePatternType.LITERAL if is_literal else ResourcePatternType.PREFIXED,
            "User:alice",
            "*",
            _operation(operation),
            AclPermissionType.ALLOW,
        )
        self.admin.create_acls([binding])[binding].result(WAIT_S)
        self.granted.add(binding)

    def mend(self, line: str) -> None:
        """Do what a line of `kafka-acls.sh`, `kafka-topics.sh` or `kafka-configs.sh` says, without a JVM for it."""
        words = shlex.split(line)
        given = {word: words[at + 1] for at, word in enumerate(words[:-1]) if word.startswith("--")}
        if words[0] == "kafka-acls.sh":
            (resource,) = [kind for kind in _RESOURCES if f"--{kind}" in words]
            assert ("--resource-pattern-type" in given) == (given.get(f"--{resource}", "*") != "*")
            self.grant(resource, given["--operation"], given.get(f"--{resource}", ""))
            return
        if words[0] == "kafka-topics.sh":
            assert "--create" in words
            self.make_topic(given["--topic"])
            return
        assert words[0] == "kafka-configs.sh"
        key, _, value = given["--add-config"].partition("=")
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ResourceType.TOPIC, given["--entity-name"], incremental_configs=[entry])
        self.admin.incremental_alter_configs([changed])[changed].result(WAIT_S)
        wait_until(lambda: self._config(given["--entity-name"], key) == value)

    def _config(self, topic: str, key: str) -> str | None:
        asked = ConfigResource(ResourceType.TOPIC, topic)
        found: str | None = self.admin.describe_configs([asked])[asked].result(WAIT_S)[key].value
        return found

    def wait_for_acls(self) -> None:
        """The controller answers when it has decided; the broker that is asked may know a moment later."""
        wait_until(lambda: len(self.admin.describe_acls(ALICES_ACLS).result(WAIT_S)) == len(self.granted))

    def make_topics(self, **configs: dict[str, str]) -> None:
        specs = topic_specs(prefix=self.prefix, brokers=1, max_bytes=4 * 1024 * 1024)
        new = [
            NewTopic(
                spec.name,
                num_partitions=spec.partitions,
                replication_factor=1,
                config=dict(spec.configs) | configs.get(spec.name.removeprefix(self.prefix), {}),
            )
            for spec in specs
        ]
        for made in self.admin.create_topics(new).values():
            made.result(WAIT_S)
        # The controller answers before the broker lists them.
        wait_until(lambda: {spec.name for spec in specs} <= self.admin.list_topics(timeout=WAIT_S).topics.keys())

    def make_topic(self, name: str) -> None:
        new = NewTopic(name, num_partitions=1, replication_factor=1)
        self.admin.create_topics([new])[name].result(WAIT_S)
        wait_until(lambda: name in self.admin.list_topics(timeout=WAIT_S).topics)

    def create_offsets_topic(self) -> None:
        """As every gateway does that has written a state: the broker creates it for the first consumer with a group."""
        consumer = Consumer({**self.cluster.client_config(), "group.id": "headgate"})
        try:
            wait_until(lambda: "__consumer_offsets" in self.admin.list_topics(timeout=WAIT_S).topics)
        finally:
            consumer.close()

    def set_dlq_topics(self, **topics: str) -> None:
        """Groups have these dead-letter topics, as a gateway has written it down; the prefix is put before them."""
        producer = Producer(self.cluster.client_config())
        for group, topic in topics.items():
            fact = GroupConfigSet(at=1, group=group, name=DLQ_TOPIC, value=self.dlq_prefix + topic, by="User:operator")
            suffix, key, value = encode(fact)
            producer.produce(self.prefix + suffix, value, key)
        assert producer.flush(WAIT_S) == 0


@pytest.fixture
def ward(cluster: Cluster, tmp_path: Path) -> Iterator[Ward]:
    """With a prefix of its own, so that topics of one test do not matter to another; ACLs are taken away again."""
    admin = AdminClient(cluster.client_config())  # its calls end when it does
    ward = Ward(cluster, tmp_path, f"d{uuid.uuid4().hex[:8]}.", admin)
    yield ward
    for deleted in admin.delete_acls([ALICES_ACLS]).values():
        deleted.result(WAIT_S)
    ward.granted.clear()
    ward.wait_for_acls()


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def _operation(name: str) -> Any:
    """`DescribeConfigs` is DESCRIBE_CONFIGS to librdkafka."""
    return AclOperation["".join(f"_{char}" if char.isupper() else char for char in name).lstrip("_").upper()]


def not_ok(findings: Found) -> Found:
    return [one for one in findings if one["verdict"] != "ok"]


def of_check(check: str, findings: Found) -> Found:
    return [one for one in findings if one["check"] == check]


def problems(findings: Found) -> list[tuple[str, str]]:
    return [(one["check"], one["subject"]) for one in findings if one["verdict"] == "problem"]


@pytest.mark.parametrize("topics_exist", [False, True])
def test_an_account_with_exactly_the_rights_of_the_table_has_no_findings(
    ward: Ward, capsys: Capture, topics_exist: bool
) -> None:
    ward.grant_everything()
    if topics_exist:
        ward.make_topics()
    before = everything_in(ward)
    findings = ward.examine(capsys, code=0)
    assert not_ok(findings) == []
    checks = {"machine", "upstream", "cluster", "versions", "rights", "topics", "clock"}
    assert {one["check"] for one in findings} == checks
    assert everything_in(ward) == before


def test_each_missing_right_is_found_and_its_command_grants_it(ward: Ward, capsys: Capture) -> None:
    missing = of_check("rights", not_ok(ward.examine(capsys, code=1)))
    assert len(missing) == len(OWN)
    for at, one in enumerate(missing, 1):
        ward.mend(one["mend"].partition("by itself: ")[2] or one["mend"])
        left = [rest["subject"] for rest in missing[at:]]
        if "Write on topic" in " ".join(rest["subject"] for rest in missing[:at]):
            left = [subject for subject in left if "IdempotentWrite" not in subject]
        has_problem = any(subject not in ADVISED for subject in left)
        found = ward.examine(capsys, code=1 if has_problem else 0)
        assert [rest["subject"] for rest in of_check("rights", not_ok(found))] == left


# Read and Write imply Describe, so the two rights to describe cannot be missing alone.
@pytest.mark.parametrize(
    "missing",
    [right for right in OWN if right.need == "needed" and right.operation != "Describe"],
    ids=lambda right: f"{right.operation}-{right.resource}",
)
def test_a_right_that_is_missing_alone_is_the_one_that_is_found(ward: Ward, capsys: Capture, missing: AclRight) -> None:
    for right in OWN:
        if right != missing:
            ward.grant_own(right)
    found = [one["subject"] for one in of_check("rights", not_ok(ward.examine(capsys, code=1)))]
    is_write = (missing.resource, missing.operation) == (Resource.TOPIC, "Write")
    implied = ["IdempotentWrite on kafka-cluster"] if is_write else []
    assert found == [f"{missing.operation} on {missing.resource} {ward.prefix}*", *implied]


def everything_in(ward: Ward) -> tuple[set[str], set[str]]:
    """Topics, Kafka's internal ones too, and groups."""
    listed = ward.admin.list_consumer_groups(request_timeout=WAIT_S).result(WAIT_S)
    return set(ward.admin.list_topics(timeout=WAIT_S).topics), {one.group_id for one in listed.valid}


def test_the_probe_of_a_transactional_id_does_not_disturb_its_owner(ward: Ward, capsys: Capture) -> None:
    ward.grant_everything()
    ward.make_topics()
    producer = Producer({**ward.cluster.client_config(), "transactional.id": f"{ward.prefix}trips"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(f"{ward.prefix}trips", b"value", b"key")
    producer.flush(WAIT_S)
    ward.examine(capsys, code=0)
    producer.commit_transaction(WAIT_S)


def test_a_topic_that_differs_is_found_and_its_line_mends_it(ward: Ward, capsys: Capture) -> None:
    ward.grant_everything()
    ward.make_topics(
        state={"cleanup.policy": "delete"},
        topologies={"max.message.bytes": "1048588"},
        activity={"retention.ms": "3600000"},
    )
    findings = not_ok(ward.examine(capsys, code=1))
    assert [(one["subject"].removeprefix(ward.prefix), one["verdict"]) for one in findings] == [
        ("state", "problem"),
        ("topologies", "problem"),
        ("activity", "warning"),
    ]
    for one in findings:
        ward.mend(one["mend"])
    assert not_ok(ward.examine(capsys, code=0)) == []


def test_others_that_may_change_the_topics_are_named(ward: Ward, capsys: Capture) -> None:
    ward.grant_everything()
    ward.make_topics()
    subject = f"who may change {ward.prefix}*"
    [alone] = [one for one in ward.examine(capsys, code=0) if one["subject"] == subject]
    assert alone["verdict"] == "ok"
    writer = AclBinding(
        ResourceType.TOPIC,
        f"{ward.prefix}sta",
        ResourcePatternType.PREFIXED,
        "User:bob",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    ward.admin.create_acls([writer])[writer].result(WAIT_S)
    bobs = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        "User:bob",
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    try:
        wait_until(lambda: len(ward.admin.describe_acls(bobs).result(WAIT_S)) == 1)
        [found] = not_ok(ward.examine(capsys, code=0))
        assert (found["verdict"], found["subject"]) == ("warning", subject)
        assert "User:bob (Write) may" in found["text"]
        assert f"--list --topic {ward.prefix}state --resource-pattern-type match" in found["mend"]
    finally:
        for deleted in ward.admin.delete_acls([bobs]).values():
            deleted.result(WAIT_S)


def test_a_wrong_password_is_reported_with_the_brokers_own_text(ward: Ward, capsys: Capture) -> None:
    (finding,) = not_ok(ward.examine(capsys, password="not-it", code=1))
    assert finding["check"] == "upstream"
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in finding["text"]
    assert "--entity-type users --entity-name alice --add-config 'SCRAM-SHA-512=[password=NEW]'" in finding["mend"]
    assert "not-it" not in json.dumps(finding)


def test_an_unreachable_address_does_not_hide_the_others(ward: Ward, capsys: Capture) -> None:
    ward.grant_everything()
    alive = ward.cluster.kafka.bootstrap_of(SecurityProtocol.SASL_PLAINTEXT)
    dead = f"127.0.0.1:{port_block()}"
    findings = ward.examine(capsys, bootstrap=[dead, alive], code=1)
    assert problems(findings) == [("upstream", dead)]
    assert [one for one in findings if one["check"] == "clock"]


def test_tls_with_the_right_name_is_in_order_but_for_the_short_life_of_test_certificates(
    ward: Ward, capsys: Capture
) -> None:
    ward.grant_everything()
    findings = ward.examine(capsys, protocol=SecurityProtocol.SASL_SSL, code=0)
    assert {(one["check"], one["verdict"]) for one in not_ok(findings)} == {("certificates", "warning")}
    (answer,) = [one for one in findings if one["check"] == "upstream"]
    assert "TLSv1.3" in answer["text"]


def test_a_certificate_for_another_name_is_reported_with_its_names(ward: Ward, capsys: Capture) -> None:
    broker = ward.cluster.kafka.bootstrap_of(SecurityProtocol.SASL_SSL)
    with forwarding("127.0.0.9", port_block(), broker) as other_name:
        findings = ward.examine(capsys, protocol=SecurityProtocol.SASL_SSL, bootstrap=[other_name], code=1)
    (finding,) = [one for one in findings if one["verdict"] == "problem"]
    assert "not for 127.0.0.9" in finding["text"]
    assert "localhost" in finding["text"]
    assert "upstream.bootstrap = localhost:" in finding["mend"]


@pytest.mark.parametrize(
    ("port_of", "configured_as", "text", "mend"),
    [
        (SecurityProtocol.SSL, SecurityProtocol.PLAINTEXT, "uses TLS", "upstream.tls = true"),
        (SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL, "does not use TLS", "upstream.tls = false"),
        (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.PLAINTEXT, "requires SASL", "upstream.service_user"),
        (SecurityProtocol.PLAINTEXT, SecurityProtocol.SASL_PLAINTEXT, "does not offer SASL", "service_mechanism"),
    ],
)
def test_the_wrong_listener_is_recognised(
    ward: Ward, capsys: Capture, port_of: SecurityProtocol, configured_as: SecurityProtocol, text: str, mend: str
) -> None:
    bootstrap = [ward.cluster.kafka.bootstrap_of(port_of)]
    findings = ward.examine(capsys, protocol=configured_as, bootstrap=bootstrap, code=1)
    (finding,) = [one for one in findings if one["verdict"] == "problem"]
    assert text in finding["text"]
    assert mend in finding["mend"]


def test_an_anonymous_principal_that_may_alter_the_cluster_is_a_warning(ward: Ward, capsys: Capture) -> None:
    (finding,) = not_ok(ward.examine(capsys, protocol=SecurityProtocol.PLAINTEXT, code=0))
    assert (finding["check"], finding["subject"]) == ("rights", "least privilege")
    assert "every client" in finding["text"]


def test_a_gateway_that_runs_here_already_is_no_obstacle(cluster: Cluster, tmp_path: Path, capsys: Capture) -> None:
    port = port_block()
    setup = GatewaySetup(folder=tmp_path, port=port, upstream=cluster.bootstrap, metrics_port=port + 8)
    with GatewayProcess(setup):
        parser = argparse.ArgumentParser()
        doctor.define_arguments(parser.add_subparsers().add_parser("doctor"))
        args = parser.parse_args(["doctor", "--config", str(tmp_path / "headgate.toml")])
        assert args.run(args) == 0
    out = capsys.readouterr().out
    assert "a Headgate runs here and is ready" in out
    assert f"127.0.0.1:{port + 1}: node 0: in use, and a Headgate runs here" in out


@pytest.fixture
def minded(ward: Ward) -> Ward:
    """Share groups are on, `orders` has a dead-letter topic that is there; all rights but those of dead letters."""
    ward.share_groups = "enable = true"
    ward.lags = False  # its right on all topics would be one on dead-letter topics too
    ward.grant_everything()
    ward.make_topics()
    ward.make_topic(f"{ward.dlq_prefix}orders")
    ward.set_dlq_topics(orders="orders")
    ward.create_offsets_topic()
    return ward


def test_dead_letters_with_exactly_their_rights_are_in_order_and_nothing_is_changed(
    minded: Ward, capsys: Capture
) -> None:
    minded.grant_for_dead_letters(*FOR_DEAD_LETTERS)
    before = everything_in(minded), group_configs(minded, "orders")
    findings = minded.examine(capsys, code=0)
    assert not_ok(findings) == []
    assert len(of_check("share groups", findings)) == len(FOR_DEAD_LETTERS) + 1
    assert (everything_in(minded), group_configs(minded, "orders")) == before


def group_configs(ward: Ward, group: str) -> dict[str, str | None]:
    asked = ConfigResource(ResourceType.GROUP, group)
    found = ward.admin.describe_configs([asked], request_timeout=WAIT_S)[asked].result(WAIT_S)
    return {name: entry.value for name, entry in found.items()}


def test_where_share_groups_are_off_nothing_is_reported_about_dead_letters(minded: Ward, capsys: Capture) -> None:
    minded.share_groups = "enable = false"
    findings = minded.examine(capsys, code=0)
    assert not_ok(findings) == []
    assert of_check("share groups", findings) == []


def test_each_missing_right_for_dead_letters_is_found_and_its_command_grants_it(minded: Ward, capsys: Capture) -> None:
    minded.set_dlq_topics(payments="payments")
    missing = not_ok(minded.examine(capsys, code=1))
    assert [(one["subject"].partition(" on ")[0], one["verdict"]) for one in missing] == [
        (right.operation, "problem" if right.need == "needed" else "warning") for right in FOR_DEAD_LETTERS
    ]
    assert all("payments" in one["text"] for one in missing)
    for at, one in enumerate(missing, 1):
        minded.mend(one["mend"])
        found = not_ok(minded.examine(capsys, code=1))
        assert [rest["subject"] for rest in found if " on " in rest["subject"]] == [
            rest["subject"] for rest in missing[at:]
        ]
    # With the rights it is known that one of the topics does not exist.
    (absent,) = not_ok(minded.examine(capsys, code=1))
    assert (absent["subject"], absent["verdict"]) == (f"{minded.dlq_prefix}payments", "problem")
    minded.mend(absent["mend"])
    assert not_ok(minded.examine(capsys, code=0)) == []


def test_a_dead_letter_topic_that_headgate_makes_needs_the_right_to_create_it(minded: Ward, capsys: Capture) -> None:
    minded.share_groups = "enable = true\ndlq_auto_create = true"
    minded.set_dlq_topics(orders="other")
    minded.grant_for_dead_letters(*FOR_DEAD_LETTERS)
    (finding,) = not_ok(minded.examine(capsys, code=1))
    assert (finding["subject"], finding["verdict"]) == (f"Create on topic {minded.dlq_prefix}*", "problem")
    minded.mend(finding["mend"])
    findings = minded.examine(capsys, code=0)
    assert not_ok(findings) == []
    assert "Headgate creates it" in of_check("share groups", findings)[-1]["text"]
    assert f"{minded.dlq_prefix}other" not in everything_in(minded)[0]


def test_an_account_that_may_not_read_the_state_does_not_know_the_dead_letter_topics(
    ward: Ward, capsys: Capture
) -> None:
    ward.share_groups = "enable = true"
    for right in OWN:
        if right.need != "implied" and (str(right.resource), right.operation) != ("topic", "Read"):
            ward.grant(str(right.resource), right.operation)
    ward.grant_for_dead_letters(*FOR_DEAD_LETTERS)
    ward.make_topics()
    ward.set_dlq_topics(orders="orders")
    (finding,) = not_ok(of_check("share groups", ward.examine(capsys, code=1)))
    assert (finding["subject"], finding["verdict"]) == (f"{ward.prefix}state", "warning")
    ward.mend(finding["mend"])
    assert problems(ward.examine(capsys, code=1)) == [("share groups", f"{ward.dlq_prefix}orders")]


@contextmanager
def forwarding(host: str, port: int, to: str) -> Iterator[str]:
    """A plain TCP forwarder: a broker under an address that is not in its certificate."""
    target_host, _, target_port = to.rpartition(":")
    with socket.create_server((host, port)) as server:
        threading.Thread(target=_accept, args=(server, (target_host, int(target_port))), daemon=True).start()
        yield f"{host}:{port}"
        # Closing alone does not wake up a thread that waits in accept.
        server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket, target: tuple[str, int]) -> None:
    with suppress(OSError):
        while True:
            client, _ = server.accept()
            broker = socket.create_connection(target)
            for source, sink in ((client, broker), (broker, client)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
