"""Addresses and node ranges as the configuration writes them.

A parser takes text and returns a value or raises a `ValueError` that says how to write it. Nothing here resolves a name
or opens a socket.
"""

import ipaddress
import re
from typing import NamedTuple

from headgate.base.ids import NodeId

MAX_PORT = 65535
MAX_NODES = 1000
MAX_NODE_ID = 2**31 - 1
MAX_HOST = 253
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
# [0-9], because \d is a digit of any script.
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_PORT = re.compile(r"[0-9]{1,5}")


class Address(NamedTuple):
    """A host and a port; it unpacks as `host, port`, and an IPv6 host carries no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_host(text: str) -> str:
    """A host name, an IPv4 address, or an IPv6 address with or without brackets, without brackets."""
    if text.startswith("[") and text.endswith("]"):
        return _ipv6(text[1:-1])
    if ":" in text:
        return _ipv6(text)
    if not text:
        raise ValueError("the host is empty; write a name, an address, or 0.0.0.0 for all interfaces")
    labels = text.removesuffix(".").split(".")
    if len(text) > MAX_HOST or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("the host is neither a name nor an address; write ASCII letters, digits, '-' and '.'")
    if labels[-1].isdigit():
        # A name never ends in a number, so this is meant as IPv4: a partial address would be looked up as a name.
        try:
            return str(ipaddress.IPv4Address(text))
        except ValueError:
            raise ValueError("the host is not a valid IPv4 address; write four numbers up to 255") from None
    return text


def _ipv6(text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        raise ValueError("the host is not an IPv6 address; write HOST:PORT, or [ADDRESS]:PORT for IPv6") from None


def parse_address(value: object) -> Address:
    """`HOST:PORT`, or `[ADDRESS]:PORT` for IPv6."""
    if isinstance(value, Address):
        return value
    text = value if isinstance(value, str) else ""
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")) or text.endswith("]"):
        raise ValueError('must be "HOST:PORT", or "[ADDRESS]:PORT" for IPv6')
    if not _PORT.fullmatch(port) or not 1 <= int(port) <= MAX_PORT:
        raise ValueError(f"the port must be a number from 1 to {MAX_PORT}")
    return Address(parse_host(host), int(port))


def parse_nodes(value: object) -> tuple[NodeId, ...]:
    """Node ids, ascending: a range `"0-2"`, ranges `"0-2,7"`, or a list `[0, 1, 2]`."""
    if isinstance(value, str):
        ids = _ids_of_ranges(value)
    elif isinstance(value, list | tuple) and all(type(item) is int for item in value):
        ids = list(value)
    else:
        raise ValueError('must be a range such as "0-2", or a list of node ids such as [0, 1, 2]')
    if not ids:
        raise ValueError('names no node; write the ids of the brokers, such as "0-2"')
    if len(ids) > MAX_NODES:
        raise ValueError(f"names {len(ids)} nodes, and at most {MAX_NODES} ports are opened; name only real brokers")
    if min(ids) < 0 or max(ids) > MAX_NODE_ID:
        raise ValueError(f"a node id cannot be negative or above {MAX_NODE_ID}; write the brokers' node.id")
    if len(set(ids)) != len(ids):
        raise ValueError("names a node twice; each node has one port")
    return tuple(NodeId(node) for node in sorted(ids))


def _ids_of_ranges(text: str) -> list[int]:
    ids: list[int] = []
    for part in text.split(",", maxsplit=MAX_NODES):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError('must be a range such as "0-2", or several such as "0-2,7"; node ids are not negative')
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if last < first:
            raise ValueError(f"the range {first}-{last} is reversed; write {last}-{first}")
        if last - first >= MAX_NODES:
            raise ValueError(
                f"the range {first}-{last} has more than {MAX_NODES} nodes; name only the ids of real brokers"
            )
        ids.extend(range(first, last + 1))
    return ids


def is_wildcard(host: str) -> bool:
    """Whether the host means all interfaces, which a listener may use and no client can connect to."""
    return host in {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def may_collide(one: Address, other: Address) -> bool:
    """Whether two listeners could want the same socket: the same port, and hosts that overlap."""
    if one.port != other.port:
        return False
    same = one.host.lower() == other.host.lower()
    if same or is_wildcard(one.host) or is_wildcard(other.host):
        return True
    return "localhost" in {one.host.lower(), other.host.lower()} and is_loopback(one.host) and is_loopback(other.host)
