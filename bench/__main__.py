"""`python -m bench`: Headgate beside its peers, into bench/RESULTS.md.

A whole campaign replaces `bench/results/latest.json` and the page. One that is narrowed (`--only`, `--stage`) or
hurried (`--quick`, less than five rounds) goes to `bench/results/partial.json` and standard output, so that the page
is never half old.
"""

import argparse
import resource
import shlex
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from bench import campaign, record, render
from bench.scenarios import SCENARIOS
from bench.stage import Pace

ROUNDS = 5
WHOLE = Pace(rounds=ROUNDS, counted_s=2.5, warm_s=0.4)
QUICK = Pace(rounds=1, counted_s=0.6, warm_s=0.2)
_FILES = 16_384


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Headgate beside its peers.",
        epilog="`make bench` also runs python -m bench.record_incidents, which records incidents of real share "
        "consumers in about six minutes, and python -m bench.triage, which evaluates the verdict on them.",
    )
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--only", nargs="+", choices=names, default=[], metavar="NAME", help=f"of {', '.join(names)}")
    stages = [spec.name for spec in campaign.STAGES]
    parser.add_argument("--stage", nargs="+", choices=stages, default=[], help="leave the other stages out")
    parser.add_argument("--rounds", type=int, default=None, help=f"{ROUNDS} unless told, 1 with --quick")
    parser.add_argument("--quick", action="store_true", help="short runs: to see that it works, not for figures")
    parser.add_argument("--render", action="store_true", help="make the page anew from the last whole campaign")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    args = _arguments(given)
    if args.render:
        render.write(record.load(record.LATEST))
        return 0
    signal.signal(signal.SIGTERM, _end)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, most), most))
    base = QUICK if args.quick else WHOLE
    pace = Pace(rounds=args.rounds or base.rounds, counted_s=base.counted_s, warm_s=base.warm_s)
    command = shlex.join(["python", "-m", "bench", *(sys.argv[1:] if given is None else given)])
    found = campaign.run(stages=args.stage, only=args.only, pace=pace, command=command, say=_say)
    if args.only or args.stage or args.quick or pace.rounds < ROUNDS:
        found.save(record.PARTIAL)
        print(render.page(found))
        _say(f"kept in {record.PARTIAL}; bench/RESULTS.md is as it was")
    else:
        found.save(record.LATEST)
        render.write(found)
        _say(f"written: {render.PAGE}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _end(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """As an exception, so that every process and folder is cleaned up on the way out."""
    sys.exit(128 + signum)


if __name__ == "__main__":
    sys.exit(main())
