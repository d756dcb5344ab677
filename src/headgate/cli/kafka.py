"""`headgate kafka`: runs a real cluster on this machine until a signal, or until one of its nodes ends.

Standard output has the one line `ready kafka=HOST:PORT[,HOST:PORT...]`; messages go to standard error.
"""

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from headgate.base.errors import ClusterError, UsageError
from headgate.embedded import ClusterSpec, EmbeddedKafka, StartGivenUpError, StartOptions
from headgate.embedded.spec import parse_setting

_POLL_S = 0.1


def define_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Run a real Kafka cluster on this machine. Its nodes have the ids 0, 1 and 2."
    parser.add_argument(
        "--data-dir", type=Path, required=True, metavar="DIR", help="folder for the data of the cluster"
    )
    parser.add_argument("--port", type=int, default=19092, help="port of node 0; the others follow (default: 19092)")
    parser.add_argument("--brokers", type=int, default=1, help="number of brokers, 1 to 3 (default: 1)")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="key=value",
        help="a setting of server.properties; may be repeated",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until SIGINT (exit code 130), SIGTERM (0) or the end of a node (1)."""
    spec = ClusterSpec(data_dir=args.data_dir, port=args.port, brokers=args.brokers, settings=_settings(args.settings))
    kafka = EmbeddedKafka(spec)
    with _caught_signals() as caught:
        try:
            kafka.start(StartOptions(progress=_say, give_up=lambda: bool(caught)))
            print(f"ready kafka={kafka.bootstrap}", flush=True)
            while not caught and not kafka.deaths:
                time.sleep(_POLL_S)
        except StartGivenUpError:
            pass
        finally:
            if spec.brokers > 1:
                _say("stopping Kafka, which takes some seconds")
            kafka.stop()
    if caught:
        return 130 if caught[0] == signal.SIGINT else 0
    death = kafka.deaths[0]
    for line in death.tail:
        print(f"  {line}", file=sys.stderr)
    raise ClusterError(f"{death}; its last lines are above")


def _settings(texts: list[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for key, value in map(parse_setting, texts):
        if key in settings:
            raise UsageError(f"--set names {key} twice: keep one of them")
        settings[key] = value
    return settings


def _say(text: str) -> None:
    print(f"headgate: {text}", file=sys.stderr, flush=True)


@contextmanager
def _caught_signals() -> Iterator[list[int]]:
    """SIGINT and SIGTERM in the order in which they came.

    The handler only records them: an exception in it could leave a child half started.
    """
    caught: list[int] = []

    def note(signum: int, _: FrameType | None) -> None:
        caught.append(signum)

    before = {signum: signal.signal(signum, note) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
