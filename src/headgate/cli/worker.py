"""One worker of `headgate serve`: started by the supervisor, never by hand.

Reads its `Inheritance` from standard input, serves on the listeners that it was given, reports twice a second, and
drains on SIGTERM, or when its supervisor is gone.
"""

import asyncio
import gc
import pickle
import signal
import socket
import sys
from mmap import mmap

import uvloop

from headgate.cli import logs
from headgate.gateway.caps import Caps
from headgate.gateway.ports import Ports
from headgate.gateway.server import Gateway
from headgate.gateway.supervisor import Inheritance, encode_report

_REPORT_SECONDS = 0.5


def main() -> int:
    logs.configure()
    inheritance: Inheritance = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        # A terminal's Ctrl-C reaches the whole process group: the supervisor decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return runner.run(_serve(inheritance))


async def _serve(inheritance: Inheritance) -> int:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    config = inheritance.config
    listeners = {node: socket.socket(fileno=number) for node, number in inheritance.listeners.items()}
    ports = Ports.inherited(config.gateway, listeners, inheritance.worker, config.gateway.workers)
    caps = Caps(config.gateway, memory=memoryview(mmap(inheritance.caps, 0)), row=inheritance.caps_row)
    gateway = Gateway(config, ports=ports, caps=caps)
    reports = socket.socket(fileno=inheritance.reports)
    reports.setblocking(False)
    loop.add_reader(reports, stopped.set)  # a supervisor says nothing: this is its end, and its ports must go with it
    freeze()
    async with gateway.running():
        reporting = asyncio.create_task(_report(gateway, reports, stopped))
        await stopped.wait()
        loop.remove_reader(reports)
        reporting.cancel()
    reports.setblocking(True)
    reports.settimeout(1.0)
    try:
        reports.sendall(encode_report(gateway.snapshot(), gateway.problems()))  # the last word
    except OSError:
        return 0
    return 0


async def _report(gateway: Gateway, reports: socket.socket, stopped: asyncio.Event) -> None:
    """Tell the supervisor, sooner while there are problems."""
    loop = asyncio.get_running_loop()
    while True:
        problems = gateway.problems()
        try:
            await loop.sock_sendall(reports, encode_report(gateway.snapshot(), problems))
        except OSError:
            stopped.set()
            return
        await asyncio.sleep(_REPORT_SECONDS / 10 if problems else _REPORT_SECONDS)


def freeze() -> None:
    """What is loaded now stays for ever: the collector need not walk it again with every generation."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


if __name__ == "__main__":
    sys.exit(main())
