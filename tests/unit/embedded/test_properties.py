"""What each node is told follows from the spec, and survives Java's way of reading it."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import UsageError
from headgate.base.ids import NodeId
from headgate.embedded.properties import BROKER_USER, QUICK_SETTINGS, node_properties, parse_setting, render
from headgate.embedded.spec import OWNED_KEYS, Access, ClusterSpec, Listener, SecurityProtocol, TlsFiles

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def told(spec: ClusterSpec, node: int = 0) -> dict[str, str]:
    return node_properties(spec, NodeId(node), log_dir="/data/node", broker_password="secret")


def spec(**more: object) -> ClusterSpec:
    return ClusterSpec(data_dir=Path("data"), port=19092, **more)  # type: ignore[arg-type]


def load(text: str) -> dict[str, str]:
    """As java.util.Properties reads what we write: one line a pair, escaped code units."""
    pairs = {}
    for line in text.split("\n")[:-1]:
        cut = re.match(r"(?:\\.|[^\\=])*", line)
        assert cut is not None
        key, value = line[: cut.end()], line[cut.end() + 1 :].lstrip(" \t\f")
        pairs[_unescape(key)] = _unescape(value)
    return pairs


def _unescape(text: str) -> str:
    units = re.sub(r"\\(?:u([0-9a-f]{4})|(.))", lambda at: chr(int(at[1], 16)) if at[1] else at[2], text)
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


@given(st.dictionaries(TEXT.filter(bool), TEXT))
def test_any_text_survives_a_properties_file(pairs: dict[str, str]) -> None:
    text = render(pairs)
    assert text.isascii()
    assert load(text) == pairs


def test_a_single_node_talks_to_itself_on_the_ports_behind_its_listener() -> None:
    properties = told(spec())
    assert (
        properties["listeners"] == "PLAINTEXT://127.0.0.1:19092,INTERNAL://127.0.0.1:19094,CONTROLLER://127.0.0.1:19093"
    )
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:19092,INTERNAL://127.0.0.1:19094"
    assert properties["controller.quorum.voters"] == "0@127.0.0.1:19093"


def test_each_of_three_nodes_names_all_voters() -> None:
    voters = {told(spec(brokers=3), node)["controller.quorum.voters"] for node in range(3)}
    assert voters == {"0@127.0.0.1:19095,1@127.0.0.1:19096,2@127.0.0.1:19097"}
    assert told(spec(brokers=3), 2)["listeners"].startswith("PLAINTEXT://127.0.0.1:19094,INTERNAL://127.0.0.1:19100")


def test_only_client_listeners_announce_another_address() -> None:
    properties = told(spec(advertised_host="127.0.0.2", advertised_port=29092, brokers=2), 1)
    assert properties["listeners"].startswith("PLAINTEXT://127.0.0.1:19093,")
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.2:29093,INTERNAL://127.0.0.1:19097"


@pytest.mark.parametrize(("brokers", "copies", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2")])
def test_internal_topics_have_as_many_copies_as_there_are_nodes(brokers: int, copies: str, in_sync: str) -> None:
    properties = told(spec(brokers=brokers))
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        assert properties[f"{topic}.replication.factor"] == copies
    assert properties["transaction.state.log.min.isr"] == in_sync


def test_an_authorizer_makes_nodes_log_in_so_that_anonymous_need_not_be_a_super_user() -> None:
    properties = told(spec(access=Access(authorizer=True, super_users=("admin",))))
    assert properties["super.users"] == f"User:{BROKER_USER};User:admin"
    assert "INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT" in properties["listener.security.protocol.map"]
    assert f'username="{BROKER_USER}"' in properties["listener.name.controller.plain.sasl.jaas.config"]


def test_without_an_authorizer_there_are_no_logins() -> None:
    assert not [key for key in told(spec()) if "sasl" in key or "authorizer" in key]


def test_a_sasl_listener_knows_every_user_and_mechanism() -> None:
    listener = Listener(protocol=SecurityProtocol.SASL_SSL, port=19100)
    tls = TlsFiles(keystore=Path("server.pem"))
    properties = told(spec(listeners=(listener,), tls=tls, access=Access(users={"a": "x", "b": "y"})))
    prefix = "listener.name.sasl_ssl"
    assert properties[f"{prefix}.sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    assert properties[f"{prefix}.plain.sasl.jaas.config"].endswith('required user_a="x" user_b="y";')
    assert properties["ssl.keystore.location"] == "server.pem"


def test_a_setting_by_hand_wins_over_ours() -> None:
    assert told(spec(settings={"offsets.topic.num.partitions": "50"}))["offsets.topic.num.partitions"] == "50"


@pytest.mark.parametrize("key", sorted(OWNED_KEYS))
def test_a_setting_that_follows_from_the_spec_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="cannot be set by hand"):
        spec(settings={key: "x"})


def test_quick_settings_keep_every_value_above_its_minimum() -> None:
    for kind in ("consumer", "share", "streams"):
        for name in ("heartbeat.interval.ms", "session.timeout.ms"):
            assert int(QUICK_SETTINGS[f"group.{kind}.{name}"]) >= int(QUICK_SETTINGS[f"group.{kind}.min.{name}"])


@pytest.mark.parametrize(
    ("text", "pair"), [("a.b=c", ("a.b", "c")), ("a=b=c", ("a", "b=c")), ("a=", ("a", "")), (" a = b ", ("a", "b"))]
)
def test_a_setting_is_cut_at_its_first_equals_sign(text: str, pair: tuple[str, str]) -> None:
    assert parse_setting(text) == pair


@pytest.mark.parametrize("text", ["", "a", "=b", " =b"])
def test_a_setting_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="key=value"):
        parse_setting(text)
