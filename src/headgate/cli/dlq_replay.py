"""`headgate dlq replay`: runs a replay in this process, with the credentials of the operator alone.

Of the configuration it uses the tables, `[replay]` and the address of the gateway; it never reads the password of the
service account. Exit codes: 0 done; 1 stopped, refused or failed; 2 usage; 130 interrupted.
"""

import argparse
import math
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

from headgate.base.clock import SystemClock
from headgate.base.errors import INTERRUPTED, ClusterError, UsageError
from headgate.cli import logs
from headgate.cli.cluster_calls import dialler_of, tell
from headgate.cli.columns import json_text
from headgate.cli.dlq_text import ReplayBar, replay_document, replay_text
from headgate.cli.escaping import escaped
from headgate.cli.secret_files import warn_of_open_files
from headgate.config import Config, load
from headgate.config.addresses import Address
from headgate.dead_letters.model.plans import ReplayPlan, ReplayRules
from headgate.dead_letters.plan_store import load_plan, plan_records
from headgate.dead_letters.replay_control import ReplayControl
from headgate.dead_letters.replay_run import MOST_RATE, BreakerWatch, audited, checked_replayer
from headgate.dead_letters.replayer import ReplayOptions, ReplayResult
from headgate.kafka.client_properties import librdkafka_settings, read_properties
from headgate.kafka.connections import Dialler
from headgate.share_groups.admin import WatchedBreaker
from headgate.tables.reader import TableReader


def run(args: argparse.Namespace) -> int:
    logs.configure("warning")
    if args.rate is not None and not (math.isfinite(args.rate) and 0 < args.rate <= MOST_RATE):
        raise UsageError(f"--rate must be above 0 and at most {MOST_RATE} records a second")
    config = load(args.config, os.environ)
    warn_of_open_files(config, args.config)
    if args.bootstrap_server is None:
        args.bootstrap_server = str(Address(config.gateway.advertised_host, config.gateway.listen.port))
    args.timeout = None
    dialler = dialler_of(args)
    reader = TableReader(config.tables.path)
    try:
        return _Command(args, config, dialler, reader).run()
    except ClusterError as failure:  # some of the text comes from servers
        raise type(failure)(escaped(str(failure))) from None
    finally:
        reader.close()


class _Command:
    def __init__(self, args: argparse.Namespace, config: Config, dialler: Dialler, reader: TableReader) -> None:
        self._args = args
        self._config = config
        self._dialler = dialler
        self._reader = reader
        properties = {} if args.command_config is None else read_properties(args.command_config)
        self._settings = librdkafka_settings(properties, dialler.bootstrap)
        self._control = ReplayControl()
        self._exit_code = 1
        user = "ANONYMOUS" if dialler.credentials is None else dialler.credentials.user
        self._by = f"User:{user}"

    def run(self) -> int:
        args = self._args
        plan = load_plan(self._reader, args.plan)
        bar = ReplayBar(plan.to_write)
        replayer = checked_replayer(
            plan,
            self._rules(),
            self._settings,
            clock=SystemClock(),
            options=ReplayOptions(by=self._by, rate=args.rate, timestamps=args.timestamp),
            control=self._control,
            on_progress=bar.show,
        )
        if args.abort:
            with self._audited(plan):
                result = replayer.abort()
            return self._end(result, 0)
        records = plan_records(self._reader, plan)
        if args.dry_run:
            with self._signals(), closing(bar):
                result = replayer.check(records)
            return self._print(result, 0 if result.stopped_by is None else self._exit_code)
        watch = BreakerWatch(plan.group, self._control, WatchedBreaker(self._dialler, plan.group), _tell_escaped)
        watch.start()
        try:
            with self._audited(plan), self._signals(), closing(bar):
                result = replayer.run(records)
        finally:
            watch.stop()
        return self._end(result, 0 if result.state == "DONE" else self._exit_code)

    def _rules(self) -> ReplayRules:
        return ReplayRules(
            topics=self._config.replay.topics,
            dlq_prefix=self._config.share_groups.dlq_prefix,
            facts_prefix=self._config.facts.prefix,
            parking_topic=self._config.replay.parking_topic,
        )

    def _audited(self, plan: ReplayPlan) -> AbstractContextManager[None]:
        return audited(self._config.tables.path, self._settings, plan, _tell_escaped)

    def _end(self, result: ReplayResult, exit_code: int) -> int:
        if result.stopped_by is not None:
            tell(f"stopped: {escaped(result.stopped_by)}; run the same command again to go on")
        return self._print(result, exit_code)

    def _print(self, result: ReplayResult, exit_code: int) -> int:
        text = replay_text(result, dry_run=self._args.dry_run)
        print(json_text(replay_document(result)) if self._args.json else text, end="")
        return exit_code

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Take signals during the block; then they have their old meanings again."""

        def stop(exit_code: int, why: str) -> None:
            self._exit_code = exit_code
            self._control.stop(why)

        taken: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGINT: lambda: stop(INTERRUPTED, "interrupted"),
            signal.SIGTERM: lambda: stop(1, "terminated"),
            signal.SIGUSR1: self._control.pause,
            signal.SIGUSR2: self._control.resume,
        }
        before = {one: signal.signal(one, lambda number, _: taken[signal.Signals(number)]()) for one in taken}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def _tell_escaped(words: str) -> None:
    """Some of the words come from servers."""
    tell(escaped(words))
