"""Arguments that all commands on tables share: where the tables are, and JSON."""

import argparse
import os
from pathlib import Path

from headgate.config import load


def add_places(action: argparse.ArgumentParser, *, json_help: str) -> None:
    places = action.add_mutually_exclusive_group()
    places.add_argument("--path", type=Path, metavar="DIR", help="the folder of the tables")
    places.add_argument("--config", type=Path, metavar="FILE", help="the configuration file with [tables] path")
    action.add_argument("--json", action="store_true", help=json_help)


def root_of(args: argparse.Namespace) -> Path:
    """The folder of the tables: as named, or as configured."""
    return args.path if args.path is not None else load(args.config, os.environ).tables.path
