"""What is expected on a connection, in order: each request that went upstream leaves one entry.

An entry is (route, correlation id, purpose). A call that nobody opened has no purpose (None): its answer passes. The
others say whom the answer is for. The order of entries is the order of answers: Kafka's connections are FIFO.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from headgate.proxy.chain import Contexts
from headgate.proxy.interceptor import FastPath
from headgate.proxy.routes import Route


@dataclass(slots=True)
class Opened:
    """The answer is gathered and shown to the interceptors; `asked` is the route that the client used.

    `watchers` see its bytes as the broker sent them.
    """

    asked: Route
    contexts: Contexts
    watchers: Contexts


@dataclass(slots=True)
class Watched:
    """The answer passes, and these interceptors see its bytes."""

    watchers: Contexts


@dataclass(slots=True)
class Private:
    """The answer to a call of our own; the client does not see it."""

    body: asyncio.Future[bytes]


@dataclass(slots=True)
class Local:
    """An answer of our own that waits for those in front of it."""

    route: Route
    head: bytes
    body: bytes
    contexts: Contexts


# A client that has so much open waits until some of it is answered: a call of 14 bytes costs us far more than that.
MOST_PENDING: Final = 1024
# With so much open a call that is opened waits. All answers may come at once, and each is work for the event loop.
MOST_BEFORE_OPENED: Final = 16

Purpose = Opened | Watched | FastPath | Private | Local | None
Entry = tuple[Route | None, int, Purpose]


@dataclass(slots=True)
class Slot:
    """A place in the client's output whose bytes are still being decided; `size` is of what the broker sent."""

    size: int
    frame: bytes | None = None


@dataclass(slots=True)
class Behind:
    """A held answer and the output that waits behind it."""

    pieces: deque[bytes | Slot] = field(default_factory=deque)
    size: int = 0
