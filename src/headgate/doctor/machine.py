"""What is on our side of the wire: the gateway's own ports, the name that clients dial, file descriptors.

One rule: nothing stays bound or open. A port that is taken is no trouble when a Headgate has it, which its own status
page says; the port itself is not asked, because it may expect TLS or a PROXY header first.
"""

import asyncio
import errno
import json
import resource
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from headgate.config.addresses import Address, is_loopback, is_wildcard
from headgate.config.model import Config
from headgate.doctor.broker import close
from headgate.doctor.dialling import resolve
from headgate.doctor.findings import Check, Finding, ok, problem, warning

_LARGEST_PAGE = 1024 * 1024
_BUILD_LINE = b"headgate_build_info"
# What a worker has open beside its clients: status pages, reports, shared memory, logs, calls of its own.
_SPARE_DESCRIPTORS = 64
_UNLIMITED = resource.RLIM_INFINITY


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A Headgate that runs here already, and why it is not ready if it is not."""

    problems: Mapping[str, str]


async def examine(config: Config, *, deadline_s: float) -> AsyncIterator[Finding]:
    running = await find_running(config.metrics.listen, deadline_s=deadline_s)
    if running is not None:
        yield _running(config.metrics.listen, running)
    for finding in ports(config, is_ours=running is not None):
        yield finding
    yield await advertised(config, deadline_s=deadline_s)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield descriptors(config, soft)


# Ports.


def ports(config: Config, *, is_ours: bool) -> Iterator[Finding]:
    """Each port that the gateway binds: free, ours already, or somebody else's."""
    wanted = [("gateway.listen", config.gateway.listen)]
    wanted += [(f"node {node}", config.gateway.node_address(node)) for node in config.gateway.nodes]
    wanted.append(("metrics.listen", config.metrics.listen))
    free: list[Address] = []
    for whose, address in wanted:
        failure = bind_failure(address)
        if failure is None:
            free.append(address)
        elif failure.errno == errno.EADDRINUSE and is_ours:
            yield ok(Check.MACHINE, str(address), f"{whose}: in use, and a Headgate runs here")
        else:
            yield _taken(whose, address, failure)
    if free:
        yield ok(Check.MACHINE, "ports", f"free: {', '.join(map(str, free))}")


def bind_failure(address: Address) -> OSError | None:
    """Bind as the gateway does, and let go at once."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as failure:
            return failure
    return None


def _taken(whose: str, address: Address, failure: OSError) -> Finding:
    text = f"{whose}: cannot be bound: {failure.strerror}"
    key = whose if whose.endswith(".listen") else "gateway.listen"
    match failure.errno:
        case errno.EADDRINUSE:
            mend = f"ss -ltnp 'sport = :{address.port}'   (end that program, or choose another {key})"
        case errno.EACCES:
            mend = f"choose a {key} above port 1023, or give the unit AmbientCapabilities=CAP_NET_BIND_SERVICE"
        case _:
            mend = f"ip address   (set the host of {key} to an address of this machine, or 0.0.0.0)"
    return problem(Check.MACHINE, str(address), text, mend=mend)


# A gateway that runs already.


async def find_running(listen: Address, *, deadline_s: float) -> Running | None:
    """The Headgate whose status pages answer at `metrics.listen`; None when there is none."""
    host = ("::1" if ":" in listen.host else "127.0.0.1") if is_wildcard(listen.host) else listen.host
    address = Address(host, listen.port)
    try:
        async with asyncio.timeout(deadline_s):
            if _BUILD_LINE not in await _get(address, "/metrics"):
                return None
            body = await _get(address, "/readyz")
        report = json.loads(body)
        return Running(problems={str(what): str(why) for what, why in report["problems"].items()})
    except (OSError, TimeoutError, ValueError, KeyError, TypeError, AttributeError):
        return None


async def _get(address: Address, path: str) -> bytes:
    """The body of a page; the status pages close after each answer."""
    reader, writer = await asyncio.open_connection(*address, limit=_LARGEST_PAGE)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        received = b""
        with suppress(ConnectionError):
            while len(received) < _LARGEST_PAGE and (piece := await reader.read(65536)):
                received += piece
    finally:
        await close(writer)
    return received.partition(b"\r\n\r\n")[2]


def _running(listen: Address, running: Running) -> Finding:
    if not running.problems:
        return ok(Check.MACHINE, str(listen), "a Headgate runs here and is ready")
    text = "; ".join(f"{what}: {why}" for what, why in sorted(running.problems.items()))
    mend = f"curl http://{listen}/readyz   (what else is found here says why)"
    return problem(Check.MACHINE, str(listen), f"a Headgate runs here and is not ready: {text}", mend=mend)


# The name that clients dial, and how many of them there can be.


async def advertised(config: Config, *, deadline_s: float) -> Finding:
    host = config.gateway.advertised_host
    subject = "gateway.advertised_host"
    try:
        addresses = sorted(set(await resolve(host, deadline_s=deadline_s)))
    except (OSError, TimeoutError):
        text = f"{host} does not resolve on this machine, and clients dial it for everything behind bootstrap"
        return problem(
            Check.MACHINE,
            subject,
            text,
            mend=f"getent hosts {host}   (add it to DNS), or correct {subject}",
        )
    if all(map(is_loopback, addresses)) and not is_loopback(config.gateway.listen.host):
        text = f"{host} is {', '.join(addresses)}: only clients on this machine can dial that"
        return warning(
            Check.MACHINE, subject, text, mend=f"set {subject} to a name that clients on other machines resolve"
        )
    return ok(Check.MACHINE, subject, f"{host} is {', '.join(addresses)}")


def descriptors_needed(config: Config) -> int:
    """What one worker can come to need: nothing keeps all clients from landing in the same one."""
    return 2 * config.gateway.max_connections + len(config.gateway.nodes) + _SPARE_DESCRIPTORS


def descriptors(config: Config, limit: int) -> Finding:
    """Two for each connection, ours to the broker too; `limit` is the soft limit of this process."""
    needed = descriptors_needed(config)
    subject = "file descriptors"
    if limit == _UNLIMITED or limit >= needed:
        told = "without limit" if limit == _UNLIMITED else f"{limit} here"
        return ok(Check.MACHINE, subject, f"{needed} are enough for gateway.max_connections, and there are {told}")
    text = (
        f"{limit} are allowed in this shell, and gateway.max_connections = {config.gateway.max_connections} can need "
        f"{needed} in one worker: beyond that clients wait unaccepted"
    )
    fits = max(1, (limit - _SPARE_DESCRIPTORS - len(config.gateway.nodes)) // 2)
    mend = f"LimitNOFILE={needed} in the systemd unit (or: ulimit -n {needed}), or gateway.max_connections = {fits}"
    return warning(Check.MACHINE, subject, text, mend=mend)
