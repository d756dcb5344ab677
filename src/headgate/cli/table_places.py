"""Arguments that all commands on tables share: where the tables are, and JSON."""

import argparse
import os
from pathlib import Path

from headgate.base.locations import Location, parse_location
from headgate.config import load
from headgate.config.storage import located, storage_options


def add_places(action: argparse.ArgumentParser, *, json_help: str) -> None:
    places = action.add_mutually_exclusive_group()
    places.add_argument(
        "--path", type=table_location, metavar="DIR", help="the folder of the tables, or s3://BUCKET/PREFIX with AWS_*"
    )
    places.add_argument("--config", type=Path, metavar="FILE", help="the configuration file with [tables] path")
    action.add_argument("--json", action="store_true", help=json_help)


def table_location(text: str) -> Location:
    """The value of `--path`; the options of an object store are those of the environment."""
    try:
        return located(parse_location(text), storage_options({}, os.environ))
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def root_of(args: argparse.Namespace) -> Location:
    """The place of the tables: as named, or as configured."""
    root: Location = args.path if args.path is not None else load(args.config, os.environ).tables.path
    return root
