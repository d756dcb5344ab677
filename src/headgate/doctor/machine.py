"""Checks this machine: the gateway's ports, the advertised host, limits (`limits.py`), Graphviz, certificates.

Nothing stays bound or open. A port that is in use is no problem when a Headgate has it, which its own status page
shows; the port itself is not tested, because it may expect TLS or a PROXY header first. Whether a chain of certificates
is trusted is decided by OpenSSL (`brokers.py`).
"""

import asyncio
import errno
import ipaddress
import json
import shlex
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from headgate.config.addresses import Address, is_loopback, is_wildcard
from headgate.config.model import Config
from headgate.doctor import limits
from headgate.doctor.brokers import Broker, close, names_of, resolve
from headgate.doctor.findings import Check, DoctorFinding, ok, problem, warning

SOON = timedelta(days=30)
_HOW_TO_RENEW = "renew it and replace the files: they are read again without a restart"
_LARGEST_PAGE = 1024 * 1024
_BUILD_LINE = b"headgate_build_info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A Headgate that already runs here, and its problems if it is not ready."""

    problems: Mapping[str, str]


async def examine(config: Config, *, deadline_s: float) -> AsyncIterator[DoctorFinding]:
    running = await find_running(config.metrics.listen, deadline_s=deadline_s)
    if running is not None:
        yield _running(config.metrics.listen, running)
    for finding in ports(config, is_ours=running is not None):
        yield finding
    yield await advertised(config, deadline_s=deadline_s)
    for finding in limits.examine(config):
        yield finding
    yield graphviz()


def graphviz() -> DoctorFinding:
    """The page works without Graphviz, more slowly: so its absence is a warning."""
    if shutil.which("dot") is not None:
        return ok(Check.MACHINE, "graphviz", "dot is installed: `headgate web` computes the overview of the map")
    text = "dot is not installed: browsers lay out the map themselves, which takes longer, and SVG is not available"
    return warning(Check.MACHINE, "graphviz", text, mend="sudo apt-get install -y --no-install-recommends graphviz")


# Ports.


def ports(config: Config, *, is_ours: bool) -> Iterator[DoctorFinding]:
    """Check each port that the gateway binds: free, used by a Headgate, or used by another program."""
    wanted = [("gateway.listen", config.gateway.listen)]
    wanted += [(f"node {node}", config.gateway.node_address(node)) for node in config.gateway.nodes]
    wanted.append(("metrics.listen", config.metrics.listen))
    free: list[Address] = []
    for owner, address in wanted:
        failure = bind_failure(address)
        if failure is None:
            free.append(address)
        elif failure.errno == errno.EADDRINUSE and is_ours:
            yield ok(Check.MACHINE, str(address), f"{owner}: in use, and a Headgate runs here")
        else:
            yield _taken(owner, address, failure)
    if free:
        yield ok(Check.MACHINE, "ports", f"free: {', '.join(map(str, free))}")


