"""The sockets of a process as the kernel lists them: what it listens on, and whom it is connected to.

Java's sockets are IPv6 ones with IPv4 addresses inside, so both tables are read and addresses are told as IPv4 where
they are.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

_LISTEN = 0x0A  # include/net/tcp_states.h


class Socket(NamedTuple):
    """A TCP socket; addresses are `host:port`."""

    local: str
    remote: str
    is_listening: bool

    @property
    def local_port(self) -> int:
        return int(self.local.rpartition(":")[2])


def sockets_of(pid: int) -> list[Socket]:
    """The TCP sockets that the process holds now; empty when it is gone."""
    inodes = set()
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    inodes.add(target[len("socket:[") : -1])
    found = []
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                words = line.split()
                if words[9] in inodes:
                    found.append(Socket(_address(words[1]), _address(words[2]), int(words[3], 16) == _LISTEN))
    return found


def listening_ports(pid: int) -> set[int]:
    return {one.local_port for one in sockets_of(pid) if one.is_listening}


def _address(text: str) -> str:
    """`0100007F:1F90`: each 32 bits of the address are in the byte order of the machine."""
    host, _, port = text.partition(":")
    raw = b"".join(bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8))
    address = ip_address(raw)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return f"{address}:{int(port, 16)}"


class Watch:
    """Looks at the sockets of processes again and again, from a thread."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = tuple(pids)
        self._seen: set[str] = set()
        self._looks = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="socket-watch", daemon=True)

    @property
    def dialled(self) -> frozenset[str]:
        """Every address that one of the processes was connected to, or tried to be."""
        assert self._looks, "nothing was looked at"
        return frozenset(self._seen)

    def _run(self) -> None:
        while not self._stopped.is_set():
            for pid in self._pids:
                self._seen.update(one.remote for one in sockets_of(pid) if not one.is_listening)
            self._looks += 1
            time.sleep(0.01)


@contextmanager
def watching(*pids: int) -> Iterator[Watch]:
    watch = Watch(pids)
    watch._thread.start()
    try:
        yield watch
    finally:
        watch._stopped.set()
        watch._thread.join(10)
