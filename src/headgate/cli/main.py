"""`headgate`: runs a command, and turns errors into a message and an exit code.

Exit codes: 0 success; 1 failure, difference or not found; 2 usage or configuration; 130 interrupted.
"""

import argparse
import os
import sys
from collections.abc import Sequence

import headgate
from headgate.base.errors import HeadgateError
from headgate.cli import (
    config,
    connectors,
    dev,
    doctor,
    kafka,
    pipeline,
    serve,
    share_groups,
    streams_groups,
    tables,
    topology,
    web,
)
from headgate.cli.waiting import INTERRUPTED
from headgate.config import ConfigError


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="headgate",
        description="A gateway in front of a Kafka cluster that shows what clients use, and can pause share groups.",
    )
    root.add_argument("--version", action="version", version=f"headgate {headgate.__version__}")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (
        dev,
        serve,
        kafka,
        config,
        doctor,
        streams_groups,
        share_groups,
        topology,
        connectors,
        tables,
        pipeline,
        web,
    ):
        command.add_parser(commands)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        code: int = args.run(args)
    except ConfigError as error:
        for problem in error.problems:
            print(f"headgate: {problem.path}: {problem.text}", file=sys.stderr)
        return error.exit_code
    except HeadgateError as error:
        print(f"headgate: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
