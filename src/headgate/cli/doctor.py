"""`headgate doctor`: checks everything that the gateway needs to work in front of its cluster.

Findings go to standard output, as text or as one JSON object; slow steps are named on standard error. Exit codes: 0
without a problem (there may be warnings), 1 with one, 2 when the configuration is not valid.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from headgate.cli.escaping import escaped
from headgate.config.loading import load
from headgate.config.model import Config
from headgate.config.problems import ConfigError
from headgate.doctor import Check, DoctorFinding, FindingVerdict, count, examine
from headgate.doctor.findings import problem

_MARKS = {FindingVerdict.OK: "ok", FindingVerdict.WARNING: "WARNING", FindingVerdict.PROBLEM: "PROBLEM"}
_MARK_WIDTH = max(map(len, _MARKS.values()))


def define_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check everything that the gateway needs, without changing anything: this machine, the brokers, "
        "the rights of the service account, Headgate's topics, versions and clocks."
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="configuration file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Return 0 without problems, 1 with; 2 for an invalid configuration."""
    try:
        config = load(args.config, os.environ)
    except ConfigError as error:
        if not args.json:
            raise
        print(json.dumps(document(_of_configuration(error, args.config))))
        return error.exit_code
    findings = asyncio.run(_examine(config, as_text=not args.json))
    print(json.dumps(document(findings)) if args.json else summary(findings))
    return 1 if count(findings)[FindingVerdict.PROBLEM] else 0


def _of_configuration(error: ConfigError, file: Path) -> list[DoctorFinding]:
    return [
        problem(Check.CONFIGURATION, one.path, one.text, mend=f"correct {one.path} in {file}") for one in error.problems
    ]


async def _examine(config: Config, *, as_text: bool) -> list[DoctorFinding]:
    """All findings; as text they are printed at once, so that a slow step does not hide the others."""
    findings: list[DoctorFinding] = []
    heading: Check | None = None
    async for finding in examine(config, tell=_tell):
        findings.append(finding)
        if as_text:
            if finding.check is not heading:
                heading = finding.check
                print(heading.value)
            print("\n".join(lines(finding)), flush=True)
    return findings


def lines(finding: DoctorFinding) -> list[str]:
    """One finding for a terminal; some words come from brokers, so they are escaped."""
    shown_lines = [f"  {_MARKS[finding.verdict]:<{_MARK_WIDTH}}  {escaped(finding.subject)}: {escaped(finding.text)}"]
    if finding.mend:
        shown_lines.append(f"  {'':<{_MARK_WIDTH}}    -> {escaped(finding.mend)}")
    return shown_lines


def summary(findings: Iterable[DoctorFinding]) -> str:
    counts = count(findings)
    words = [_plural(counts[FindingVerdict.PROBLEM], "problem"), _plural(counts[FindingVerdict.WARNING], "warning")]
    return f"{', '.join(words)}, {counts[FindingVerdict.OK]} ok"


def document(findings: Iterable[DoctorFinding]) -> dict[str, object]:
    """The object of `--json`."""
    found = list(findings)
    counts = count(found)
    return {
        "counts": {verdict.value: number for verdict, number in counts.items()},
        "findings": [
            {
                "verdict": one.verdict.value,
                "check": one.check.value,
                "subject": one.subject,
                "text": one.text,
                "mend": one.mend or None,
            }
            for one in found
        ],
    }


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _tell(text: str) -> None:
    print(f"headgate: {text}", file=sys.stderr, flush=True)
