"""A real 4.4 member works, and is not solicited, at a 4.3.1 broker and through a gateway with `owner = "off"`."""

import secrets
from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster
from tests.support.gateway import running_gateway
from tests.support.member_topologies import chain
from tests.support.members import Members
from tests.support.topics import create_topics


@pytest.fixture(scope="module", params=["broker", "gateway"])
def bootstrap(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "broker":
        yield cluster.bootstrap
        return
    with running_gateway(tmp_path_factory.mktemp("off"), cluster.bootstrap, topologies__owner="off") as gateway:
        yield gateway.bootstrap


@pytest.fixture
def name(cluster: Cluster) -> str:
    """A name for a group, and for its source topic of two partitions."""
    name = f"member-{secrets.token_hex(4)}"
    create_topics(cluster, [name], partitions=2)
    return name


def test_a_member_gets_all_tasks_and_is_never_asked(members: Members, bootstrap: str, name: str) -> None:
    one = members.join(name, bootstrap, name, topics=[name], topology=chain(name, "count"))
    one.wait_for_tasks("0_0", "0_1")
    one.wait_for_heartbeats(3)
    assert (one.asked, one.pushes, one.errors) == (0, 0, [])
    one.close()
    assert one.events()[-1].kind == "closed"


def test_the_group_is_described_without_a_topology(members: Members, bootstrap: str, name: str) -> None:
    process = "0a1b2c3d-0000-4000-8000-000000000001"
    one = members.join(name, bootstrap, name, topics=[name], topology=chain(name), process=process)
    one.wait_for_tasks("0_0", "0_1")
    group = members.wait_for_group(bootstrap, name, lambda seen: seen.state == "Stable")
    [member] = group.members
    assert (group.topology_epoch, group.status, group.topology) == (0, "NOT_REQUESTED", None)
    assert (member.client_id, member.process_id, member.tasks) == (name, process, ("0_0", "0_1"))
    assert member.member_id == one.seen()["member_id"]
    # 4.3.1 has no version in which the question could be put.
    assert members.describe(bootstrap, name, topology=True)[name].error == "UnsupportedVersionException"
    one.close()
