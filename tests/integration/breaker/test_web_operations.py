"""Pausing and resuming through the web server, as users of a cluster with ACLs: the broker decides, and events tell.

Also that the state of a group is in `/api/v1/events` within a second after a gateway decided it.
"""

import http.client
import json
import statistics
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate.web.tokens import TokenScope, add_token
from tests.support.cluster import USERS, Cluster
from tests.support.share_scene import BREAKER, PAUSE, RESUME, THRESHOLD, ShareScene, done, kafka, share_scene, until
from tests.support.streams_client import SASL_PLAINTEXT
from tests.support.web import Web, running_web

WRONG = "not-the-password"
SECRETS = (*USERS.values(), WRONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """A web server whose tokens act as alice, who may change groups of this prefix, and as bob, who may not."""

    scene: ShareScene
    web: Web
    prefix: str
    tokens: dict[str, str]

    def new_group(self) -> str:
        return f"{self.prefix}{uuid.uuid4().hex[:8]}"

    def post(self, group: str, action: str, token: str, **more: Any) -> tuple[int, Any]:
        path = f"/api/v1/share-groups/{group}/{action}"
        return self.web.call("POST", path, token=self.tokens[token], document={"reason": f"{action} it", **more})

    def is_paused(self, group: str) -> bool | None:
        status, answer = self.web.call("GET", f"/api/v1/share-groups?contains={group}", token=self.tokens["alice"])
        assert status == 200, answer
        return next((row["paused"] for row in answer["share_groups"] if row["name"] == group), None)

    def operations(self, group: str) -> list[tuple[str, dict[str, Any]]]:
        return [(event["by"], event["detail"]) for event in self.scene.events(group, "operation")]


@pytest.fixture(scope="module")
def office(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder = tmp_path_factory.mktemp("office")
    for user, password in USERS.items():
        (folder / user).write_text(password)
        (folder / user).chmod(0o600)
    sasl: dict[str, object] = {
        "upstream.service_user": "admin",
        "upstream.service_mechanism": "PLAIN",
        "upstream.service_password_file": str(folder / "admin"),
    }
    upstream = cluster.kafka.bootstrap_of(SASL_PLAINTEXT)
    login = cluster.client_config(SASL_PLAINTEXT, user="admin", mechanism="PLAIN")
    login.pop("bootstrap.servers")
    with share_scene(
        cluster, folder, upstream=upstream, clients=login, **{key.replace(".", "__"): one for key, one in sasl.items()}
    ) as scene:
        prefix = f"office-{scene.name}-"
        _allow(scene, prefix)
        tokens = _tokens(folder)
        keys = sasl | {
            "facts.prefix": scene.facts,
            "activity.enable": False,
            "web.gateway": scene.bootstrap,
            "web.tokens_file": str(folder / "tokens.toml"),
            "tables.path": str(folder / "tables"),
        }
        with running_web(folder / "web", upstream, keys) as web:
            yield Office(scene=scene, web=web, prefix=prefix, tokens=tokens)
            written = web.log.read_text()
            assert [one for one in SECRETS if one in written] == []


def _allow(scene: ShareScene, prefix: str) -> None:
    binding = kafka.AclBinding(
        kafka.ResourceType.GROUP,
        prefix,
        kafka.ResourcePatternType.PREFIXED,
        "User:alice",
        "*",
        kafka.AclOperation.ALTER_CONFIGS,
        kafka.AclPermissionType.ALLOW,
    )
    done(scene.admin().create_acls([binding]))


def _tokens(folder: Path) -> dict[str, str]:
    file = folder / "tokens.toml"
    expires = datetime.now(UTC) + timedelta(days=1)
    tokens = {
        name: add_token(file, name=name, scope=TokenScope.OPERATE, expires=expires) for name in ("alice", "bob", "none")
    }
    with file.open("a") as opened:
        for name in ("alice", "bob"):
            opened.write(
                f'\n[tokens.{name}.kafka]\nuser = "{name}"\nmechanism = "SCRAM-SHA-256"\n'
                f'password_file = "{folder / name}"\n'
            )
    return tokens


def test_the_user_of_the_token_pauses_and_resumes_if_the_broker_lets_it(office: Office) -> None:
    group = office.new_group()
    until(lambda: office.post(group, "pause", "alice")[0] == 200)  # the ACL may not be everywhere at once
    status, answer = office.post(group, "resume", "alice")
    assert (status, answer["paused"], answer["remaining_reasons"]) == (200, False, [])
    until(lambda: [one["outcome"] for _, one in office.operations(group)][-2:] == ["done", "done"])
    by, last = office.operations(group)[-1]
    assert by == "User:alice"
    assert (last["operation"], last["reason"], last["caller"], last["credential"]) == (
        "resume",
        "resume it",
        "token alice",
        "token",
    )
    # The gateway itself wrote that alice did it.
    until(lambda: [one["by"] for one in office.scene.events(group, "resumed")][-1:] == ["User:alice"])


def test_a_user_without_the_right_gets_403_with_what_is_missing_and_nothing_changes(office: Office) -> None:
    group = office.new_group()
    office.scene.configure(group, {PAUSE: "keep it"})
    until(lambda: office.is_paused(group) is True)
    status, answer = office.post(group, "resume", "bob")
    assert status == 403
    assert "User:bob needs ALTER_CONFIGS" in answer["message"]
    until(lambda: [(by, one["outcome"]) for by, one in office.operations(group)] == [("User:bob", "refused")])
    assert office.is_paused(group) is True


def test_a_token_without_a_user_is_refused_at_a_gateway_with_sasl_and_the_service_account_is_not_used(
    office: Office,
) -> None:
    group = office.new_group()
    status, answer = office.post(group, "pause", "none")
    assert status == 403
    assert "requires SASL" in answer["message"]
    assert office.is_paused(group) is None
    status, told = office.web.call("GET", "/api/v1/operator", token=office.tokens["none"])
    assert (status, told["credential"], told["may_type"]) == (200, "typed", True)


def test_a_typed_user_acts_once_and_a_wrong_password_does_nothing(office: Office) -> None:
    group = office.new_group()
    credential = {"user": "alice", "password": WRONG, "mechanism": "SCRAM-SHA-256"}
    status, answer = office.post(group, "pause", "none", credential=credential)
    assert status == 403
    assert "login" in answer["message"].lower()
    assert WRONG not in json.dumps(answer)
    assert office.is_paused(group) is None
    credential |= {"password": USERS["alice"]}
    until(lambda: office.post(group, "pause", "none", credential=credential)[0] == 200)
    assert office.is_paused(group) is True
    until(lambda: [by for by, one in office.operations(group) if one["outcome"] == "done"] == ["User:alice"])
    assert [one for one in SECRETS if one in json.dumps(office.operations(group))] == []
    # Nothing of it is kept: the next request needs a user again.
    assert office.post(group, "resume", "none")[0] == 403


def test_the_window_of_the_breaker_is_that_of_the_gateway(office: Office) -> None:
    group = office.new_group()
    office.scene.configure(group, {BREAKER: "true", THRESHOLD: "35"})

    def found() -> dict[str, Any]:
        path = f"/api/v1/share-groups/{group}/breaker"
        status, answer = office.web.call("GET", path, token=office.tokens["alice"])
        assert status == 200, answer
        return dict(answer)

    until(lambda: found()["threshold_percent"] == 35, what=lambda: str(found()))
    assert (found()["problem"], found()["parked"]) == (None, [])


def test_a_pause_by_another_client_is_in_the_stream_within_a_second(office: Office) -> None:
    group = office.new_group()
    connection = http.client.HTTPConnection("127.0.0.1", office.web.port, timeout=60)
    try:
        connection.request("GET", "/api/v1/events", headers={"Authorization": f"Bearer {office.tokens['alice']}"})
        answer = connection.getresponse()
        assert answer.status == 200
        while answer.readline() != b"event: snapshot\n":
            pass
        late_s: list[float] = []
        for number in range(5):
            office.scene.configure(group, {PAUSE: f"by the tool, {number}"})
            (reason,) = _next_row(answer, group, paused=True)["pause_reasons"]
            late_s.append(time.time() - reason["since"] / 1000)
            assert reason["text"] == f"by the tool, {number}"
            office.scene.configure(group, {RESUME: "done"})
            assert _next_row(answer, group, paused=False)["pause_reasons"] == []
        assert statistics.median(late_s) < 1, late_s
    finally:
        connection.close()


def _next_row(answer: http.client.HTTPResponse, group: str, *, paused: bool) -> dict[str, Any]:
    """The next row of the group in the stream in which it is paused, or is not."""
    while True:
        line = answer.readline().decode()
        assert line, "the stream ended"
        row = json.loads(line[6:]) if line.startswith("data: ") else {}
        if row.get("name") == group and row["paused"] is paused:
            return dict(row)
