"""One broker's address, step by step: the name, the port, TLS, who we are, what it says of the cluster.

One rule: the first step that fails ends the visit with one finding that names the step, because everything behind it
would fail for the same reason. Every step has a deadline. Brokers choose names that end up in lines to paste, so these
are quoted for the shell.
"""

import asyncio
import os
import shlex
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from cryptography import x509

from headgate.base.errors import ClusterError
from headgate.base.ids import NodeId
from headgate.config.addresses import Address
from headgate.config.files import read_secret
from headgate.config.model import UpstreamConfig
from headgate.doctor.broker import Broker, close
from headgate.doctor.certificates import names_of
from headgate.doctor.commands import KafkaTools
from headgate.doctor.findings import Check, Finding, ok, problem
from headgate.kafka.connections import BrokerConnection, Credentials, authenticate
from headgate.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest
from headgate.wire.messages.sasl import SaslHandshakeRequest

_METADATA, _SASL_HANDSHAKE = 3, 17
_ILLEGAL_SASL_STATE = 34
_NAME_MISMATCH = {62, 64}  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_OUT_OF_DATE = {9, 10}  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED

_WHO_WE_ARE = ApiVersionsRequest(client_software_name="headgate-doctor", client_software_version="1")

# A broker may advertise a name that no resolver takes, or a port that is none: ValueError and OverflowError.
UNREACHABLE = (OSError, TimeoutError, ValueError, OverflowError)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _StepFailedError(Exception):
    """A step failed, and this is the finding."""

    def __init__(self, text: str, *, mend: str) -> None:
        super().__init__(text)
        self.text = text
        self.mend = mend


