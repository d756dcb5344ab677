"""A specification that cannot be started is rejected; the properties of each node follow from it."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import UsageError
from headgate.base.ids import NodeId
from headgate.embedded.spec import (
    BROKER_USER,
    OWNED_KEYS,
    ClusterAccess,
    ClusterSpec,
    Listener,
    SecurityProtocol,
    TlsFiles,
    node_properties,
    parse_setting,
    render,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
USERS = ClusterAccess(users={"a": "x", "b": "y"})
PLAINTEXT, SSL, SASL = SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL, SecurityProtocol.SASL_PLAINTEXT


def spec(**more: Any) -> ClusterSpec:
    return ClusterSpec(**{"data_dir": Path("data"), "port": 19092, **more})


def properties(node: int = 0, **more: Any) -> dict[str, str]:
    return node_properties(spec(**more), NodeId(node), log_dir="/data/node", broker_password="secret")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        *(({"brokers": brokers}, "1 to 3 brokers") for brokers in (0, 4)),
        *(({"port": port, "brokers": 3}, "choose a lower first port") for port in (0, 65530)),
        ({"brokers": 2, "listeners": (Listener(protocol=SASL, port=19093),), "access": USERS}, "have the same port"),
        ({"listeners": (Listener(protocol=PLAINTEXT, port=19100),)}, "PLAINTEXT always has one"),
        ({"listeners": (Listener(protocol=SSL, port=19100),)}, "`tls` files"),
        ({"listeners": (Listener(protocol=SASL, port=19100),)}, "`access` with users"),
        *(({"data_dir": Path(name)}, "does not support") for name in ("a,b", "100%d", "${sys:x}")),
        ({"log_dir": Path("a,b")}, "does not support"),
        *(({"settings": {key: "x"}}, "cannot be set by hand") for key in sorted(OWNED_KEYS)),
    ],
)
def test_a_specification_that_cannot_be_started_is_rejected(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        spec(**changes)


@pytest.mark.parametrize("users", [{'a"': "b"}, {"a": 'b"'}, {"a": "b,c"}, {"a": "]"}, {"": "b"}, {"a": ""}])
def test_users_that_kafka_would_misread_are_rejected(users: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="use letters, digits"):
        ClusterAccess(users=users)


@pytest.mark.parametrize(
    ("node", "changes", "expected"),
    [
        (
            0,
            {},
            {
                "listeners": "PLAINTEXT://127.0.0.1:19092,INTERNAL://127.0.0.1:19094,CONTROLLER://127.0.0.1:19093",
                "advertised.listeners": "PLAINTEXT://127.0.0.1:19092,INTERNAL://127.0.0.1:19094",
                "controller.quorum.voters": "0@127.0.0.1:19093",
                "offsets.topic.replication.factor": "1",
            },
        ),
        (
            2,
            {"brokers": 3},
            {
                "controller.quorum.voters": "0@127.0.0.1:19095,1@127.0.0.1:19096,2@127.0.0.1:19097",
                "offsets.topic.replication.factor": "3",
                "transaction.state.log.min.isr": "2",
            },
        ),
        # Only client listeners advertise another address.
        (
            1,
            {"advertised_host": "127.0.0.2", "advertised_port": 29092, "brokers": 2},
            {"advertised.listeners": "PLAINTEXT://127.0.0.2:29093,INTERNAL://127.0.0.1:19097"},
        ),
        # With an authorizer nodes log in, so that ANONYMOUS need not be a super user.
        (
            0,
            {"access": ClusterAccess(authorizer=True, super_users=("admin",))},
            {
                "super.users": f"User:{BROKER_USER};User:admin",
                "listener.security.protocol.map": (
                    "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
                ),
            },
        ),
        (
            0,
            {
                "listeners": (Listener(protocol=SecurityProtocol.SASL_SSL, port=19100),),
                "tls": TlsFiles(keystore=Path("server.pem")),
                "access": USERS,
            },
            {
                "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "ssl.keystore.location": "server.pem",
            },
        ),
        # A setting by hand wins.
        (0, {"settings": {"offsets.topic.num.partitions": "50"}}, {"offsets.topic.num.partitions": "50"}),
    ],
)
def test_properties_follow_from_the_specification(node: int, changes: dict[str, Any], expected: dict[str, str]) -> None:
    found = properties(node, **changes)
    assert {key: found[key] for key in expected} == expected
    assert changes.get("access") or not [key for key in found if "sasl" in key or "authorizer" in key]


def load(text: str) -> dict[str, str]:
    """As java.util.Properties reads it: one line a pair, escaped code units."""
    pairs = {}
    for line in text.split("\n")[:-1]:
        cut = re.match(r"(?:\\.|[^\\=])*", line)
        assert cut is not None
        pairs[_unescape(line[: cut.end()])] = _unescape(line[cut.end() + 1 :].lstrip(" \t\f"))
    return pairs


def _unescape(text: str) -> str:
    units = re.sub(r"\\(?:u([0-9a-f]{4})|(.))", lambda at: chr(int(at[1], 16)) if at[1] else at[2], text)
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


@given(st.dictionaries(TEXT.filter(bool), TEXT))
def test_any_text_survives_a_properties_file(pairs: dict[str, str]) -> None:
    text = render(pairs)
    assert text.isascii()
    assert load(text) == pairs


@pytest.mark.parametrize(
    ("text", "pair"),
    [("a.b=c", ("a.b", "c")), ("a=b=c", ("a", "b=c")), ("a=", ("a", "")), *((bad, None) for bad in ("", "a", " =b"))],
)
def test_a_setting_is_cut_at_its_first_equals_sign(text: str, pair: tuple[str, str] | None) -> None:
    if pair is None:
        with pytest.raises(UsageError, match="key=value"):
            parse_setting(text)
    else:
        assert parse_setting(text) == pair
