"""The PROXY protocol, version 2: a load balancer in front of the gateway says who the client really is.

When it is switched on, every connection must begin with such a header; one that does not is closed, because an
address that anybody may claim is worth nothing. Only the source address is taken; TLVs are skipped.
"""

import asyncio
import ipaddress
import socket
from struct import Struct
from typing import Final

from headgate.base.errors import WireError

_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_START: Final = Struct(">12sBBH")  # signature, version and command, family and transport, length of the rest
_LOCAL, _PROXY = 0x20, 0x21
_TCP4, _TCP6 = 0x11, 0x21
_LARGEST_REST: Final = 4096


async def read_source(client: socket.socket, loop: asyncio.AbstractEventLoop) -> str | None:
    """The client's address as the header says it; None for the balancer's own health checks (LOCAL).

    Reads exactly the header and not a byte more. Raises `WireError` for anything that is not one.
    """
    signature, command, family, length = _START.unpack(await _exactly(client, loop, _START.size))
    if signature != _SIGNATURE or command not in {_LOCAL, _PROXY}:
        raise WireError("no PROXY protocol v2 header, although gateway.proxy_protocol is on")
    if length > _LARGEST_REST:
        raise WireError(f"a PROXY protocol header of {length} bytes")
    rest = await _exactly(client, loop, length)
    if command == _LOCAL:
        return None
    if family == _TCP4 and length >= 12:
        return str(ipaddress.IPv4Address(rest[:4]))
    if family == _TCP6 and length >= 36:
        address = ipaddress.IPv6Address(rest[:16])
        return str(address.ipv4_mapped or address)
    raise WireError("a PROXY protocol header that is not about TCP over IP")


async def _exactly(client: socket.socket, loop: asyncio.AbstractEventLoop, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = await loop.sock_recv(client, size - len(received))
        if not piece:
            raise WireError("the connection ended inside the PROXY protocol header")
        received += piece
    return received