@dataclass(frozen=True, slots=True)
class Visit:
    """What came of one address; `broker` is None when a step failed."""

    address: Address
    finding: Finding
    broker: Broker | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialler:
    """Visits brokers as the gateway would: with its TLS settings and its service account."""

    upstream: UpstreamConfig
    deadline_s: float  # of each step

    async def visit(self, address: Address, *, label: str, source: str) -> Visit:
        """`label` says whose address it is, `source` which setting it comes from."""
        tools = KafkaTools.of(self.upstream)
        streams: Streams | None = None
        try:
            await self._resolve(address, source)
            await self._knock(address, source)
            streams = await self._open(address, source)
            caller = BrokerConnection(*streams, self.deadline_s)
            said = await self._ask_versions(caller, address)
            await self._log_in(caller, tools)
            broker = await self._ask_cluster(caller, address, said, streams[1])
        except _StepFailedError as failed:
            if streams is not None:
                await close(streams[1])
            finding = problem(Check.UPSTREAM, label, failed.text, mend=failed.mend)
            return Visit(address, finding, None)
        text = f"answers{self._how(streams[1])}, cluster {broker.cluster_id}"
        return Visit(address, ok(Check.UPSTREAM, label, text), broker)

    async def _resolve(self, address: Address, source: str) -> None:
        try:
            await resolve(address.host, deadline_s=self.deadline_s)
        except (OSError, TimeoutError) as failure:
            why = "no answer from DNS" if isinstance(failure, TimeoutError) else _reason(failure)
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
        mend = (
            f"nc -vz {shlex.quote(address.host)} {address.port}   (start the broker, open the way), or correct {source}"
        )
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
                text, mend = "speaks no TLS, and upstream.tls is on", "upstream.tls = false   (or name a TLS port)"
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
            await connection.call(_WHO_WE_ARE, 3)
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
        """Why its certificate is refused, in the words of what it shows."""
        certificate = await self._shown_certificate(address)
        names = () if certificate is None else names_of(certificate)
        if failure.verify_code in _NAME_MISMATCH:
            text = f"its certificate is for {', '.join(names) or 'no name at all'}, not for {address.host}"
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
        """Look without trusting: only to say what is there."""
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
            return await caller.call(_WHO_WE_ARE, 3)
        except ClusterError as failure:
            if not self.upstream.tls and await self._shown_certificate(address) is not None:
                raise _StepFailedError("speaks TLS, and upstream.tls is off", mend="upstream.tls = true") from None
            text = f"is no Kafka broker, or one older than 2.4: {failure}"
            raise _StepFailedError(
                text, mend="name the port of a broker's client listener in upstream.bootstrap"
            ) from None

    async def _log_in(self, caller: BrokerConnection, tools: KafkaTools) -> None:
        upstream = self.upstream
        if upstream.service_user is None or upstream.service_password_file is None:
            await self._needs_no_login(caller)
            return
        password = read_secret(upstream.service_password_file).get_secret_value()
        mechanism = upstream.service_mechanism
        try:
            await authenticate(caller, Credentials(user=upstream.service_user, password=password, mechanism=mechanism))
        except ClusterError as failure:
            mend = f"correct {upstream.service_password_file} (upstream.service_password_file)"
            if mechanism.startswith("SCRAM"):
                mend += f", or set the password anew: {tools.set_scram_password(upstream.service_user, mechanism)}"
            elif mechanism == "PLAIN":
                mend += f", or enter user_{upstream.service_user}=... in the listener's plain.sasl.jaas.config"
            if "does not offer" in str(failure):
                mend = "set upstream.service_mechanism to one that the listener offers, or name its SASL port"
            raise _StepFailedError(str(failure), mend=mend) from None

    async def _needs_no_login(self, caller: BrokerConnection) -> None:
        """A listener without SASL says that a handshake is out of place; one with SASL names its mechanisms."""
        try:
            answer = await caller.call(SaslHandshakeRequest(), 1)
        except ClusterError as failure:
            raise _StepFailedError(str(failure), mend="look into the broker's log for this connection") from None
        if answer.error_code != _ILLEGAL_SASL_STATE:
            text = f"wants SASL ({', '.join(answer.mechanisms)}), and there is no service account"
            raise _StepFailedError(
                text, mend="set upstream.service_user, upstream.service_password_file, upstream.service_mechanism"
            )

    async def _ask_cluster(
        self, caller: BrokerConnection, address: Address, said: ApiVersionsResponse, writer: asyncio.StreamWriter
    ) -> Broker:
        request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
        try:
            answer = await caller.call(request, 12)
        except ClusterError as failure:
            text = f"does not say which cluster it belongs to: {failure}"
            raise _StepFailedError(
                text, mend="upgrade the broker to Kafka 3.1 or newer, or look into its log"
            ) from None
        return Broker(
            address=address,
            cluster_id=answer.cluster_id or "",
            nodes={NodeId(one.node_id): Address(one.host, one.port) for one in answer.brokers},
            versions={one.api_key: (one.min_version, one.max_version) for one in said.api_keys},
            levels={one.name: one.max_version_level for one in said.finalized_features},
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
    """The addresses of a name; `OSError` or `TimeoutError`.

    On a thread that nobody waits for: a resolver that hangs would hold up the end of the process otherwise.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()

    def settle(addresses: list[str], failure: OSError | None) -> None:
        if found.done():
            return
        if failure is None:
            found.set_result(addresses)
        else:
            found.set_exception(failure)

    def look_up() -> None:
        addresses: list[str] = []
        failure: OSError | None = None
        try:
            rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            addresses = [str(row[4][0]) for row in rows]
        except OSError as error:
            failure = error
        except ValueError:
            failure = OSError("not a host name")
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, addresses, failure)

    threading.Thread(target=look_up, name="doctor-resolve", daemon=True).start()
    async with asyncio.timeout(deadline_s):
        return await found


def _peer_certificate(writer: asyncio.StreamWriter) -> x509.Certificate | None:
    tls = writer.get_extra_info("ssl_object")
    shown = None if tls is None else tls.getpeercert(binary_form=True)
    return None if shown is None else x509.load_der_x509_certificate(shown)


def _reason(failure: Exception) -> str:
    """What happened; asyncio's own words would only name the address again."""
    if isinstance(failure, TimeoutError):
        return "no answer in time"
    if isinstance(failure, ConnectionError) and not failure.errno:
        return "the peer closed the connection"
    if isinstance(failure, OSError) and not isinstance(failure, ssl.SSLError) and (failure.errno or 0) > 0:
        return os.strerror(failure.errno or 0)
    return str(getattr(failure, "strerror", None) or failure)
