"""One worker of `headgate serve`: started by the supervisor, never by hand.

It reads its `Inheritance` from standard input, serves on the listeners in it, reports twice a second, and drains on
SIGTERM, or when its supervisor has ended.
"""

import asyncio
import gc
import pickle
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from mmap import mmap

import uvloop

from headgate.base.errors import HeadgateError
from headgate.cli import logs
from headgate.cli.features import make_features
from headgate.proxy.listeners import ConnectionLimits, Inheritance, Ports
from headgate.proxy.server import Gateway
from headgate.proxy.worker_reports import WorkerReport, encode_report

log = logs.get_logger()

_REPORT_SECONDS = 0.5
_LAST_WORD_SECONDS = 1.0
_SWITCH_INTERVAL_S = 0.0005


def main() -> int:
    # A terminal's Ctrl-C reaches the whole process group, and the supervisor handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logs.configure()
    inheritance: Inheritance = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the parent process
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(inheritance))
    except HeadgateError as error:
        print(f"headgate: worker {inheritance.worker}: {error}", file=sys.stderr)
        return error.exit_code


async def _serve(inheritance: Inheritance) -> int:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    config = inheritance.config
    listeners = {node: socket.socket(fileno=number) for node, number in inheritance.listeners.items()}
    ports = Ports(config.gateway, listeners, inheritance.worker)
    caps = ConnectionLimits(
        config.gateway,
        memory=memoryview(mmap(inheritance.caps, 0)),
        row=inheritance.caps_row,
        key=inheritance.caps_key,
    )
    features = make_features(config, worker=inheritance.worker, row=inheritance.caps_row)
    gateway = Gateway(config, features=features, ports=ports, caps=caps)
    reports = socket.socket(fileno=inheritance.reports)
    reports.setblocking(False)
    loop.add_reader(
        reports, stopped.set
    )  # a supervisor sends nothing, so this is its end, and the ports must be closed
    tune_interpreter()
    drained = asyncio.Event()
    reporting = asyncio.create_task(send_reports(gateway, reports, drained))
    try:
        async with gateway.running():
            await stopped.wait()
            loop.remove_reader(reports)
    finally:
        drained.set()
        await asyncio.wait((reporting,), timeout=_LAST_WORD_SECONDS)
        reporting.cancel()
    return 0


async def send_reports(gateway: Gateway, reports: socket.socket, drained: asyncio.Event) -> None:
    """Report to the supervisor, more often while there are problems, and once more when all connections have ended."""
    loop = asyncio.get_running_loop()
    problems: Mapping[str, str] = {"metrics": "cannot be collected"}
    report = encode_report(WorkerReport({}, problems))
    is_last = has_failed = False
    while not is_last:
        is_last = drained.is_set()
        try:
            problems = gateway.problems()
            report = encode_report(WorkerReport(gateway.snapshot(), problems, gateway.details()))
        except Exception:  # a worker without reports is ended as one that hangs, with all of its connections
            if not has_failed:
                log.exception("metrics cannot be collected, the last ones are reported again")
            has_failed = True
        try:
            await loop.sock_sendall(reports, report)
        except OSError:
            return  # the supervisor has ended
        with suppress(TimeoutError):
            async with asyncio.timeout(_REPORT_SECONDS / 10 if problems else _REPORT_SECONDS):
                await drained.wait()


def tune_interpreter() -> None:
    """Let the event loop wait neither for the garbage collector nor for a thread that decodes.

    All objects that exist now stay for the life of the process, so they are not looked at again. A thread that decodes
    a large message gives the interpreter away after 0.5 ms instead of 5 ms (`docs/operate.md`, Caps).
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


if __name__ == "__main__":
    sys.exit(main())
