"""Checks one broker address step by step: the name, the port, TLS, the login, the cluster's metadata.

The first step that fails ends the check with one finding that names the step, because all later steps would fail for
the same reason. Every step has a timeout. Brokers choose names that end up in commands to paste, so these are quoted
for the shell.
"""

import asyncio
import os
import shlex
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from cryptography import x509

from headgate.base.errors import ClusterError
from headgate.base.ids import NodeId
from headgate.base.threads import off_loop
from headgate.config.addresses import Address
from headgate.config.model import UpstreamConfig
from headgate.doctor.findings import Check, DoctorFinding, KafkaTools, ok, problem
from headgate.kafka.connections import BrokerConnection, authenticate, credentials_of
from headgate.wire.apis import api_name
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    SaslHandshakeRequest,
)
from headgate.wire.schema import Message, Request

M = TypeVar("M", bound=Message)

_NAME_MISMATCH = {62, 64}  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_OUT_OF_DATE = {9, 10}  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED

_GREETING = ApiVersionsRequest(client_software_name="headgate-doctor", client_software_version="1")

# A broker may advertise an invalid name or port: ValueError and OverflowError.
UNREACHABLE = (OSError, TimeoutError, ValueError, OverflowError)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker that responds at `address`; `nodes` and `cluster_id` come from its metadata."""

    address: Address
    cluster_id: str
    nodes: Mapping[NodeId, Address]
    versions: Mapping[int, tuple[int, int]]
    levels: Mapping[str, int]  # finalized features, such as share.version
    certificate: x509.Certificate | None
    caller: BrokerConnection
    writer: asyncio.StreamWriter

    async def call(self, request: Request[M], version: int) -> M:
        """Send a request as the service account; an unsupported one would make the broker close the connection."""
        low, high = self.versions.get(request.api_key, (0, -1))
        if not low <= version <= high:
            raise ClusterError(f"the broker does not support {api_name(request.api_key)} v{version}")
        return await self.caller.call(request, version)


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection and wait up to a second until it is closed."""
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            await writer.wait_closed()


class _StepFailedError(Exception):
    """A step of the check failed."""

    def __init__(self, text: str, *, mend: str) -> None:
        super().__init__(text)
        self.text = text
        self.mend = mend


