"""`headgate config check`: every problem of a configuration file, each with its path.

The environment counts, as it does for the gateway: what is checked is what would run.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from headgate.config.loading import load
from headgate.config.problems import ConfigError, Problem, shown
from headgate.config.rules import warnings


# argparse gives the type of add_subparsers() no public name.
def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("config", help="look at a configuration file")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="every problem with its path")
    check.add_argument("file", type=Path, metavar="FILE", help="the TOML file")
    check.add_argument("--json", action="store_true", help="one object on standard output")
    check.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 without problems, 2 with; warnings go to standard error and change neither."""
    file: Path = args.file
    name = shown(str(file))
    problems: tuple[Problem, ...] = ()
    try:
        config = load(file, os.environ)
    except ConfigError as error:
        problems = error.problems
    else:
        for warning in warnings(config):
            print(f"{name}: {warning.paths[0]}: warning: {warning.text}", file=sys.stderr)
    if args.json:
        print(json.dumps({"problems": [{"path": one.path, "text": one.text} for one in problems]}))
    elif not problems:
        print(f"{name}: no problems")
    else:
        for one in problems:
            print(f"{name}: {one.text}" if one.path == str(file) else f"{name}: {one.path}: {one.text}")
    return 2 if problems else 0
