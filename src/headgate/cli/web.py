"""`headgate web`: the page and the REST interface in front of an existing cluster; `headgate web token` makes a token.

One line on standard output once it answers: `ready web=URL`. It waits for what it has to read first, five seconds at
most, so that the first call finds an answer; what is missing then is told on standard error and read when it is there.
"""

import argparse
import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from headgate.base.errors import UsageError
from headgate.cli import logs
from headgate.cli.waiting import Stopped
from headgate.config import Config, load
from headgate.web.tokens import Scope, add_token

if TYPE_CHECKING:
    from headgate.web.server import WebServer

_PATIENCE_S, _POLL_S = 5.0, 0.05
_MOST_DAYS = 3650


# argparse gives the type of add_subparsers() no public name.
def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("web", help="the page and the REST interface")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the TOML file")
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    making = actions.add_parser("token", help="make a bearer token: prints it once and keeps its hash in the file")
    making.add_argument("file", type=Path, metavar="FILE", help="the tokens file (web.tokens_file)")
    making.add_argument("--name", required=True, help="whose it is")
    making.add_argument("--scope", choices=list(Scope), default=Scope.READ, help="default: read")
    making.add_argument("--days", type=int, default=90, help="how long it is good (default 90)")
    making.set_defaults(run=make_token)


def make_token(args: argparse.Namespace) -> int:
    if not 1 <= args.days <= _MOST_DAYS:
        raise UsageError(f"--days must be from 1 to {_MOST_DAYS}")
    expires = datetime.now(UTC) + timedelta(days=args.days)
    print(add_token(args.file, name=args.name, scope=Scope(args.scope), expires=expires))
    return 0


def run(args: argparse.Namespace) -> int:
    if args.config is None:
        raise UsageError("headgate web needs --config FILE")
    logs.configure()
    config = load(args.config, os.environ)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config))


async def _serve(config: Config) -> int:
    """Serve until a signal; the result is the exit code."""
    stopped = Stopped()
    web = make_web(config)
    with web.listening():
        async with web.running():
            await read_or_stopped(web, stopped)
            if not stopped.event.is_set():
                print(f"ready web={web.url}", flush=True)
                await stopped.event.wait()
    return stopped.exit_code


def make_web(config: Config) -> "WebServer":
    # The framework takes a fifth of a second to import, and no other command needs it.
    from headgate.web.server import WebServer  # noqa: PLC0415

    return WebServer(config)


async def read_or_stopped(web: "WebServer", stopped: Stopped) -> None:
    """Wait until everything was read, a signal came, or it takes too long."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _PATIENCE_S
    while (missing := web.problems()) and not stopped.event.is_set() and loop.time() < until:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)
    for what, why in sorted(missing.items()):
        print(f"headgate: not read yet: {what}: {why}", file=sys.stderr)
