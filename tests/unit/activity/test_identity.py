"""Who uses a topic: each row of tests/fixtures/activity/identities.jsonl is a client and the actor behind it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.activity.model.identity import (
    ANONYMOUS,
    OTHER,
    ClientKey,
    Evidence,
    GroupMemberships,
    GroupRef,
    connector_client,
    identify,
    stem,
)

FIXTURE = Path(__file__).parents[2] / "fixtures" / "activity" / "identities.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in FIXTURE.read_text("utf-8").splitlines()]


def evidence(row: dict[str, Any]) -> Evidence:
    return Evidence(
        client=ClientKey(row.get("principal", ANONYMOUS), row["client_id"], row.get("host", "10.1.2.3")),
        direction=row["direction"],
        groups=[GroupRef(*one) for one in row.get("groups", ())],
        instance_groups=[GroupRef(*one) for one in row.get("instance_groups", ())],
        group=GroupRef(*row["group"]) if "group" in row else None,
        transactional_id=row.get("transactional_id"),
        is_worker=row.get("is_worker", False),
        principal_is_shared=row.get("principal_is_shared", False),
    )


@pytest.mark.parametrize("row", ROWS, ids=[row["case"] for row in ROWS])
def test_the_rules_name_the_actor(row: dict[str, Any]) -> None:
    who = identify(evidence(row))
    assert [who.kind, who.name, who.rule, who.confidence] == row["is"]


def test_the_page_names_every_rule_and_no_other() -> None:
    page = (FIXTURE.parents[3] / "docs" / "activity.md").read_text("utf-8")
    cells = re.findall(r"^\| (`[\w-]+`(?:, `[\w-]+`)*) \|", page, re.MULTILINE)
    named = {rule for cell in cells for rule in re.findall(r"[\w-]+", cell)}
    assert named == {row["is"][2] for row in ROWS} | {OTHER.rule}


@given(st.text(max_size=80), st.sampled_from(["read", "write"]), st.text(max_size=40) | st.none())
def test_every_client_id_gets_an_actor(client_id: str, direction: Any, transactional: Any) -> None:
    client = ClientKey(ANONYMOUS, client_id, "h")
    who = identify(Evidence(client=client, direction=direction, transactional_id=transactional))
    assert who.name
    assert identify(Evidence(client=client, direction=direction, transactional_id=transactional)) == who


@given(st.text(min_size=1, max_size=30), st.integers(0, 999_999_999), st.sampled_from(["producer", "dlq-producer"]))
def test_a_connectors_name_and_task_come_back_from_its_client_id(name: str, task: int, role: str) -> None:
    assert connector_client(f"connector-{role}-{name}-{task}") == (name, task, "write")


def test_the_stem_of_a_hostile_name_is_found() -> None:
    assert stem("-1" * 128 + "x") == "-1" * 128 + "x"


# What is remembered of groups.

CLIENT = ClientKey("User:a", "svc-StreamThread-1-consumer", "h1")
G, OTHER_GROUP = GroupRef("consumer_group", "g"), GroupRef("consumer_group", "o")


def test_a_group_is_known_to_all_clients_with_the_same_key_and_to_no_other() -> None:
    known = GroupMemberships()
    assert known.add(CLIENT, G, 1.0)
    assert not known.add(CLIENT, G, 2.0)
    assert known.groups_of(CLIENT, 3.0) == (G,)
    assert known.groups_of(CLIENT._replace(host="h2"), 3.0) == ()
    assert known.groups_of(CLIENT._replace(principal="User:b"), 3.0) == ()
    producer = CLIENT._replace(client_id="svc-StreamThread-2-producer")
    assert known.groups_of(producer, 3.0) == ()
    assert known.instance_groups_of(producer, 3.0) == (G,)
    assert known.instance_groups_of(producer._replace(host="h2"), 3.0) == ()
    restoring = CLIENT._replace(client_id="svc-StateUpdater-2-restore-consumer")
    assert known.instance_groups_of(restoring, 3.0) == (G,)


def test_a_membership_expires_without_heartbeats() -> None:
    known = GroupMemberships()
    known.add(CLIENT, G, 0.0)
    known.add(CLIENT, OTHER_GROUP, 290.0)
    assert set(known.groups_of(CLIENT, 299.0)) == {G, OTHER_GROUP}
    assert known.groups_of(CLIENT, 301.0) == (OTHER_GROUP,)
    assert known.add(CLIENT, G, 302.0)


def test_a_membership_ends_with_the_last_connection_that_had_it() -> None:
    known = GroupMemberships()
    known.add(CLIENT, G, 0.0)
    known.add(CLIENT, G, 1.0)
    known.add(CLIENT, G, 2.0, is_first=False)
    known.remove(CLIENT, G)
    assert known.groups_of(CLIENT, 3.0) == known.instance_groups_of(CLIENT, 3.0) == (G,)
    known.remove(CLIENT, G)
    assert known.groups_of(CLIENT, 3.0) == known.instance_groups_of(CLIENT, 3.0) == ()
    assert len(known) == 0
    known.remove(CLIENT, G)
    assert known.add(CLIENT, OTHER_GROUP, 4.0)
    assert known.groups_of(CLIENT, 4.0) == (OTHER_GROUP,)


def test_the_tables_of_groups_are_bounded() -> None:
    known = GroupMemberships(most=100)
    for number in range(10_000):
        known.add(ClientKey("User:a", f"c{number}-StreamThread-1-consumer", "h"), G, float(number))
        known.add_client(ClientKey(f"User:{number}", f"c{number}", "h"))
    assert len(known) <= 300
    for number in range(100):
        known.add(CLIENT, GroupRef("consumer_group", str(number)), 5.0)
    assert len(known.groups_of(CLIENT, 5.0)) <= 4


def test_the_names_of_at_most_ten_thousand_principals_are_kept() -> None:
    known = GroupMemberships()
    for number in range(10_100):
        known.add_client(ClientKey(f"User:{number}", f"c{number}", "h"))
    assert len(known) == 10_000


def test_a_principal_is_shared_if_clients_with_two_names_use_it() -> None:
    known = GroupMemberships()
    assert not known.add_client(ClientKey("User:a", "orders-1", "h"))
    assert not known.add_client(ClientKey("User:a", "orders-2", "h2"))  # two instances of one
    assert not known.add_client(ClientKey("User:a", "producer-1", "h"))  # a library's default is no name
    assert not known.is_shared_principal("User:a")
    assert known.add_client(ClientKey("User:a", "billing", "h"))
    assert known.is_shared_principal("User:a")
    assert not known.add_client(ClientKey("User:a", "third", "h"))  # it is known
    assert not known.is_shared_principal("User:b")
    assert not known.is_shared_principal(None)
