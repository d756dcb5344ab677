"""Runs the derivations: after batches have changed their sources, once in some minutes, and at the end of `--once`.

After a new version of a source that is urgent to it, such as a trip, a derivation does not wait for its minutes: it
runs within ten seconds, and again when the rows have come that the append query had waited for.

A derivation that fails does not stop the others: it is a problem in `pipeline_runs` and of `/readyz`, and is tried
again after as many minutes.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Event
from typing import Protocol

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError, HeadgateError
from headgate.pipeline.batches import disk_full_error
from headgate.pipeline.derived.derivation import Derivation, DerivedContext, DerivedRun, MadeFrom
from headgate.pipeline.derived.source_tables import SourceTables, SourceVersion
from headgate.pipeline.queries import APPEND
from headgate.pipeline.run_log import PipelineRun, RunLog, print_message
from headgate.tables.definitions import table_named
from headgate.tables.files import remove_folder
from headgate.tables.storage import StoredTable, TableError, TableVersionError

QUERY = "derived"
EVERY_S = 60.0
URGENT_S = 10.0
AGAIN_S = float(APPEND.max_delay_s)
_POLL_S = 1.0


class Exporter(Protocol):
    """Sends what the derived tables say to other programs; without one, nothing is sent."""

    def export(self, cluster: str, stop: Event) -> int: ...


class DerivedTables:
    """The derivations of one pipeline; used by one thread."""

    def __init__(
        self,
        derivations: Sequence[Derivation],
        context: DerivedContext,
        clock: Clock,
        log: RunLog,
        exporter: Exporter | None = None,
    ) -> None:
        self._derivations = derivations
        self._context = context
        self._clock = clock
        self._log = log
        self._exporter = exporter
        self._sources = SourceTables(context.config.tables.path)
        self._done: dict[str, tuple[list[str], MadeFrom]] = {}  # also of runs that changed nothing and made no commit
        self._left_out: dict[str, list[str]] = {}  # by the last run of each derivation

    def run(self, cluster: str, stop: Event) -> None:
        """Run all derivations whose sources have changed, each once in its minutes, until stopped."""
        run = self._log.begin(cluster, QUERY)
        spark = self._context.session.sparkContext
        spark.setLocalProperty("spark.scheduler.pool", QUERY)
        spark.setJobGroup(QUERY, "derived tables", interruptOnCancel=True)  # by which a stop cancels what runs
        export_at = self._clock.monotonic() + EVERY_S
        due = dict.fromkeys(self._derivations, export_at)
        look_at = self._clock.monotonic() + URGENT_S
        urgent = self._urgent_versions()
        again_at: dict[Derivation, float] = {}  # when what follows the last urgent run may begin
        hurried: set[Derivation] = set()
        while not stop.wait(_POLL_S):
            now = self._clock.monotonic()
            if now >= look_at:
                before, urgent = urgent, self._urgent_versions()
                look_at = now + URGENT_S
                hurried |= (news := {one for one in urgent if urgent[one] != before.get(one)})
                due |= {one: min(due[one], max(now, again_at.get(one, now))) for one in news}
            for one, due_at in due.items():
                if not stop.is_set() and self._clock.monotonic() >= due_at:
                    self._try_to_derive(one, run, stop)
                    ended_at = self._clock.monotonic()
                    due[one] = ended_at + one.minutes * EVERY_S
                    if one in hurried:
                        hurried.discard(one)
                        due[one] = again_at[one] = ended_at + AGAIN_S
            if not stop.is_set() and self._clock.monotonic() >= export_at:
                self._try_to_export(cluster, run, stop)
                export_at = self._clock.monotonic() + EVERY_S
        self._log.end(run, "stopped")

    def _urgent_versions(self) -> dict[Derivation, list[tuple[str, int]]]:
        """The versions of the sources that are urgent; none of a derivation whose sources cannot be read now."""
        found: dict[Derivation, list[tuple[str, int]]] = {}
        for one in self._derivations:
            with suppress(HeadgateError):  # a run of the derivation reports it
                versions = self._sources.versions(one.urgent)
                found[one] = [(version.id, version.version) for version in versions.values()]
        return found

    def run_once(self, cluster: str, stop: Event) -> bool:
        """Run all derivations whose sources have changed; False when one failed."""
        run = self._log.begin(cluster, QUERY)
        went_well = [self._try_to_derive(one, run, stop) for one in self._derivations if not stop.is_set()]
        if not stop.is_set():
            went_well.append(self._try_to_export(cluster, run, stop))
        self._log.end(run, "done" if all(went_well) else "failed")
        return all(went_well)

    def make_anew(self, derivation: Derivation) -> list[str]:
        """Make all results of a derivation anew, and return what had to be left out.

        A table of another schema is removed first.
        """
        for name in reversed(derivation.results):  # the last one says from what all were made
            stored = StoredTable(self._context.config.tables.path, table_named(name))
            try:
                stored.checked()
            except TableError:
                remove_folder(stored.folder)
        versions = self._sources.versions(derivation.sources)
        return self._derive(derivation, versions, self._new_run(derivation, versions, None))

    def _try_to_derive(self, derivation: Derivation, run: PipelineRun, stop: Event) -> bool:
        """False when it failed or left something out, and not because its jobs were cancelled."""
        subject = f"derived {derivation.name}"
        try:
            problems = self._derive_if_changed(derivation)
        except Exception as failure:  # noqa: BLE001 - the other derivations of this thread go on
            problems = [_failure_text(failure)]
        if stop.is_set():
            return True
        self._log.health.clear_problem(subject)
        for text in self._left_out.get(derivation.name, ()) if problems is None else ():
            self._log.health.set_problem(subject, f"{subject}: {text}")  # it has its row
        for text in problems or ():
            self._log.add_problem(run, subject, f"{subject}: {text}", table=derivation.results[-1])
        return not problems

    def _try_to_export(self, cluster: str, run: PipelineRun, stop: Event) -> bool:
        if self._exporter is None:
            return True
        try:
            sent = self._exporter.export(cluster, stop)
        except Exception as failure:  # noqa: BLE001 - the derivations of this thread go on
            self._log.add_problem(run, "openlineage", f"openlineage: {_failure_text(failure)}")
            return False
        self._log.health.clear_problem("openlineage")
        if sent:
            print_message(f"openlineage: {sent} jobs sent")
        return True

    def _derive_if_changed(self, derivation: Derivation) -> list[str] | None:
        """What the run had to leave out; None when it did not run, because nothing has changed."""
        versions = self._sources.versions(derivation.sources)
        if not versions:
            return None
        try:
            self._sources.versions(derivation.results)
        except TableVersionError:  # all of their rows follow from other tables
            print_message(f"{QUERY}: {derivation.name}: tables of another release are made anew")
            return self.make_anew(derivation)
        ids, done = self._done.get(derivation.name, ([], None))
        since = done if ids == _ids(versions) else derivation.made_from(versions, self._context.writers)
        run = self._new_run(derivation, versions, since)
        return None if since == run.made_from else self._derive(derivation, versions, run)

    def _new_run(
        self, derivation: Derivation, versions: Mapping[str, SourceVersion], since: MadeFrom | None
    ) -> DerivedRun:
        now_ms = self._clock.epoch_ms()
        return DerivedRun(derivation, self._context, now_ms=now_ms, versions=versions, since=since)

    def _derive(self, derivation: Derivation, versions: Mapping[str, SourceVersion], run: DerivedRun) -> list[str]:
        started = self._clock.monotonic()
        try:
            derivation.derive(run)
        except HeadgateError:
            raise
        except Exception as failure:  # whatever Spark raises: the other derivations go on
            first = next(iter(str(failure).splitlines()), "")
            text = f"the derivation failed: {type(failure).__name__}: {first}"
            raise disk_full_error(failure) or ClusterError(text) from failure
        self._done[derivation.name] = _ids(versions), run.made_from
        self._left_out[derivation.name] = run.problems
        if run.rows_written:
            took_ms = round((self._clock.monotonic() - started) * 1000)
            print_message(f"{QUERY}: {derivation.name}: {run.rows_written} rows changed, {took_ms} ms")
        return run.problems


def _ids(versions: Mapping[str, SourceVersion]) -> list[str]:
    return [one.id for one in versions.values()]


def _failure_text(failure: Exception) -> str:
    """What the log and `/readyz` say; of a defect also its kind."""
    return str(failure) if isinstance(failure, HeadgateError) else f"{type(failure).__name__}: {failure}"
