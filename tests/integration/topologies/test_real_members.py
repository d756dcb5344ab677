"""KIP-1331 with real parts: members and Admin of kafka-clients 4.4.0, a 4.3.1 broker, and the gateway between them.

The members are asked and push by themselves; what a test sees is what their clients did and what Admin reads.
"""

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.exercise import until
from tests.support.cluster import Cluster, start_test_cluster
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.member_topologies import (
    HOSTILE_NAMES,
    Node,
    Topology,
    chain,
    large,
    processor,
    sink,
    source,
)
from tests.support.members import Group, Member, Members
from tests.support.streams_apps import COUNTS_OUT, WORDS_IN, streams_groups, word_count_demo
from tests.support.topics import create_topics

QUICK = {"group.streams.heartbeat.interval.ms": "200"}
READY_S = 60.0
STARTED_S = 120.0  # an application of Kafka Streams, or a broker


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of this module's own, which it may stop."""
    with start_test_cluster(tmp_path_factory, settings=QUICK) as running:
        yield running


@contextmanager
def serving(folder: Path, upstream: str, store: str = "kafka:", **more: Any) -> Iterator[GatewayProcess]:
    """A gateway that has read its topics and asks."""
    own: dict[str, Any] = {"topologies__owner": "gateway", "topologies__store": store, **more}
    with running_gateway(folder, upstream, tables__path=str(folder / "data" / "tables"), **own) as gateway:
        wait_until_ready(gateway)
        yield gateway


