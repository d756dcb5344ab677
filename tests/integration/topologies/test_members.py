"""The driver of 4.4 members itself, where nobody asks for a topology.

At a 4.3.1 broker, and through a gateway that has been told to leave topologies alone.
"""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.embedded import SecurityProtocol
from tests.support.cluster import Cluster
from tests.support.gateway import running_gateway
from tests.support.member_topologies import chain
from tests.support.members import Members, MembersError, Settings, member_jvm


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    with member_jvm(tmp_path_factory.mktemp("members") / "members.log") as running:
        yield running


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
    admin = AdminClient(cluster.client_config())
    for future in admin.create_topics([NewTopic(name, 2, 1)]).values():
        future.result(20)
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


def test_a_group_that_was_left_can_be_deleted(members: Members, bootstrap: str, name: str) -> None:
    one = members.join(name, bootstrap, name, topics=[name])
    one.wait_for_tasks("0_0", "0_1")
    assert members.delete(bootstrap, name)[name].error == "GroupNotEmptyException"
    one.close()
    members.wait_for_group(bootstrap, name, lambda seen: seen.state == "Empty")
    assert members.groups(bootstrap)[name] == ("Streams", "Empty")
    assert members.delete(bootstrap, name)[name].error == ""
    assert members.describe(bootstrap, name)[name].error == "GroupIdNotFoundException"
    assert members.delete(bootstrap, name)[name].error == "GroupIdNotFoundException"


def test_two_members_share_the_tasks(members: Members, bootstrap: str, name: str) -> None:
    one = members.join(f"{name}-1", bootstrap, name, topics=[name])
    one.wait_for_tasks("0_0", "0_1")
    two = members.join(f"{name}-2", bootstrap, name, topics=[name])
    two.wait("assigned")
    seen = members.wait_for_group(bootstrap, name, lambda seen: all(len(one.tasks) == 1 for one in seen.members))
    assert sorted(task for member in seen.members for task in member.tasks) == ["0_0", "0_1"]
    one.close()
    two.wait_for_tasks("0_0", "0_1")
    two.close()


def test_a_member_that_is_killed_stays_until_its_session_ends(members: Members, bootstrap: str, name: str) -> None:
    one = members.join(name, bootstrap, name, topics=[name])
    one.wait_for_tasks("0_0", "0_1")
    one.kill()
    assert len(members.describe(bootstrap, name)[name].members) == 1
    members.wait_for_group(bootstrap, name, lambda seen: not seen.members)


def test_a_member_of_another_epoch_makes_a_group_of_that_epoch(members: Members, bootstrap: str, name: str) -> None:
    one = members.join(f"{name}-1", bootstrap, name, topics=[name], epoch=3)
    one.wait_for_tasks("0_0", "0_1")
    assert members.describe(bootstrap, name)[name].topology_epoch == 3
    late = members.join(f"{name}-2", bootstrap, name, topics=[name], epoch=1)
    assert late.wait("statuses").text == "[0]", "STALE_TOPOLOGY"
    late.close()
    one.close()


def test_a_user_without_rights_hears_of_it(members: Members, cluster: Cluster, name: str) -> None:
    settings: Settings = cluster.java_config(SecurityProtocol.SASL_PLAINTEXT, user="alice")
    one = members.join(name, settings, name, topics=[name])
    assert "GroupAuthorizationException" in one.wait("error").text
    assert members.describe(settings, name)[name].error == "GroupAuthorizationException"
    one.close()


def test_a_name_belongs_to_one_member_at_a_time(members: Members, cluster: Cluster, name: str) -> None:
    one = members.join(name, cluster.bootstrap, name, topics=[name])
    with pytest.raises(MembersError, match="there is a member"):
        members.join(name, cluster.bootstrap, name, topics=[name])
    one.wait("assigned")
    one.close()
    again = members.join(name, cluster.bootstrap, name, topics=[name])
    again.wait("assigned")
    assert len(again.events("assigned")) == 1, "of its predecessor it knows nothing"
    again.close()


def test_a_jvm_ends_with_its_members(tmp_path: Path, cluster: Cluster, name: str) -> None:
    with member_jvm(tmp_path / "members.log") as own:
        own.join(name, cluster.bootstrap, name, topics=[name]).wait("assigned")
        pid = own.pid
    assert not Path(f"/proc/{pid}").exists()
