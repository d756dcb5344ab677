"""`headgate pipeline`: facts in Kafka become tables.

`run` goes on until SIGTERM or SIGINT, which let the batch under way end; `run --once` ends when what is there now is
read. `rebuild` makes one table anew. Progress and problems are sentences on standard error; `run --status` serves them
over HTTP too, on an address of its own, because `[metrics] listen` is the gateway's.
"""

import argparse
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.base.clock import SystemClock
from headgate.cli import logs
from headgate.cli.pipeline_status import status_pages
from headgate.cli.waiting import INTERRUPTED
from headgate.config import Config, load
from headgate.config.addresses import Address, parse_address
from headgate.kafka.topics import client_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.spark.describe import Listening


# argparse gives the type of add_subparsers() no public name.
def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("pipeline", help="facts in Kafka become tables, on Spark")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    running = actions.add_parser("run", help="read facts and write tables until a signal")
    running.add_argument("--once", action="store_true", help="end when what is there now is read")
    running.add_argument(
        "--status", type=_address, metavar="HOST:PORT", help="serve /readyz, /healthz and /metrics of the pipeline here"
    )
    rebuilding = actions.add_parser("rebuild", help="make one table anew from what the topics retain")
    rebuilding.add_argument("table", metavar="TABLE", help="its name")
    for action in (running, rebuilding):
        action.add_argument("--config", type=Path, required=True, metavar="FILE", help="the TOML file")
        action.set_defaults(run=run)


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


class _Signals:
    """SIGTERM (exit code 0) and SIGINT (130) set `stop`; Spark takes SIGINT for itself when a session starts."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.exit_code: int | None = None
        self.take()

    def take(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self._on_signal(0))
        signal.signal(signal.SIGINT, lambda *_: self._on_signal(INTERRUPTED))

    def _on_signal(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self.stop.set()


def run(args: argparse.Namespace) -> int:
    logs.configure("warning")
    config = load(args.config, os.environ)
    signals = _Signals()
    well = _run(args, config, signals)
    if signals.exit_code is not None:
        return signals.exit_code
    return 0 if well else 1


def _run(args: argparse.Namespace, config: Config, signals: _Signals) -> bool:
    # Spark takes a second to import, and no other command needs it.
    from headgate.pipeline.health import Health  # noqa: PLC0415
    from headgate.pipeline.queries import QUERIES  # noqa: PLC0415
    from headgate.pipeline.rebuilding import Rebuild, check_rebuildable  # noqa: PLC0415
    from headgate.pipeline.runner import Pipeline, only_pipeline  # noqa: PLC0415
    from headgate.pipeline.session import end_session, start_session  # noqa: PLC0415

    is_rebuild = args.action == "rebuild"
    if is_rebuild:
        check_rebuildable(args.table)
    health = Health(query.name for query in QUERIES)
    with only_pipeline(config), status_pages(None if is_rebuild else args.status, health):
        session = start_session(config.pipeline.spark)
        signals.take()
        try:
            if is_rebuild:
                rebuild = Rebuild(config, session, SystemClock(), signals.stop, args.table)
                try:
                    return rebuild.run()
                finally:
                    rebuild.close()
            pipeline = Pipeline(config, session, SystemClock(), signals.stop, health=health)
            listening = _describe_ourselves(config, session)
            try:
                return pipeline.run(once=args.once)
            finally:
                pipeline.close()
                listening.close()
        finally:
            end_session(session)


def _describe_ourselves(config: Config, session: "SparkSession") -> "Listening":
    """The pipeline is an application too: its queries are in the tables that they write."""
    from headgate.pipeline.queries import QUERIES  # noqa: PLC0415
    from headgate.spark.describe import Output, listen  # noqa: PLC0415
    from headgate.spark.topology_facts import TopologyFacts  # noqa: PLC0415

    outputs = {
        query.name: [Output(format="delta", place=str(config.tables.path / name)) for name in query.builds()]
        for query in QUERIES
    }
    facts = TopologyFacts(client_settings(config.upstream), prefix=config.facts.prefix)
    return listen(session, facts, outputs=outputs)
