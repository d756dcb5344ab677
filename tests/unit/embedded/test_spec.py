"""A spec that cannot be started is refused when it is made."""

from pathlib import Path

import pytest

from headgate.base.errors import UsageError
from headgate.embedded.spec import Access, ClusterSpec, Listener, SecurityProtocol

DATA = Path("data")


@pytest.mark.parametrize("brokers", [0, 4, -1])
def test_one_to_three_brokers(brokers: int) -> None:
    with pytest.raises(UsageError, match=f"1 to 3 brokers, not {brokers}"):
        ClusterSpec(data_dir=DATA, port=19092, brokers=brokers)


@pytest.mark.parametrize("port", [0, -5, 65535, 65530])
def test_every_port_of_every_node_must_exist(port: int) -> None:
    with pytest.raises(UsageError, match="choose a first port"):
        ClusterSpec(data_dir=DATA, port=port, brokers=3)


def test_listeners_may_not_share_a_port() -> None:
    ssl = Listener(protocol=SecurityProtocol.SASL_PLAINTEXT, port=19093)
    with pytest.raises(UsageError, match="want the same port"):
        ClusterSpec(data_dir=DATA, port=19092, brokers=2, listeners=(ssl,), access=Access(users={"a": "b"}))


@pytest.mark.parametrize(
    ("protocol", "text"),
    [
        (SecurityProtocol.PLAINTEXT, "PLAINTEXT is always there"),
        (SecurityProtocol.SSL, "`tls` files"),
        (SecurityProtocol.SASL_PLAINTEXT, "`access` with users"),
    ],
)
def test_a_listener_needs_what_its_protocol_needs(protocol: SecurityProtocol, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        ClusterSpec(data_dir=DATA, port=19092, listeners=(Listener(protocol=protocol, port=19100),))


@pytest.mark.parametrize("users", [{'a"': "b"}, {"a": 'b"'}, {"a": "b,c"}, {"a": "]"}, {"": "b"}, {"a": ""}])
def test_users_that_kafka_would_read_otherwise_are_refused(users: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="use letters, digits"):
        Access(users=users)


@pytest.mark.parametrize("name", ["a,b", "100%d", "${sys:x}"])
def test_a_path_that_kafka_or_log4j_would_read_otherwise_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="which Kafka cannot take"):
        ClusterSpec(data_dir=DATA / name, port=19092)
    with pytest.raises(UsageError, match="which Kafka cannot take"):
        ClusterSpec(data_dir=DATA, log_dir=DATA / name, port=19092)


def test_every_port_is_counted_once_for_each_node() -> None:
    spec = ClusterSpec(data_dir=DATA, port=20000, brokers=3)
    assert sorted(port for _, port in spec.ports()) == list(range(20000, 20009))
