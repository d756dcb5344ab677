"""`headgate config check`: lists every problem of a configuration file, each with its path.

Environment variables are applied, as the gateway applies them.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from headgate.config import exposed_files, rules
from headgate.config.loading import load
from headgate.config.problems import ConfigError, Problem, shown


def define_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="list every problem with the path of its key")
    check.add_argument("file", type=Path, metavar="FILE", help="configuration file")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Return 0 without problems, 2 with; warnings go to standard error and do not count."""
    file: Path = args.file
    name = shown(str(file))
    problems: tuple[Problem, ...] = ()
    try:
        config = load(file, os.environ)
    except ConfigError as error:
        problems = error.problems
    else:
        for warning in (*rules.warnings(config), *exposed_files.warnings(config, file)):
            print(f"{name}: {warning.paths[0]}: warning: {warning.text}", file=sys.stderr)
    if args.json:
        print(json.dumps({"problems": [{"path": one.path, "text": one.text} for one in problems]}))
    elif not problems:
        print(f"{name}: no problems")
    else:
        for one in problems:
            print(f"{name}: {one.text}" if one.path == str(file) else f"{name}: {one.path}: {one.text}")
    return 2 if problems else 0
