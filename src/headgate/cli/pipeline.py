"""`headgate pipeline`: turns facts in Kafka into tables.

`run` ends at SIGTERM or SIGINT, after the running batch; `run --once` ends when all existing records are read.
`rebuild` makes one table anew. Progress and problems are sentences on standard error; `run --status` serves them over
HTTP too, on its own address, because `[metrics] listen` belongs to the gateway.
"""

import argparse
import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.base.clock import SystemClock
from headgate.base.errors import INTERRUPTED
from headgate.cli import logs
from headgate.cli.secret_files import warn_of_open_files
from headgate.config import Config, load
from headgate.config.addresses import Address, parse_address
from headgate.kafka.topics import client_settings
from headgate.proxy.status import StatusPages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.pipeline.run_log import PipelineHealth
    from headgate.spark import TopologyListener

_PAGES_WITHIN_S = 10.0


def define_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    running = actions.add_parser("run", help="read facts and write tables until SIGTERM or SIGINT")
    running.add_argument("--once", action="store_true", help="end when all existing records are read")
    running.add_argument(
        "--status", type=_address, metavar="HOST:PORT", help="serve /readyz, /healthz and /metrics on this address"
    )
    rebuilding = actions.add_parser(
        "rebuild", help="make one table anew from the records that the topics retain, or from other tables"
    )
    rebuilding.add_argument("table", metavar="TABLE", help="the table")
    for action in (running, rebuilding):
        action.add_argument("--config", type=Path, required=True, metavar="FILE", help="the configuration file")
        action.set_defaults(run=run)


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


class _Signals:
    """SIGTERM (exit code 0) and SIGINT (130) set `stop`, or end a process at once that has no session yet.

    Spark replaces the handler of SIGINT when a session starts: call `on_session` then.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.exit_code: int | None = None
        self._has_session = False
        self._install()

    def on_lock_lost(self) -> None:
        """Another process may write the tables now."""
        self.exit_code = 1
        self.stop.set()

    def on_session(self) -> None:
        self._has_session = True
        self._install()

    def _install(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self._on_signal(0))
        signal.signal(signal.SIGINT, lambda *_: self._on_signal(INTERRUPTED))

    def _on_signal(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self.stop.set()
        if not self._has_session:  # nothing is under way, and a session may take half a minute to start
            sys.exit(exit_code)


def run(args: argparse.Namespace) -> int:
    logs.configure("warning")
    config = load(args.config, os.environ)
    warn_of_open_files(config, args.config)
    signals = _Signals()
    well = _run(args, config, signals)
    if signals.exit_code is not None:
        return signals.exit_code
    return 0 if well else 1


def _run(args: argparse.Namespace, config: Config, signals: _Signals) -> bool:
    # Spark takes a second to import, and no other command needs it.
    from headgate.pipeline.pipeline_lock import only_pipeline  # noqa: PLC0415
    from headgate.pipeline.queries import QUERIES  # noqa: PLC0415
    from headgate.pipeline.rebuild import check_rebuildable, new_rebuild  # noqa: PLC0415
    from headgate.pipeline.run_log import PipelineHealth, print_message  # noqa: PLC0415
    from headgate.pipeline.runner import PipelineRunner  # noqa: PLC0415
    from headgate.pipeline.session import end_session, start_session  # noqa: PLC0415

    is_rebuild = args.action == "rebuild"
    if is_rebuild:
        check_rebuildable(args.table)
    health = PipelineHealth(query.name for query in QUERIES)

    def on_lost(what: str) -> None:
        print_message(f"{what}: this pipeline stops")
        signals.on_lock_lost()

    with only_pipeline(config, on_lost), status_pages(None if is_rebuild else args.status, health):
        session = start_session(config.pipeline.spark, (config.tables.path, config.pipeline.checkpoint))
        signals.on_session()
        try:
            if is_rebuild:
                rebuild = new_rebuild(config, session, SystemClock(), signals.stop, args.table)
                try:
                    return rebuild.run()
                finally:
                    rebuild.close()
            pipeline = PipelineRunner(config, session, SystemClock(), signals.stop, health=health)
            listening = _describe_own_queries(config, session)
            try:
                return pipeline.run(once=args.once)
            finally:
                pipeline.close()
                listening.close()
        finally:
            end_session(session)


def _describe_own_queries(config: Config, session: "SparkSession") -> "TopologyListener":
    """Describe the pipeline's own queries, so that they appear among the applications."""
    from headgate.pipeline.queries import QUERIES  # noqa: PLC0415
    from headgate.spark import Output, TopologyFacts, listen  # noqa: PLC0415

    outputs = {
        query.name: [Output(format="delta", place=str(config.tables.path / name)) for name in query.builds()]
        for query in QUERIES
    }
    facts = TopologyFacts(client_settings(config.upstream), prefix=config.facts.prefix)
    return listen(session, facts, outputs=outputs)


@contextmanager
def status_pages(listen: Address | None, health: "PipelineHealth") -> Iterator[None]:
    """Serve the status pages during the block, if there is an address; `PlatformError` when it is in use.

    The queries are blocking calls on other threads, so the pages have a thread and an event loop of their own.
    """
    if listen is None:
        yield
        return
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    listening: Future[None] = Future()

    async def serve() -> None:
        pages = StatusPages(health.metrics_page, health.problems)
        async with pages.serving(listen, named="--status"):
            listening.set_result(None)
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except Exception as failure:  # noqa: BLE001 - raised where it is waited for
            listening.set_exception(failure)
        finally:
            loop.close()

    thread = threading.Thread(target=run, name="headgate-status", daemon=True)
    thread.start()
    listening.result(_PAGES_WITHIN_S)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_PAGES_WITHIN_S)