def wait_until_ready(gateway: GatewayProcess) -> None:
    by = time.monotonic() + READY_S
    while gateway.metric("headgate_topologies_ready") != 1:
        assert time.monotonic() < by, gateway.log_lines()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def gateway(own: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Its descriptions are kept in Kafka."""
    with serving(tmp_path_factory.mktemp("gateway"), own.bootstrap) as running:
        yield running


@pytest.fixture
def name(own: Cluster) -> str:
    """A name for a group, and for its source topic of two partitions."""
    name = f"real-{secrets.token_hex(4)}"
    create_topics(own, [name], partitions=2)
    return name


def said(gateway: GatewayProcess, event: str, group: str) -> int:
    """How often the gateway's log says this of the group; log and metrics come later than its answers."""
    return sum(f'event="{event}" group={group} ' in line for line in gateway.log_lines())


def is_gone(group: Group) -> bool:
    return group.error == "GroupIdNotFoundException"


def is_empty(group: Group) -> bool:
    return group.state == "Empty"


def read(members: Members, gateway: GatewayProcess, group: str) -> Group:
    return members.describe(gateway.bootstrap, group, topology=True)[group]


def assert_shows(members: Members, gateway: GatewayProcess, group: str, topology: Topology) -> None:
    seen = read(members, gateway, group)
    assert (seen.error, seen.status) == ("", "AVAILABLE"), "\n".join(gateway.log_lines()[-20:])
    assert seen.topology == topology.as_read()


def assert_shows_nothing(members: Members, gateway: GatewayProcess, group: str) -> None:
    seen = read(members, gateway, group)
    assert (seen.error, seen.status, seen.topology) == ("", "NOT_STORED", None), "\n".join(gateway.log_lines()[-20:])


def end_of(members: Members, bootstrap: str, group: str, *left: Member) -> None:
    """The members leave and the group is deleted, at this address."""
    for member in left:
        member.close()
    members.wait_for_group(bootstrap, group, is_empty)
    assert members.delete(bootstrap, group)[group].error == ""


# --- asked, pushed, read back ---------------------------------------------------------------------------------------


def everything(topic: str) -> Topology:
    """Every kind of node, joins and splits, two global stores, an empty pattern source, a dynamic sink."""
    first = (
        source("orders", (topic, "b", "a"), to=("enrich",)),
        source("by-pattern", (), to=("enrich", "audit")),
        processor("enrich", ("rates", "customers"), to=("split",)),
        processor("split", (), to=("audit", "everywhere")),
        processor("audit", ("audit-log",)),
        sink("everywhere"),
    )
    second = (source("back", ("audit-log-changelog",), to=("out",)), sink("out", "out"))
    stores = (
        (source("rates-source", ("rates-topic",), to=("rates-update",)), processor("rates-update", ("rates",))),
        (source("names-source", ("names-topic",), to=("names-update",)), processor("names-update", ("names",))),
    )
    return Topology((("0", first), ("1", second)), stores)


def hostile(topic: str) -> Topology:
    """Every name that a client can send, in every place where a name can stand."""
    nodes: list[Node] = [source("start", (topic, *HOSTILE_NAMES), to=HOSTILE_NAMES)]
    nodes += [processor(name, (name, "store"), to=(f"sink {name}"[:30_000],)) for name in HOSTILE_NAMES]
    nodes += [sink(f"sink {name}"[:30_000], name) for name in HOSTILE_NAMES]
    stores = tuple(
        (source(f"g {name}"[:30_000], (name,), to=(name,)), processor(name, (name,))) for name in HOSTILE_NAMES[:4]
    )
    return Topology((("0", tuple(nodes)), ("", ()), ("line\nend", ())), stores)


def circular(topic: str) -> Topology:
    nodes = (source("s", (topic,), to=("a",)), processor("a", to=("b", "a")), processor("b", to=("a",)))
    return Topology((("0", nodes),))


def nothing(topic: str) -> Topology:  # noqa: ARG001 - it names no topic
    return Topology()


@pytest.mark.parametrize("make", [everything, hostile, circular, nothing])
def test_a_member_is_asked_and_admin_reads_exactly_what_it_pushed(
    members: Members, gateway: GatewayProcess, name: str, make: Callable[[str], Topology]
) -> None:
    topology = make(name)
    one = members.join(name, gateway.bootstrap, name, topics=[name], topology=topology)
    one.wait("pushed")
    seen = read(members, gateway, name)
    assert (seen.status, seen.topology) == ("AVAILABLE", topology.as_read())
    assert seen.predecessors == topology.predecessors()
    one.wait_for_tasks("0_0", "0_1")
    one.wait_for_heartbeats(3)
    assert (one.asked, one.pushes, one.errors) == (1, 1, []), "one question, one push, and work goes on"
    one.close()


def test_who_does_not_ask_for_the_description_is_not_given_it(
    members: Members, gateway: GatewayProcess, name: str
) -> None:
    one = members.join(name, gateway.bootstrap, name, topics=[name], topology=chain(name, "count"))
    one.wait("pushed")
    seen = members.describe(gateway.bootstrap, name)[name]
    assert (seen.status, seen.topology) == ("NOT_REQUESTED", None)
    one.close()


def test_groups_are_described_side_by_side_each_with_its_own(
    members: Members, gateway: GatewayProcess, name: str
) -> None:
    pushed = {f"{name}-{number}": chain(name, f"p{number}") for number in range(4)}
    apps = [
        members.join(group, gateway.bootstrap, group, topics=[name], topology=topology)
        for group, topology in pushed.items()
    ]
    for app in apps:
        app.wait("pushed")
    seen = members.describe(gateway.bootstrap, *pushed, f"{name}-none", topology=True)
    assert is_gone(seen.pop(f"{name}-none"))
    assert {group: one.topology for group, one in seen.items()} == {
        group: topology.as_read() for group, topology in pushed.items()
    }
    for app in apps:
        app.close()


def test_the_store_memory_serves_the_same(members: Members, own: Cluster, name: str, tmp_path: Path) -> None:
    with serving(tmp_path, own.bootstrap, "memory:") as gateway:
        one = members.join(name, gateway.bootstrap, name, topics=[name], topology=everything(name))
        one.wait("pushed")
        assert_shows(members, gateway, name, everything(name))
        end_of(members, gateway.bootstrap, name, one)
        again = members.join(name, gateway.bootstrap, name, topics=[name], topology=chain(name, "other"))
        again.wait("pushed")
        assert_shows(members, gateway, name, chain(name, "other"))
        again.close()


# --- several members, and members with nothing to say ---------------------------------------------------------------


def test_of_two_threads_of_one_application_one_is_asked(members: Members, gateway: GatewayProcess, name: str) -> None:
    process = "11111111-0000-4000-8000-000000000000"
    two = [
        members.join(
            f"{name}-{number}", gateway.bootstrap, name, topics=[name], topology=chain(name, "count"), process=process
        )
        for number in range(2)
    ]
    members.wait_for_group(
        gateway.bootstrap, name, lambda seen: seen.status == "AVAILABLE" and len(seen.members) == 2, topology=True
    )
    for member in two:
        member.wait("assigned")
        member.wait_for_heartbeats(4)
    assert sum(member.asked for member in two) == 1
    assert sum(member.pushes for member in two) == 1
    for member in two:
        member.close()


def test_a_second_application_that_pushes_the_same_writes_nothing(
    members: Members, gateway: GatewayProcess, name: str
) -> None:
    one = members.join(f"{name}-1", gateway.bootstrap, name, topics=[name], topology=chain(name, "count"))
    one.wait("pushed")
    until(lambda: said(gateway, "topology description stored", name) == 1)
    two = members.join(f"{name}-2", gateway.bootstrap, name, topics=[name], topology=chain(name, "count"))
    two.wait("pushed")
    assert_shows(members, gateway, name, chain(name, "count"))
    one.wait_for_heartbeats(4)
    assert (one.pushes, two.pushes) == (1, 1)
    assert said(gateway, "topology description stored", name) == 1
    one.close()
    two.close()


def test_a_member_without_a_description_works_on_and_the_group_shows_none(
    members: Members, gateway: GatewayProcess, name: str
) -> None:
    one = members.join(name, gateway.bootstrap, name, topics=[name])
    one.wait_for_tasks("0_0", "0_1")
    one.wait_for_heartbeats(5)
    assert (one.asked, one.pushes, one.errors) == (1, 0, []), "asked once, and then left alone"
    assert_shows_nothing(members, gateway, name)
    end_of(members, gateway.bootstrap, name, one)


def test_a_member_of_a_chosen_epoch_pushes_at_that_epoch(members: Members, gateway: GatewayProcess, name: str) -> None:
    one = members.join(f"{name}-1", gateway.bootstrap, name, topics=[name], topology=chain(name, "new"), epoch=7)
    one.wait("pushed")
    late = members.join(f"{name}-2", gateway.bootstrap, name, topics=[name], topology=chain(name, "old"), epoch=6)
    late.wait("statuses")
    late.wait_for_heartbeats(3)
    assert late.asked == 0, "STALE_TOPOLOGY"
    assert read(members, gateway, name).topology_epoch == 7
    assert_shows(members, gateway, name, chain(name, "new"))
    late.close()
    one.close()


@pytest.mark.parametrize(
    ("topology", "text"),
    [
        (Topology((("0", (Node(name="odd", node_type=9),)),)), "Unknown topology node type: 9"),
        (
            Topology(global_stores=((sink("a"), processor("b")),)),
            "Global store must be composed of a source and a processor node.",
        ),
    ],
)
def test_a_push_that_kafka_would_refuse_is_refused_in_its_words(
    members: Members, gateway: GatewayProcess, name: str, topology: Topology, text: str
) -> None:
    one = members.join(name, gateway.bootstrap, name, topics=[name], topology=topology)
    assert one.wait("push-refused").text == f"Topology description push failed with INVALID_REQUEST: {text}"
    assert_shows_nothing(members, gateway, name)
    one.wait_for_heartbeats(3)
    assert (one.pushes, one.errors) == (1, [])
    one.close()


def test_a_description_over_the_limit_is_refused_for_good_and_the_member_works_on(
    members: Members, own: Cluster, name: str, tmp_path: Path
) -> None:
    with serving(tmp_path, own.bootstrap, "memory:", topologies__max_bytes=4096) as gateway:
        one = members.join(name, gateway.bootstrap, name, topics=[name], topology=large(name, 2_000))
        refused = one.wait("push-refused").text
        assert "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED" in refused
        one.wait_for_tasks("0_0", "0_1")
        one.wait_for_heartbeats(5)
        assert (one.asked, one.pushes, one.errors) == (1, 1, [])
        assert not one.events("push-again"), "its connection was not closed"
        assert_shows_nothing(members, gateway, name)
        one.close()


# --- members of 4.3.1 -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo_topics(own: Cluster) -> None:
    create_topics(own, [WORDS_IN, COUNTS_OUT])


def lines_of(text: str, *without: str) -> list[str]:
    """The words of each line, without those that differ from run to run."""
    return sorted(" ".join(line.split()) for line in text.splitlines() if not any(one in line for one in without))


@pytest.mark.usefixtures("demo_topics")
def test_stock_streams_is_never_asked_and_its_tool_works_as_before(
    members: Members, own: Cluster, gateway: GatewayProcess, tmp_path: Path
) -> None:
    group = f"demo-{secrets.token_hex(4)}"
    with word_count_demo(gateway.bootstrap, group, tmp_path):
        members.wait_for_group(gateway.bootstrap, group, lambda seen: seen.state == "Stable", deadline=STARTED_S)
        seen = read(members, gateway, group)
        assert (seen.status, seen.topology) == ("NOT_STORED", None)
        for arguments in (["--list"], ["--describe", "--group", group, "--members"]):
            through, direct = (streams_groups(address, *arguments) for address in (gateway.bootstrap, own.bootstrap))
            assert lines_of(through) == lines_of(direct)
            assert group in through
        assert said(gateway, "topology description requested", group) == 0
    members.wait_for_group(gateway.bootstrap, group, is_empty)
    assert "Deletion of requested streams groups ('" in streams_groups(gateway.bootstrap, "--delete", "--group", group)
    assert is_gone(members.describe(gateway.bootstrap, group)[group])


@pytest.mark.usefixtures("demo_topics")
def test_in_a_mixed_group_the_newer_member_is_asked(
    members: Members, own: Cluster, gateway: GatewayProcess, tmp_path: Path
) -> None:
    group = f"mixed-{secrets.token_hex(4)}"
    with word_count_demo(gateway.bootstrap, group, tmp_path):
        stable = members.wait_for_group(own.bootstrap, group, lambda seen: seen.state == "Stable", deadline=STARTED_S)
        one = members.join(
            group, gateway.bootstrap, group, subtopologies=stable.as_joined(), topology=everything(WORDS_IN)
        )
        one.wait("pushed")
        assert_shows(members, gateway, group, everything(WORDS_IN))
        assert len(read(members, gateway, group).members) == 2
        assert one.asked == 1
        until(lambda: said(gateway, "topology description requested", group) == 1)
        assert one.errors == []
    # The older member has left; the newer one goes on.
    members.wait_for_group(gateway.bootstrap, group, lambda seen: len(seen.members) == 1)
    assert_shows(members, gateway, group, everything(WORDS_IN))
    end_of(members, gateway.bootstrap, group, one)


# --- the end of a group, and what comes after it --------------------------------------------------------------------


def test_a_deleted_group_that_comes_back_is_asked_again(members: Members, gateway: GatewayProcess, name: str) -> None:
    one = members.join(name, gateway.bootstrap, name, topics=[name], topology=chain(name, "before"))
    one.wait("pushed")
    assert members.delete(gateway.bootstrap, name)[name].error == "GroupNotEmptyException"
    assert_shows(members, gateway, name, chain(name, "before"))
    end_of(members, gateway.bootstrap, name, one)
    assert is_gone(read(members, gateway, name))
    again = members.join(name, gateway.bootstrap, name, topics=[name], topology=chain(name, "after"))
    again.wait("pushed")
    assert_shows(members, gateway, name, chain(name, "after"))
    again.close()


def test_a_deleted_group_that_comes_back_without_a_description_shows_nothing(
    members: Members, gateway: GatewayProcess, name: str
) -> None:
    one = members.join(name, gateway.bootstrap, name, topics=[name], topology=chain(name, "before"))
    one.wait("pushed")
    end_of(members, gateway.bootstrap, name, one)
    silent = members.join(name, gateway.bootstrap, name, topics=[name])
    silent.wait_for_tasks("0_0", "0_1")
    assert_shows_nothing(members, gateway, name)
    silent.close()


def test_the_window_of_a_question_ends_with_its_group(members: Members, gateway: GatewayProcess, name: str) -> None:
    """Who was asked in a life of the group that was deleted does not keep the next life from being asked."""
    silent = members.join(name, gateway.bootstrap, name, topics=[name])
    silent.wait("asked")
    end_of(members, gateway.bootstrap, name, silent)
    one = members.join(name, gateway.bootstrap, name, topics=[name], topology=chain(name, "count"))
    one.wait("pushed")
    assert_shows(members, gateway, name, chain(name, "count"))
    one.close()


@pytest.mark.parametrize("process", [None, "22222222-0000-4000-8000-000000000000"], ids=["another", "the same"])
def test_a_group_deleted_past_the_gateway_never_shows_its_predecessors_topology(
    members: Members, own: Cluster, gateway: GatewayProcess, name: str, process: str | None
) -> None:
    """Redeployed with other processors on the same topics, by another process or one that kept its id."""
    before, after = chain(name, "before"), chain(name, "after")
    one = members.join(name, gateway.bootstrap, name, topics=[name], topology=before, process=process)
    one.wait("pushed")
    end_of(members, own.bootstrap, name, one)
    again = members.join(name, gateway.bootstrap, name, topics=[name], topology=after, process=process)
    shown = []
    by = time.monotonic() + READY_S
    while not again.events("pushed"):
        shown.append(read(members, gateway, name))
        assert time.monotonic() < by, again.events()
    assert before.as_read() not in [seen.topology for seen in shown]
    assert_shows(members, gateway, name, after)
    again.close()


def test_a_group_re_created_by_a_member_that_cannot_push_shows_nothing(
    members: Members, own: Cluster, gateway: GatewayProcess, name: str
) -> None:
    one = members.join(name, gateway.bootstrap, name, topics=[name], topology=chain(name, "before"))
    one.wait("pushed")
    end_of(members, own.bootstrap, name, one)
    silent = members.join(name, gateway.bootstrap, name, topics=[name])
    silent.wait_for_tasks("0_0", "0_1")
    assert_shows_nothing(members, gateway, name)
    silent.close()


def test_a_batch_is_deleted_group_by_group(members: Members, gateway: GatewayProcess, name: str) -> None:
    empty, busy = f"{name}-empty", f"{name}-busy"
    apps = [
        members.join(group, gateway.bootstrap, group, topics=[name], topology=chain(name, group))
        for group in (empty, busy)
    ]
    for app in apps:
        app.wait("pushed")
    apps[0].close()
    members.wait_for_group(gateway.bootstrap, empty, is_empty)
    results = members.delete(gateway.bootstrap, empty, busy, f"{name}-none")
    assert {group: outcome.error for group, outcome in results.items()} == {
        empty: "",
        busy: "GroupNotEmptyException",
        f"{name}-none": "GroupIdNotFoundException",
    }
    assert_shows(members, gateway, busy, chain(name, busy))
    apps[1].close()


# --- restarts and size ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False], ids=["with its worker", "its worker drains"])
def test_a_gateway_that_was_killed_still_shows_what_was_pushed(
    members: Members, own: Cluster, name: str, tmp_path: Path, *, whole: bool
) -> None:
    with serving(tmp_path, own.bootstrap, facts__prefix=f"{name}.") as gateway:
        one = members.join(name, gateway.bootstrap, name, topics=[name], topology=everything(name))
        one.wait("pushed")
        workers = gateway.workers() if whole else []
        gateway.kill()
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        gateway.start()
        wait_until_ready(gateway)
        assert_shows(members, gateway, name, everything(name))
        one.wait_for_heartbeats(3)
        assert one.pushes == 1
        one.close()


def test_ten_thousand_nodes_are_pushed_and_read_back(members: Members, gateway: GatewayProcess, name: str) -> None:
    topology = large(name, 10_000)
    assert len(topology.nodes()) == 10_000
    one = members.join(name, gateway.bootstrap, name, topics=[name], topology=topology)
    pushed_ms = one.wait("pushed").at_ms - one.wait("pushing").at_ms
    begun = time.monotonic()
    seen = read(members, gateway, name)
    read_ms = (time.monotonic() - begun) * 1000
    assert seen.topology == topology.as_read()
    print(f"pushed in {pushed_ms} ms, read back in {read_ms:.0f} ms")
    one.wait_for_tasks("0_0", "0_1")
    one.wait_for_heartbeats(3)
    assert (one.pushes, one.errors) == (1, []), "neither timed out"
    one.close()


def test_a_broker_that_was_restarted_changes_nothing(
    members: Members, own: Cluster, gateway: GatewayProcess, name: str
) -> None:
    one = members.join(f"{name}-1", gateway.bootstrap, name, topics=[name], topology=chain(name, "count"))
    one.wait("pushed")
    own.kafka.stop()
    own.kafka.start()
    one.wait_for_heartbeats(3, deadline=STARTED_S)
    members.wait_for_group(
        gateway.bootstrap, name, lambda seen: seen.status == "AVAILABLE", topology=True, deadline=STARTED_S
    )
    assert_shows(members, gateway, name, chain(name, "count"))
    fresh = f"{name}-fresh"
    two = members.join(fresh, gateway.bootstrap, fresh, topics=[name], topology=chain(name, "fresh"))
    two.wait("pushed", deadline=STARTED_S)
    assert_shows(members, gateway, fresh, chain(name, "fresh"))
    end_all([one, two])


def end_all(members: Sequence[Member]) -> None:
    for member in members:
        member.close()
