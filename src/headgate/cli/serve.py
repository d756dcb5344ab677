"""`headgate serve`: the gateway in front of an existing cluster.

It prints one line to standard output when it serves clients: `ready gateway=HOST:PORT`. Before that the ports are open
and `/readyz` says what is missing. SIGTERM and SIGINT drain: pending requests are completed, then it ends. SIGHUP
replaces the workers one after the other; clients only see a closed connection.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

import uvloop

from headgate.base.clock import SystemClock
from headgate.cli import logs
from headgate.cli.features import FAMILIES, check_features
from headgate.cli.secret_files import warn_of_open_files
from headgate.cli.waiting import Stopped, ready_or_stopped
from headgate.config import Config, load
from headgate.proxy.supervisor import Supervisor

_WORKER = (sys.executable, "-m", "headgate.cli.worker")


def define_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="configuration file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    logs.configure()
    config = load(args.config, os.environ)
    warn_of_open_files(config, args.config)
    check_features(config)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config))


async def _serve(config: Config) -> int:
    """Serve until a signal, and return the exit code."""
    stopped = Stopped()
    replace = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, replace.set)
    supervisor = Supervisor(config, _WORKER, FAMILIES)
    announcing = asyncio.create_task(_announce(config, supervisor, stopped))
    try:
        await supervisor.run(stopped.event, replace)
    finally:
        announcing.cancel()
    return stopped.exit_code


async def _announce(config: Config, supervisor: Supervisor, stopped: Stopped) -> None:
    if await ready_or_stopped(supervisor.problems, stopped, SystemClock()):
        print(f"ready gateway={config.gateway.listen}", flush=True)
