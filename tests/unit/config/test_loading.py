"""Where values come from, which one wins, and that the result is one frozen value."""

import os
import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.base.errors import UsageError
from headgate.config import ConfigError, Problem, check, load
from headgate.config.environment import variables
from headgate.config.values import GroupPatterns, Store


def write(folder: Path, text: str) -> Path:
    file = folder / "headgate.toml"
    file.write_text(text, "utf-8")
    return file


def test_every_listener_of_the_gateway_follows_from_port_and_nodes(tmp_path: Path) -> None:
    file = write(tmp_path, "[gateway]\nlisten = '[::1]:9000'\nnodes = [5, 1]\n")
    gateway = load(file, {}).gateway
    assert gateway.addresses() == (("::1", 9000), ("::1", 9002), ("::1", 9006))
    assert str(gateway.node_address(gateway.nodes[0])) == "[::1]:9002"
    assert gateway.advertised_host == "::1"


def test_every_kind_of_value_can_come_from_the_file(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        [gateway]
        max_connections_per_address = 5
        deny_api_keys = [20, 21]
        [topologies]
        store = "sqlite:/var/lib/headgate/t.db"
        groups = { allow = ["orders-*"], deny = ["orders-test"] }
        [connect.second]
        [connect.first]
        principals = ["User:connect"]
        [pipeline.spark]
        spark.sql.shuffle.partitions = 4
        """,
    )
    config = load(file, {})
    assert config.gateway.max_connections_per_address == 5
    assert config.gateway.deny_api_keys == {20, 21}
    assert config.topologies.store == Store("sqlite", "/var/lib/headgate/t.db")
    assert config.topologies.groups == GroupPatterns(allow=("orders-*",), deny=("orders-test",))
    assert list(config.connect) == ["second", "first"]
    assert config.connect["first"].principals == ("User:connect",)
    assert config.pipeline.spark == {"spark.sql.shuffle.partitions": "4"}


def test_every_kind_of_value_can_come_from_the_environment() -> None:
    config = load(
        None,
        {
            "HEADGATE_GATEWAY_LISTEN": "[::1]:9000",
            "HEADGATE_GATEWAY_NODES": "[4, 3]",
            "HEADGATE_GATEWAY_WORKERS": "2",
            "HEADGATE_GATEWAY_MAX_CONNECTIONS_PER_ADDRESS": "off",
            "HEADGATE_GATEWAY_DENY_API_KEYS": "[20]",
            "HEADGATE_GATEWAY_PROXY_PROTOCOL": "TRUE",
            "HEADGATE_UPSTREAM_BOOTSTRAP": '["a:1", "[::2]:2"]',
            "HEADGATE_FACTS_REPLICATION": "2",
            "HEADGATE_TOPOLOGIES_OWNER": "broker",
            "HEADGATE_SHARE_GROUPS_GROUPS": '{"deny": ["test-*"]}',
            "HEADGATE_SHARE_GROUPS_DLQ_PREFIX": "123",
            "HEADGATE_TABLES_PATH": "/t",
            "HEADGATE_PIPELINE_SPARK": '{"spark.ui.enabled": "false"}',
            "PATH": "/bin",
        },
    )
    assert config.gateway.listen == ("::1", 9000)
    assert config.gateway.nodes == (3, 4)
    assert config.gateway.workers == 2
    assert config.gateway.max_connections_per_address is None
    assert config.gateway.deny_api_keys == {20}
    assert config.gateway.proxy_protocol is True
    assert config.upstream.bootstrap == (("a", 1), ("::2", 2))
    assert config.facts.replication == 2
    assert config.topologies.owner == "broker"
    assert config.share_groups.groups.deny == ("test-*",)
    assert config.share_groups.dlq_prefix == "123"
    assert config.tables.path == Path("/t")
    assert config.pipeline.spark["spark.ui.enabled"] == "false"


def test_the_command_line_wins_over_the_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "[gateway]\nworkers = 2\nidle_ms = 1000\ndrain_ms = 1\n")
    env = {"HEADGATE_GATEWAY_WORKERS": "3", "HEADGATE_GATEWAY_IDLE_MS": "2000"}
    config = load(file, env, {"gateway.workers": 4, "gateway.listen": "127.0.0.1:9999"})
    assert config.gateway.workers == 4
    assert config.gateway.idle_ms == 2000
    assert config.gateway.drain_ms == 1
    assert config.gateway.listen.port == 9999
    with pytest.raises(ConfigError, match=r"must be at least 1; it is 0 \(from the command line\)"):
        load(None, {}, {"gateway.workers": 0})


def test_variables_reach_connect_clusters_of_the_file_by_their_name_in_capitals(tmp_path: Path) -> None:
    file = write(tmp_path, "[connect.Prod-eu]\nstatus_topic = 's'\n")
    config = load(
        file, {"HEADGATE_CONNECT_PROD_EU_CONFIG_TOPIC": "c", "HEADGATE_CONNECT_LAB_TRACKING_ALLOW_RESET": "false"}
    )
    assert list(config.connect) == ["Prod-eu", "lab"]
    assert config.connect["Prod-eu"].config_topic == "c"
    assert config.connect["Prod-eu"].status_topic == "s"
    assert config.connect["lab"].tracking_allow_reset is False


def test_the_result_is_frozen_hashable_and_can_be_sent_to_a_worker(tmp_path: Path) -> None:
    config = load(write(tmp_path, "[connect.a]\n"), {})
    with pytest.raises(FrozenInstanceError):
        config.gateway.workers = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.connect["b"] = config.connect["a"]  # type: ignore[index]
    assert pickle.loads(pickle.dumps(config)) == config
    assert isinstance(hash(config), int)


def test_an_error_is_a_usage_error_with_all_problems_and_can_be_sent_too() -> None:
    with pytest.raises(UsageError) as caught:
        load(None, {"HEADGATE_GATEWAY_WORKERS": "x", "HEADGATE_METRICS_LISTEN": "y"})
    error = caught.value
    assert isinstance(error, ConfigError)
    assert [problem.path for problem in error.problems] == ["gateway.workers", "metrics.listen"]
    assert str(error).splitlines() == [str(problem) for problem in error.problems]
    assert error.exit_code == 2
    assert pickle.loads(pickle.dumps(error)).problems == error.problems


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"[gateway]\nlisten = '\xff'\n", "line 2, column 11: not UTF-8"),
        (b"x = " + b"[" * 200_000, "not TOML"),
        (b"x = " + b"9" * 5_000, "not TOML"),
        (b"#" * 1_100_000, "has more than 1048576 bytes"),
        (b"\xef\xbb\xbf[gateway]\n", "line 1, column 1: not TOML"),
    ],
    ids=["latin-1", "brackets", "digits", "large", "byte order mark"],
)
def test_a_file_that_is_no_toml_is_one_problem_with_its_place(content: bytes, text: str, tmp_path: Path) -> None:
    file = tmp_path / "headgate.toml"
    file.write_bytes(content)
    (problem,) = check(file, {})
    assert problem.path == str(file)
    assert text in problem.text


def test_a_folder_a_strange_path_and_a_forbidden_file_are_problems(tmp_path: Path) -> None:
    assert "is a folder" in check(tmp_path, {})[0].text
    assert "cannot be read" in check(Path("a\0b"), {})[0].text
    if os.geteuid() != 0:
        file = write(tmp_path, "")
        file.chmod(0)
        assert "cannot be read" in check(file, {})[0].text


VALUES = st.one_of(
    st.text(max_size=8),
    st.integers(),
    st.booleans(),
    st.floats(),
    st.lists(st.text(max_size=3) | st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
PATHS = sorted(f"{section}.{key}" for section, key in variables().values())


@example({"tables.storage": {"\x1f": 0}})
@given(
    st.dictionaries(
        st.sampled_from([*PATHS, "gateway", "connect", "connect.a", "connect.a.record"]), VALUES, max_size=6
    )
)
@settings(max_examples=200, deadline=None)
def test_any_values_give_a_configuration_or_problems(values: dict[str, Any]) -> None:
    problems: tuple[Problem, ...] = ()
    try:
        load(None, {}, values)
    except ConfigError as error:
        problems = error.problems
    assert all(problem.path.isprintable() and problem.text.isprintable() for problem in problems)


@given(
    st.dictionaries(
        st.sampled_from(sorted(variables())) | st.text(max_size=12).map(lambda rest: f"HEADGATE_{rest}"),
        st.text(max_size=12),
        max_size=4,
    )
)
@settings(max_examples=200, deadline=None)
def test_any_environment_gives_a_configuration_or_problems(env: dict[str, str]) -> None:
    for problem in check(None, env):
        assert problem.path.isprintable()
        assert problem.text.isprintable()


@pytest.mark.parametrize(
    "name", ["HEADGATE_CONNECT_\udcff_RECORD", "HEADGATE_\n", "HEADGATE_CONNECT__RECORD", "HEADGATE_"]
)
def test_a_hostile_variable_name_is_a_problem(name: str) -> None:
    (problem,) = check(None, {name: "true"})
    assert problem.path.isprintable()
