"""`headgate`: runs a command, and turns errors into a message and an exit code.

Exit codes: 0 success; 1 failure, difference or not found; 2 usage or configuration; 130 interrupted.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import headgate
from headgate.base.errors import INTERRUPTED, HeadgateError

# Each command is the module of its name, which is imported only to run it or to show its help: `headgate tables`
# loads nothing of the gateway, and `headgate --help` loads neither.
COMMANDS: Final = {
    "dev": "run a real Kafka with the gateway in front of it, to try Headgate",
    "serve": "run the gateway in front of an existing cluster",
    "kafka": "run a real Kafka cluster of one to three brokers on this machine",
    "config": "check a configuration file",
    "doctor": "check what the gateway needs, and print the command that corrects each problem",
    "streams-groups": "list, describe and delete streams groups, and show their topologies",
    "share-groups": "show circuit breakers and dead-letter topics of share groups, pause and resume groups",
    "dlq": "show why records became dead letters, plan and run replays, and show what was replayed",
    "topology": "check, show, compare, publish and delete topologies of Streams applications and their versions",
    "connectors": "list, reset or compare the topics that a connector uses",
    "tables": "list, show and optimize the tables that the pipeline makes",
    "lineage": "show what depends on a topic, who owns it, and where descriptions and use differ",
    "pipeline": "turn facts in Kafka into tables, on Spark",
    "web": "serve the page and the REST interface",
}


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command, with its function as `run`; ends the program if they are wrong, or ask for help."""
    root = argparse.ArgumentParser(
        prog="headgate",
        description="A gateway in front of a Kafka cluster that shows what clients use, and can pause share groups.",
    )
    root.add_argument("--version", action="version", version=f"headgate {headgate.__version__}")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name == chosen:
            import_module(f"headgate.cli.{name.replace('-', '_')}").define_arguments(command)
    return root.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    try:
        code: int = args.run(args)
    except HeadgateError as error:
        for line in str(error).split("\n"):  # a configuration has one for each of its problems
            print(f"headgate: {line}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
