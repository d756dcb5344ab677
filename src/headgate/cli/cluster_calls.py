"""Shared by the commands that send requests to a cluster: the connection options, the result, and progress.

Results go to standard output, messages to standard error.
"""

import argparse
import asyncio
import sys
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError, UsageError
from headgate.cli.columns import json_text
from headgate.cli.escaping import escaped
from headgate.config.addresses import Address, parse_address
from headgate.kafka.client_properties import read_properties, settings_of
from headgate.kafka.connections import Dialler

_SILENCE_S = 2.0
_LONGEST_TIMEOUT_MS = 3_600_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The output of a command and its exit code; `note` goes to standard error."""

    text: str
    document: dict[str, Any]
    exit_code: int = 0
    note: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of Kafka's own tools, and `--json`."""
    parser.add_argument(
        "--timeout", type=int, metavar="MS", help="timeout of the command in milliseconds (default: 30000)"
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="properties file with client configs, as for Kafka's own tools",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def check_timeout(args: argparse.Namespace) -> None:
    if args.timeout is not None and not 1 <= args.timeout <= _LONGEST_TIMEOUT_MS:
        raise UsageError(f"--timeout must be from 1 to {_LONGEST_TIMEOUT_MS} milliseconds")


def dialler_of(args: argparse.Namespace) -> Dialler:
    """The connection settings of `--bootstrap-server`, `--command-config` and `--timeout`."""
    properties = {} if args.command_config is None else read_properties(args.command_config)
    try:
        settings = settings_of(properties, _bootstrap(args.bootstrap_server))
    except UsageError as problem:
        if args.command_config is None:
            raise
        raise UsageError(f"{args.command_config}: {problem}") from None
    if settings.unused:
        tell(f"{args.command_config}: not used: {', '.join(map(escaped, settings.unused))}")
    if args.timeout is None:
        return settings.dialler
    return replace(settings.dialler, timeout_s=args.timeout / 1000)


def _bootstrap(servers: str) -> tuple[Address, ...]:
    try:
        return tuple(parse_address(server.strip()) for server in servers.split(","))
    except ValueError as problem:
        raise UsageError(f"--bootstrap-server {escaped(servers)}: {problem}") from None


def show(args: argparse.Namespace, work: Coroutine[Any, Any, Outcome]) -> int:
    """Run the request, print its result and return the exit code; the text of a `ClusterError` is escaped."""
    try:
        outcome = asyncio.run(_telling(f"asking {args.bootstrap_server}", work))
    except ClusterError as failure:  # some of the text comes from servers
        raise ClusterError(escaped(str(failure))) from None
    if outcome.note and not args.json:
        for line in outcome.note.splitlines():
            tell(line)
    print(json_text(outcome.document) if args.json else outcome.text, end="")
    return outcome.exit_code


async def _telling(what: str, work: Coroutine[Any, Any, T]) -> T:
    """Run the request, with a message every two seconds while it takes longer."""
    watching = asyncio.create_task(_watch(what, SystemClock()))
    try:
        return await work
    finally:
        watching.cancel()


async def _watch(what: str, clock: Clock) -> None:
    began = clock.monotonic()
    while True:
        await asyncio.sleep(_SILENCE_S)
        tell(f"still {what} ({clock.monotonic() - began:.0f} s)")


def tell(words: str) -> None:
    print(f"headgate: {words}", file=sys.stderr, flush=True)
