"""Our own way to any broker of a cluster: dial, log in, learn its versions, ask.

One rule: a call goes out only in a version that this very broker has named, because a broker closes the connection on
any other. For errands of a few calls; what goes on for long is confluent-kafka's business.
"""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

import headgate
from headgate.base.errors import ClusterError
from headgate.config.addresses import Address
from headgate.kafka.caller import Caller
from headgate.kafka.sasl import Credentials, authenticate
from headgate.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headgate.wire.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse
from headgate.wire.registry import API_VERSIONS, api_name
from headgate.wire.schema import Message

M = TypeVar("M", bound=Message)

_SASL_HANDSHAKE = 17
_ILLEGAL_SASL_STATE = 34
_CLOSING_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_WHO_WE_ARE = ApiVersionsRequest(client_software_name="headgate", client_software_version=headgate.__version__)


class UnsupportedError(ClusterError):
    """The broker is too old for a call: asking again is of no use."""


class Link(Caller):
    """A connection on which we are logged in, and the versions that its broker has."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout: float) -> None:
        super().__init__(reader, writer, timeout)
        self.versions: Mapping[int, tuple[int, int]] = {}

    @property
    def is_closed(self) -> bool:
        return self._writer.is_closing() or self._reader.at_eof()

    async def ask(self, key: int, request: Message, answer_class: type[M], *, lowest: int, highest: int) -> M:
        """The call in the highest version of `lowest` to `highest` that the broker has; else `UnsupportedError`."""
        theirs = self.versions.get(key, (0, -1))
        version = min(highest, theirs[1])
        if version < max(lowest, theirs[0]):
            raise UnsupportedError(f"the server has no {api_name(key)} from version {lowest} on")
        return await self.call(key, request, answer_class, version)

    async def shut(self) -> None:
        """Close the connection and see it closed."""
        self.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSING_S):
                await self._writer.wait_closed()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialler:
    """How a cluster is reached, and as whom; without `credentials` nobody logs in."""

    bootstrap: tuple[Address, ...]
    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None
    call_timeout_s: float = 10.0  # of each connection and each call
    timeout_s: float = 30.0  # of trying again, all in all

    async def connect(self, address: Address) -> Link:
        """A link that is ready for calls; a `ClusterError` names the address and what is wrong there."""
        link = await Link.connect(*address, timeout=min(self.call_timeout_s, self.timeout_s), tls=self.tls)
        try:
            await self._greet(link, address)
            await self._log_in(link, address)
        except BaseException:
            link.close()
            raise
        return link

    async def _greet(self, link: Link, address: Address) -> None:
        try:
            said = await link.call(API_VERSIONS, _WHO_WE_ARE, ApiVersionsResponse, 3)
        except ClusterError as failure:
            maybe = "" if self.tls is not None else ", or it wants TLS (security.protocol)"
            raise ClusterError(f"{address} is no Kafka broker{maybe}: {failure}") from None
        link.versions = {one.api_key: (one.min_version, one.max_version) for one in said.api_keys}

    async def _log_in(self, link: Link, address: Address) -> None:
        try:
            if self.credentials is not None:
                await authenticate(link, self.credentials)
                return
            # A listener without SASL says that a handshake is out of place; one with SASL would hang up on our first
            # call without a word.
            answer = await link.call(_SASL_HANDSHAKE, SaslHandshakeRequest(), SaslHandshakeResponse, 1)
        except ClusterError as failure:
            who = "" if self.credentials is None else f" as User:{self.credentials.user}"
            raise ClusterError(f"no login at {address}{who}: {failure}") from None
        if answer.error_code != _ILLEGAL_SASL_STATE:
            offered = ", ".join(sorted(answer.mechanisms))
            raise ClusterError(f"{address} wants SASL ({offered}), and no user is given")


class Connections:
    """The links of one errand, one for each broker, dialled when they are needed and closed at its end.

    Calls on one link must not overlap: two tasks may ask two brokers, never the same one.
    """

    def __init__(self, dialler: Dialler) -> None:
        self.dialler = dialler
        self._deadline = asyncio.get_running_loop().time() + dialler.timeout_s
        self._links: dict[Address, Link] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with asyncio.TaskGroup() as closing:
            for link in self._links.values():
                closing.create_task(link.shut())

    def patience(self) -> "Patience":
        return Patience(self._deadline)

    async def to(self, address: Address) -> Link:
        link = self._links.get(address)
        if link is None or link.is_closed:
            link = await self.dialler.connect(address)
            self._links[address] = link
        return link

    async def bootstrap(self) -> Link:
        """The first bootstrap address that answers; when none does, a `ClusterError` with what each said."""
        failures = []
        for address in self.dialler.bootstrap:
            try:
                return await self.to(address)
            except ClusterError as failure:
                failures.append(str(failure))
        raise ClusterError("; ".join(failures))


class Patience:
    """Growing pauses between the attempts at one thing, until the time of the errand is over."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._pause_s = _FIRST_PAUSE_S

    async def lasts(self) -> bool:
        """Wait, and say True for another attempt; False at once when there is no time for one."""
        if asyncio.get_running_loop().time() + self._pause_s >= self._deadline:
            return False
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return True
