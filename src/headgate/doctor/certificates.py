"""Certificates: how long they last, whom they are for, and whether our own files fit together.

One rule: time comes in as an argument, and a certificate is judged by what stands in it; whether a chain is trusted is
OpenSSL's to say (`dialling`).
"""

import ipaddress
import shlex
import ssl
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from headgate.config.model import Config
from headgate.doctor.broker import Broker
from headgate.doctor.findings import Check, Finding, ok, problem, warning

SOON = timedelta(days=30)
_HOW_TO_RENEW = "renew it and write the new files over the old ones: they are read again without a restart"


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The DNS names and addresses that the certificate is for; clients look at nothing else (RFC 6125)."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *(str(address) for address in addresses))


def covers(names: Sequence[str], host: str) -> bool:
    """Whether a client that dials `host` accepts a certificate for `names`; a star stands for one label."""
    try:
        address = str(ipaddress.ip_address(host))
    except ValueError:
        wanted = host.lower().removesuffix(".")
        return any(name.lower() in {wanted, f"*.{wanted.partition('.')[2]}"} for name in names)
    return address in names


def lifetime(subject: str, certificate: x509.Certificate, now: datetime, *, renew: str) -> Finding:
    """How long it lasts; `renew` is what to do about it."""
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begins:
        text = (
            f"the certificate is valid from {begins:%Y-%m-%d %H:%M} UTC on, and this machine says {now:%Y-%m-%d %H:%M}"
        )
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
            f"the certificate expires on {ends:%Y-%m-%d}, days from now: {left.days}",
            mend=renew,
        )
    return ok(Check.CERTIFICATES, subject, f"the certificate is valid until {ends:%Y-%m-%d}")


def examine(config: Config, now: datetime) -> Iterator[Finding]:
    """Our own files: the listener's certificate and key, and the authorities of both sides."""
    gateway = config.gateway
    if gateway.tls_cert is not None and gateway.tls_key is not None:
        yield from _listener(gateway.tls_cert, gateway.tls_key, gateway.advertised_host, now)
    for key, path in (("gateway.tls_client_ca", gateway.tls_client_ca), ("upstream.tls_ca", config.upstream.tls_ca)):
        if path is not None:
            yield from _authorities(key, path, now)


def of_brokers(brokers: Iterable[Broker], now: datetime) -> Iterator[Finding]:
    """What brokers showed in the handshake."""
    renew = "renew the broker's certificate in its ssl.keystore.location, and restart the broker"
    for broker in brokers:
        if broker.certificate is not None:
            yield lifetime(str(broker.address), broker.certificate, now, renew=renew)


def now_utc(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, tz=UTC)


def _listener(cert: Path, key: Path, advertised_host: str, now: datetime) -> Iterator[Finding]:
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
        yield ok(Check.CERTIFICATES, "gateway.tls_cert", f"is for {advertised_host}, which clients are told to dial")
    else:
        text = f"is for {', '.join(names) or 'no name at all'}, and clients are told to dial {advertised_host}"
        kind = "IP" if ":" in advertised_host or advertised_host.replace(".", "").isdigit() else "DNS"
        mend = f"ask for a certificate with subjectAltName={kind}:{advertised_host}"
        if names:
            mend += f", or set gateway.advertised_host to a name that it has, such as {names[0]}"
        yield problem(Check.CERTIFICATES, "gateway.tls_cert", text, mend=mend)


def _no_password() -> str:
    """OpenSSL would ask at the terminal."""
    raise ValueError("the key is encrypted")


def _authorities(key: str, path: Path, now: datetime) -> Iterator[Finding]:
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as failure:
        mend = f"write the authority's certificates in PEM: openssl x509 -in {shlex.quote(str(path))} -noout -text"
        yield problem(Check.CERTIFICATES, key, f"{path} holds no certificates: {failure}", mend=mend)
        return
    # One that is still valid is enough; files of authorities often keep the old one beside the new one.
    last = max(found, key=lambda certificate: certificate.not_valid_after_utc)
    yield lifetime(key, last, now, renew=f"put the authority's new certificate into {path}")
