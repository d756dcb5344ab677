"""By what clients are counted where each address has a bound of its own."""

import socket

_MAPPED_IPV4 = bytes(10) + b"\xff\xff"


def network_of(host: str) -> bytes:
    """An IPv4 address, also one in an IPv6 address; the first 64 bits of an IPv6 address; the name of anything else.

    One host may have all addresses of an IPv6 network of 64 bits.
    """
    try:
        if ":" not in host:
            return socket.inet_pton(socket.AF_INET, host)
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except OSError:
        return host.encode()
    return packed[12:] if packed.startswith(_MAPPED_IPV4) else packed[:8]