@dataclass(frozen=True, slots=True)
class Visit:
    """The result for one address; `broker` is None when a step failed."""

    address: Address
    finding: DoctorFinding
    broker: Broker | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressCheck:
    """Connects to brokers as the gateway does: with its TLS settings and its service account."""

    upstream: UpstreamConfig
    deadline_s: float  # of each step

    async def visit(self, address: Address, *, label: str, source: str) -> Visit:
        """Check one address; `label` names it in findings, `source` is the setting that it comes from."""
        tools = KafkaTools.of(self.upstream)
        streams: Streams | None = None
        try:
            await self._resolve(address, source)
            await self._knock(address, source)
            streams = await self._open(address, source)
            caller = BrokerConnection(*streams, self.deadline_s)
            api_versions = await self._ask_versions(caller, address)
            await self._log_in(caller, tools)
            broker = await self._ask_cluster(caller, address, api_versions, streams[1])
        except _StepFailedError as failed:
            if streams is not None:
                await close(streams[1])
            finding = problem(Check.UPSTREAM, label, failed.text, mend=failed.mend)
            return Visit(address, finding, None)
        text = f"responds{self._how(streams[1])}, cluster {broker.cluster_id}"
        return Visit(address, ok(Check.UPSTREAM, label, text), broker)

    async def _resolve(self, address: Address, source: str) -> None:
        try:
            await resolve(address.host, deadline_s=self.deadline_s)
        except (OSError, TimeoutError) as failure:
            why = "no response from DNS" if isinstance(failure, TimeoutError) else _reason(failure)
            text = f"the name {address.host} does not resolve on this machine: {why}"
            raise _StepFailedError(
                text,
                mend=f"getent hosts {shlex.quote(address.host)}   (add it to DNS or /etc/hosts), or correct {source}",
            ) from None

    async def _knock(self, address: Address, source: str) -> None:
        try:
            async with asyncio.timeout(self.deadline_s):
                _, writer = await asyncio.open_connection(*address)
        except TimeoutError:
            text = f"no connection within {self.deadline_s:g} s: a firewall drops it, or the machine is down"
        except UNREACHABLE as failure:
            text = f"no connection: {_reason(failure)}"
        else:
            await close(writer)
            return
        look = f"nc -vz {shlex.quote(address.host)} {address.port}"
        mend = f"{look}   (start the broker, open the firewall), or correct {source}"
        raise _StepFailedError(text, mend=mend)

    async def _open(self, address: Address, source: str) -> Streams:
        context = None
        if self.upstream.tls:
            try:
                context = ssl.create_default_context(cafile=self.upstream.tls_ca)
            except (OSError, ValueError) as failure:
                text = f"upstream.tls_ca cannot be used: {failure}"
                raise _StepFailedError(
                    text, mend=f"openssl x509 -in {shlex.quote(str(self.upstream.tls_ca))} -noout -text"
                ) from None
            context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            return await self._connect(address, context)
        except ssl.SSLCertVerificationError as failure:
            raise await self._not_trusted(address, failure, source) from None
        except UNREACHABLE as failure:
            if context is not None and await self._answers_without_tls(address):
                text, mend = "does not use TLS, and upstream.tls is on", "upstream.tls = false   (or name a TLS port)"
            else:
                what = "connection" if context is None else "TLS handshake"
                text, mend = f"no {what}: {_reason(failure)}", f"openssl s_client -connect {shlex.quote(str(address))}"
            raise _StepFailedError(text, mend=mend) from None

    async def _answers_without_tls(self, address: Address) -> bool:
        try:
            reader, writer = await self._connect(address, None)
        except UNREACHABLE:
            return False
        try:
            connection = BrokerConnection(reader, writer, self.deadline_s)
            await connection.call(_GREETING, 3)
        except ClusterError:
            return False
        else:
            return True
        finally:
            await close(writer)

    async def _connect(self, address: Address, context: ssl.SSLContext | None) -> Streams:
        async with asyncio.timeout(self.deadline_s):
            return await asyncio.open_connection(*address, ssl=context)

    async def _not_trusted(
        self, address: Address, failure: ssl.SSLCertVerificationError, source: str
    ) -> _StepFailedError:
        """Say why the broker's certificate is rejected."""
        certificate = await self._shown_certificate(address)
        names = () if certificate is None else names_of(certificate)
        if failure.verify_code in _NAME_MISMATCH:
            text = f"its certificate is for {', '.join(names) or 'no name'}, not for {address.host}"
            mend = f"give the broker a certificate with subjectAltName for {address.host}"
            if names:
                mend = f"name it as its certificate does: {source} = {Address(names[0], address.port)}; or {mend}"
        elif failure.verify_code in _OUT_OF_DATE:
            text = f"its certificate is out of date: {failure.verify_message}"
            mend = f"renew it on the broker, and look: openssl s_client -connect {shlex.quote(str(address))}"
        else:
            issuer = "" if certificate is None else f" (issued by {certificate.issuer.rfc4514_string()})"
            text = f"its certificate{issuer} is not trusted: {failure.verify_message}"
            mend = 'upstream.tls_ca = "/etc/headgate/ca.pem"   (the certificate of the authority that issued it)'
        return _StepFailedError(text, mend=mend)

    async def _shown_certificate(self, address: Address) -> x509.Certificate | None:
        """The broker's certificate without verifying it, for messages."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            _, writer = await self._connect(address, context)
        except UNREACHABLE:
            return None
        certificate = _peer_certificate(writer)
        await close(writer)
        return certificate

    async def _ask_versions(self, caller: BrokerConnection, address: Address) -> ApiVersionsResponse:
        try:
            return await caller.call(_GREETING, 3)
        except ClusterError as failure:
            if not self.upstream.tls and await self._shown_certificate(address) is not None:
                raise _StepFailedError("uses TLS, and upstream.tls is off", mend="upstream.tls = true") from None
            text = f"does not respond as a Kafka broker of 2.4 or newer: {failure}"
            raise _StepFailedError(
                text, mend="name the port of a broker's client listener in upstream.bootstrap"
            ) from None

    async def _log_in(self, caller: BrokerConnection, tools: KafkaTools) -> None:
        credentials = credentials_of(self.upstream)
        if credentials is None:
            await self._check_no_sasl(caller)
            return
        try:
            await authenticate(caller, credentials)
        except ClusterError as failure:
            mend = f"correct {self.upstream.service_password_file} (upstream.service_password_file)"
            if credentials.mechanism.startswith("SCRAM"):
                mend += f", or set a new password: {tools.set_scram_password(credentials.user, credentials.mechanism)}"
            elif credentials.mechanism == "PLAIN":
                mend += f", or enter user_{credentials.user}=... in the listener's plain.sasl.jaas.config"
            if "does not offer" in str(failure):
                mend = "set upstream.service_mechanism to one that the listener offers, or name its SASL port"
            raise _StepFailedError(str(failure), mend=mend) from None

    async def _check_no_sasl(self, caller: BrokerConnection) -> None:
        """A listener without SASL rejects a handshake with ILLEGAL_SASL_STATE; one with SASL names its mechanisms."""
        try:
            answer = await caller.call(SaslHandshakeRequest(), 1)
        except ClusterError as failure:
            raise _StepFailedError(str(failure), mend="see the broker's log for this connection") from None
        if answer.error_code != ErrorCode.ILLEGAL_SASL_STATE:
            text = f"requires SASL ({', '.join(answer.mechanisms)}), and no service account is configured"
            raise _StepFailedError(
                text, mend="set upstream.service_user, upstream.service_password_file, upstream.service_mechanism"
            )

    async def _ask_cluster(
        self,
        caller: BrokerConnection,
        address: Address,
        api_versions: ApiVersionsResponse,
        writer: asyncio.StreamWriter,
    ) -> Broker:
        request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
        try:
            answer = await caller.call(request, 12)
        except ClusterError as failure:
            text = f"does not return its cluster's metadata: {failure}"
            raise _StepFailedError(text, mend="upgrade the broker to Kafka 3.1 or newer, or see its log") from None
        return Broker(
            address=address,
            cluster_id=answer.cluster_id or "",
            nodes={NodeId(one.node_id): Address(one.host, one.port) for one in answer.brokers},
            versions={one.api_key: (one.min_version, one.max_version) for one in api_versions.api_keys},
            levels={one.name: one.max_version_level for one in api_versions.finalized_features},
            certificate=_peer_certificate(writer),
            caller=caller,
            writer=writer,
        )

    def _how(self, writer: asyncio.StreamWriter) -> str:
        words = []
        tls = writer.get_extra_info("ssl_object")
        if tls is not None:
            words.append(f"{tls.version()} with a trusted certificate")
        if self.upstream.service_user is not None:
            words.append(f"User:{self.upstream.service_user} by {self.upstream.service_mechanism}")
        return f" ({', '.join(words)})" if words else ""


async def resolve(host: str, *, deadline_s: float) -> Sequence[str]:
    """The addresses of a name; `OSError` or `TimeoutError`."""

    def look_up() -> list[str]:
        try:
            rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except ValueError:
            raise OSError("not a host name") from None
        return [str(row[4][0]) for row in rows]

    async with asyncio.timeout(deadline_s):
        return await off_loop(look_up)


def _peer_certificate(writer: asyncio.StreamWriter) -> x509.Certificate | None:
    tls = writer.get_extra_info("ssl_object")
    shown = None if tls is None else tls.getpeercert(binary_form=True)
    return None if shown is None else x509.load_der_x509_certificate(shown)


def _reason(failure: Exception) -> str:
    """The cause of a failure; asyncio's own text would only repeat the address."""
    if isinstance(failure, TimeoutError):
        return "no response in time"
    if isinstance(failure, ConnectionError) and not failure.errno:
        return "the peer closed the connection"
    if isinstance(failure, OSError) and not isinstance(failure, ssl.SSLError) and (failure.errno or 0) > 0:
        return os.strerror(failure.errno or 0)
    return str(getattr(failure, "strerror", None) or failure)


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The DNS names and addresses that the certificate is for; clients look at nothing else (RFC 6125)."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *(str(address) for address in addresses))
