"""`headgate web` serves the page and the REST interface; `headgate web token` creates a bearer token.

It prints `ready web=URL` once it serves. Before that it waits up to five seconds for the topics that it reads; those
that are missing then are named on standard error, and are read when they are available.
"""

import argparse
import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import UsageError
from headgate.cli import logs
from headgate.cli.secret_files import warn_of_open_files
from headgate.cli.waiting import Stopped
from headgate.config import Config, load
from headgate.web.tokens import TokenScope, add_token

if TYPE_CHECKING:
    from headgate.web.server import WebServer

_READ_S, _POLL_S = 5.0, 0.05
_MAX_DAYS = 3650


def define_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file (TOML)")
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    token = actions.add_parser(
        "token", help="create a bearer token: print it once, and append its hash to the tokens file"
    )
    token.add_argument("file", type=Path, metavar="FILE", help="tokens file (web.tokens_file)")
    token.add_argument("--name", required=True, help="name of the token, for example of its user")
    token.add_argument(
        "--scope", choices=list(TokenScope), default=TokenScope.READ, help="what the token allows (default: read)"
    )
    token.add_argument("--days", type=int, default=90, help="days until the token expires (default: 90)")
    token.add_argument(
        "--names",
        action="append",
        default=[],
        metavar="PATTERN",
        help="topics, applications and groups whose names the token may see, such as 'shop-*'; repeat for more "
        "(default: all)",
    )
    token.set_defaults(run=create_token)


def create_token(args: argparse.Namespace) -> int:
    if not 1 <= args.days <= _MAX_DAYS:
        raise UsageError(f"--days must be from 1 to {_MAX_DAYS}")
    expires = datetime.now(UTC) + timedelta(days=args.days)
    scope = TokenScope(args.scope)
    print(add_token(args.file, name=args.name, scope=scope, expires=expires, names=args.names))
    return 0


def run(args: argparse.Namespace) -> int:
    if args.config is None:
        raise UsageError("headgate web requires --config FILE")
    logs.configure()
    config = load(args.config, os.environ)
    warn_of_open_files(config, args.config)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config))


async def _serve(config: Config) -> int:
    """Serve until a signal; return the exit code."""
    stopped = Stopped()
    web = create_web(config)
    with web.listening():
        async with web.running():
            await wait_until_read(web, stopped, SystemClock())
            if not stopped.event.is_set():
                print(f"ready web={web.url}", flush=True)
                await stopped.event.wait()
    return stopped.exit_code


def create_web(config: Config) -> "WebServer":
    # Importing the framework takes a fifth of a second, and no other command needs it.
    from headgate.web.server import WebServer  # noqa: PLC0415

    return WebServer(config)


async def wait_until_read(web: "WebServer", stopped: Stopped, clock: Clock) -> None:
    """Wait until all topics were read, for a signal, or for five seconds."""
    until = clock.monotonic() + _READ_S
    while (missing := web.problems()) and not stopped.event.is_set() and clock.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)
    for section, problem in sorted(missing.items()):
        print(f"headgate: not read yet: {section}: {problem}", file=sys.stderr)
