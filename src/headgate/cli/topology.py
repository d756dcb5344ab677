"""`headgate topology parse`: a `Topology.describe()` text, checked and shown as Headgate understands it."""

import argparse
import json
import sys
from itertools import islice
from pathlib import Path

from headgate.base.errors import HeadgateError, UsageError
from headgate.domain.topology import Description, content_hash, findings
from headgate.domain.topology_text import Unreadable, parse, render
from headgate.facts.descriptions import DESCRIPTION

_LARGEST_TEXT = 64 * 1024 * 1024
_MOST_FINDINGS = 20


# argparse gives the type of add_subparsers() no public name.
def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("topology", help="what a Streams application computes, as text")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    reading = actions.add_parser("parse", help="read the text that Topology.describe() gives")
    reading.add_argument("file", metavar="FILE", help="the text's file, - for standard input")
    reading.add_argument("--json", action="store_true", help="one object on standard output")
    reading.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 with the topology on standard output; what is odd about it goes to standard error and changes nothing."""
    read = parse(_text(args.file))
    if isinstance(read, Unreadable):
        raise HeadgateError(f"{args.file}, line {read.line}: {read.text}")
    for finding in islice(findings(read), _MOST_FINDINGS):
        print(f"headgate: {finding.text}", file=sys.stderr)
    print(_json(read) if args.json else render(read), end="\n" if args.json else "")
    return 0


def _json(description: Description) -> str:
    return json.dumps({"hash": content_hash(description), "description": DESCRIPTION.write(description)})


def _text(name: str) -> str:
    try:
        with sys.stdin.buffer if name == "-" else Path(name).open("rb") as file:
            content = file.read(_LARGEST_TEXT + 1)
        if len(content) > _LARGEST_TEXT:
            raise UsageError(f"{name} has more than {_LARGEST_TEXT} bytes: that is no topology")
        return content.decode()
    except OSError as failure:
        raise UsageError(f"{name} cannot be read: {failure.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not UTF-8 text") from None
