"""The Python client through a real gateway: the example is asked, pushes and leaves; the program of the page runs."""

import re
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.client import ClusterError, GatewayClient, ProcessorNode, SinkNode, SourceNode
from tests.support.cluster import Cluster
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.topics import create_topics

PUSHED_S = 60.0
ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "client.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def gateway(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("client")
    with running_gateway(
        folder,
        cluster.bootstrap,
        topologies__owner="gateway",
        topologies__store="kafka:",
        facts__prefix=f"{secrets.token_hex(4)}.",
    ) as running:
        yield running


@pytest.fixture
def name(cluster: Cluster) -> str:
    """A name for a group, and for its source topic."""
    name = f"python-{secrets.token_hex(4)}"
    create_topics(cluster, [name])
    return name


@pytest.fixture
def member(gateway: GatewayProcess, name: str) -> Iterator[subprocess.Popen[str]]:
    """The example, after it has pushed."""
    command = [sys.executable, str(ROOT / "examples" / "streams_member.py")]
    arguments = ["--bootstrap-server", gateway.bootstrap, "--group", name, "--topic", name]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], PUSHED_S)[0], "it was not asked, or its push failed"
            assert process.stdout.readline().startswith("pushed as ")
            yield process
        finally:
            process.kill()


async def test_the_example_is_asked_and_pushes_and_leaves(
    gateway: GatewayProcess, name: str, member: subprocess.Popen[str]
) -> None:
    async with GatewayClient(gateway.bootstrap) as client:
        described = await client.describe_topology(name)
        assert described is not None
        [subtopology] = described.subtopologies
        assert subtopology.nodes == (
            SourceNode(name="orders", topics=(name,), successors=("total",)),
            ProcessorNode(name="total", stores=("totals",), successors=("bills",)),
            SinkNode(name="bills", topic="bills"),
        )
        with pytest.raises(ClusterError, match="not EMPTY"):
            await client.delete_group(name)
        member.send_signal(signal.SIGTERM)
        assert member.wait(60) == 0
        await client.delete_group(name)  # it has left: the group is empty at once, not after its session timeout
        with pytest.raises(ClusterError, match="not found"):
            await client.describe_topology(name)


def test_the_example_of_the_page_prints_the_description(
    gateway: GatewayProcess, name: str, member: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert member.poll() is None
    program = PROGRAMS[0].replace('"bills"', f'"{name}"')
    assert run_program(program, gateway, tmp_path) == ("0 ['orders', 'total', 'bills']\n", "")


async def test_the_example_of_a_build_publishes_a_version(
    gateway: GatewayProcess, name: str, member: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert member.poll() is None
    async with GatewayClient(gateway.bootstrap) as client:
        before = await client.describe_topology(name)
        said, problem = run_program(PROGRAMS[1].replace("bills-app", name), gateway, tmp_path)
        assert (problem, said.split("/")[1]) == ("", "0")
        assert await client.describe_topology(name) == before, "it does not replace what the member pushed"


def run_program(program: str, gateway: GatewayProcess, folder: Path) -> tuple[str, str]:
    file = folder / "example.py"
    file.write_text(program.replace("127.0.0.1:9092", gateway.bootstrap))
    ran = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=60, check=False)
    return ran.stdout, ran.stderr


async def test_a_push_by_no_member_of_the_group_is_refused_with_the_text_of_the_server(
    gateway: GatewayProcess, name: str, member: subprocess.Popen[str]
) -> None:
    assert member.poll() is None
    async with GatewayClient(gateway.bootstrap) as client:
        described = await client.describe_topology(name)
        assert described is not None
        with pytest.raises(ClusterError, match="Member stranger is not a member of group"):
            await client.push_topology(name, "stranger", described)