def bind_failure(address: Address) -> OSError | None:
    """Bind as the gateway does, and close at once."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as failure:
            return failure
    return None


def _taken(owner: str, address: Address, failure: OSError) -> DoctorFinding:
    text = f"{owner}: cannot be bound: {failure.strerror}"
    key = owner if owner.endswith(".listen") else "gateway.listen"
    match failure.errno:
        case errno.EADDRINUSE:
            mend = f"ss -ltnp 'sport = :{address.port}'   (stop that program, or choose another {key})"
        case errno.EACCES:
            mend = f"choose a {key} above port 1023, or give the unit AmbientCapabilities=CAP_NET_BIND_SERVICE"
        case _:
            mend = f"ip address   (set the host of {key} to an address of this machine, or 0.0.0.0)"
    return problem(Check.MACHINE, str(address), text, mend=mend)


# A gateway that runs already.


async def find_running(listen: Address, *, deadline_s: float) -> Running | None:
    """The Headgate that serves `metrics.listen`; None when there is none."""
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
    """The body of a page; the status pages close the connection after each response."""
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


def _running(listen: Address, running: Running) -> DoctorFinding:
    if not running.problems:
        return ok(Check.MACHINE, str(listen), "a Headgate runs here and is ready")
    text = "; ".join(f"{what}: {why}" for what, why in sorted(running.problems.items()))
    mend = f"curl http://{listen}/readyz   (other findings say why)"
    return problem(Check.MACHINE, str(listen), f"a Headgate runs here and is not ready: {text}", mend=mend)


# The advertised host.


async def advertised(config: Config, *, deadline_s: float) -> DoctorFinding:
    host = config.gateway.advertised_host
    subject = "gateway.advertised_host"
    try:
        addresses = sorted(set(await resolve(host, deadline_s=deadline_s)))
    except (OSError, TimeoutError):
        text = f"{host} does not resolve on this machine, and clients connect to it after bootstrap"
        return problem(
            Check.MACHINE,
            subject,
            text,
            mend=f"getent hosts {host}   (add it to DNS), or correct {subject}",
        )
    if all(map(is_loopback, addresses)) and not is_loopback(config.gateway.listen.host):
        text = f"{host} is {', '.join(addresses)}: only clients on this machine can connect to it"
        return warning(
            Check.MACHINE, subject, text, mend=f"set {subject} to a name that clients on other machines resolve"
        )
    return ok(Check.MACHINE, subject, f"{host} is {', '.join(addresses)}")


# Certificates.


def covers(names: Sequence[str], host: str) -> bool:
    """Whether a client that connects to `host` accepts a certificate for `names`; `*` stands for one label."""
    try:
        address = str(ipaddress.ip_address(host))
    except ValueError:
        wanted = host.lower().removesuffix(".")
        return any(name.lower() in {wanted, f"*.{wanted.partition('.')[2]}"} for name in names)
    return address in names


def lifetime(subject: str, certificate: x509.Certificate, now: datetime, *, renew: str) -> DoctorFinding:
    """Check the validity period; `renew` says how to replace the certificate."""
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begins:
        text = f"the certificate is valid from {begins:%Y-%m-%d %H:%M} UTC, and it is {now:%Y-%m-%d %H:%M} here"
        return problem(
            Check.CERTIFICATES, subject, text, mend=f"set this machine's clock (timedatectl set-ntp true), or {renew}"
        )
    left = ends - now
    if left <= timedelta():
        return problem(Check.CERTIFICATES, subject, f"the certificate expired on {ends:%Y-%m-%d}", mend=renew)
    if left <= SOON:
        return warning(
            Check.CERTIFICATES,
            subject,
            f"the certificate expires on {ends:%Y-%m-%d}, in {left.days} days",
            mend=renew,
        )
    return ok(Check.CERTIFICATES, subject, f"the certificate is valid until {ends:%Y-%m-%d}")


def examine_certificates(config: Config, now: datetime) -> Iterator[DoctorFinding]:
    """Check the gateway's files: the certificate and key of the listener, and the authorities of both sides."""
    gateway = config.gateway
    if gateway.tls_cert is not None and gateway.tls_key is not None:
        yield from _listener(gateway.tls_cert, gateway.tls_key, gateway.advertised_host, now)
    for key, path in (("gateway.tls_client_ca", gateway.tls_client_ca), ("upstream.tls_ca", config.upstream.tls_ca)):
        if path is not None:
            yield from _authorities(key, path, now)


def broker_certificates(brokers: Iterable[Broker], now: datetime) -> Iterator[DoctorFinding]:
    """Check the certificates that brokers presented."""
    renew = "renew the broker's certificate in its ssl.keystore.location, and restart the broker"
    for broker in brokers:
        if broker.certificate is not None:
            yield lifetime(str(broker.address), broker.certificate, now, renew=renew)


def now_utc(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, tz=UTC)


def _listener(cert: Path, key: Path, advertised_host: str, now: datetime) -> Iterator[DoctorFinding]:
    try:
        first = x509.load_pem_x509_certificates(cert.read_bytes())[0]
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as failure:
        mend = (
            f"openssl x509 -in {shlex.quote(str(cert))} -noout -pubkey; "
            f"openssl pkey -in {shlex.quote(str(key))} -pubout   "
            "(both must print the same key, and the key must have no password)"
        )
        yield problem(Check.CERTIFICATES, "gateway.tls_cert", f"{cert} and {key} cannot be used: {failure}", mend=mend)
        return
    yield lifetime("gateway.tls_cert", first, now, renew=_HOW_TO_RENEW)
    names = names_of(first)
    if covers(names, advertised_host):
        yield ok(Check.CERTIFICATES, "gateway.tls_cert", f"is for {advertised_host}, to which clients connect")
    else:
        text = f"is for {', '.join(names) or 'no name'}, and clients connect to {advertised_host}"
        kind = "IP" if ":" in advertised_host or advertised_host.replace(".", "").isdigit() else "DNS"
        mend = f"ask for a certificate with subjectAltName={kind}:{advertised_host}"
        if names:
            mend += f", or set gateway.advertised_host to a name that it has, such as {names[0]}"
        yield problem(Check.CERTIFICATES, "gateway.tls_cert", text, mend=mend)


def _no_password() -> str:
    """Fail instead of letting OpenSSL ask at the terminal."""
    raise ValueError("the key is encrypted")


def _authorities(key: str, path: Path, now: datetime) -> Iterator[DoctorFinding]:
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as failure:
        mend = f"write the authority's certificates in PEM: openssl x509 -in {shlex.quote(str(path))} -noout -text"
        yield problem(Check.CERTIFICATES, key, f"{path} holds no certificates: {failure}", mend=mend)
        return
    # One valid certificate is enough: such files often keep the old one beside the new one.
    last = max(found, key=lambda certificate: certificate.not_valid_after_utc)
    yield lifetime(key, last, now, renew=f"put the authority's new certificate into {path}")
