"""`headgate serve`: the gateway in front of an existing cluster.

One line on standard output once clients are served: `ready gateway=HOST:PORT`. Before that the ports are open and
`/readyz` says what is missing. SIGTERM and SIGINT drain: calls under way are answered, then it ends.
"""

import argparse
import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import uvloop

from headgate.base.errors import UsageError
from headgate.cli import logs
from headgate.config import Config, load
from headgate.gateway.server import Gateway

INTERRUPTED = 130
_PROGRESS_SECONDS = 2.0


# argparse gives the type of add_subparsers() no public name.
def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("serve", help="the gateway in front of an existing cluster")
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the TOML file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    logs.configure()
    config = load(args.config, os.environ)
    check_carried(config)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(config))


def check_carried(config: Config) -> None:
    """Refuse what the configuration can say and this version cannot do, instead of doing something else."""
    for path, is_asked in (
        ("gateway.workers", config.gateway.workers > 1),
        ("gateway.tls_cert", config.gateway.tls_cert is not None),
        ("gateway.proxy_protocol", config.gateway.proxy_protocol),
        ("upstream.tls", config.upstream.tls),
        ("upstream.service_user", config.upstream.service_user is not None),
    ):
        if is_asked:
            raise UsageError(f"{path} is not carried by this version of Headgate: take it out of the configuration")


async def serve(config: Config) -> int:
    """Serve until a signal; the result is the exit code."""
    stopped = Stopped()
    gateway = Gateway(config)
    async with gateway.running():
        if await seen_or_stopped(gateway, stopped):
            print(f"ready gateway={config.gateway.listen}", flush=True)
            await stopped.wait()
    return stopped.exit_code


class Stopped:
    """Set by SIGTERM (exit code 0) or SIGINT (130)."""

    def __init__(self) -> None:
        self.exit_code = 0
        self._event = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop, 0)
        loop.add_signal_handler(signal.SIGINT, self.stop, INTERRUPTED)

    def stop(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()


async def seen_or_stopped(gateway: Gateway, stopped: Stopped) -> bool:
    """Wait for the cluster, saying why it takes long; False when a signal came first."""
    seen = asyncio.create_task(gateway.cluster.seen.wait())
    signalled = asyncio.create_task(stopped.wait())
    try:
        while not (seen.done() or signalled.done()):
            with suppress(TimeoutError):
                await asyncio.wait({seen, signalled}, timeout=_PROGRESS_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not seen.done() and not signalled.done():
                print(f"headgate: waiting for the cluster: {gateway.cluster.problem}", file=sys.stderr)
        return seen.done()
    finally:
        seen.cancel()
        signalled.cancel()
