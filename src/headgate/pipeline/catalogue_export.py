"""Sends the estate to other catalogues as OpenLineage events, after the lineage tables have changed, and once a day.

A job that has changed since it was sent, or that was not sent today, gives two events: a `JobEvent`, and for readers
that know only runs a `RunEvent` COMPLETE with the same topics. What was sent is kept in the checkpoint folder, so a
restart sends nothing twice; a job whose event could not be sent is sent again a minute later, and holds up no other.

The transport (a file, HTTP, Kafka) and its settings are those of the OpenLineage client, in a file of its own form.
"""

import hashlib
import json
import re
import uuid
from datetime import UTC, datetime
from pathlib import Path
from threading import Event as StopEvent
from typing import Any, Final

import yaml
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, JobEvent, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import JobFacet, job_type_job
from openlineage.client.generated.lineage import LineageDatasetEntry, LineageDatasetInput, LineageJobFacet

from headgate import __version__
from headgate.base.clock import Clock
from headgate.base.errors import ClusterError, PlatformError, UsageError
from headgate.base.locations import Location
from headgate.config.model import Config
from headgate.lineage.estate import Estate, NoTableError
from headgate.lineage.jobs import EstateJob, estate_jobs
from headgate.pipeline import catalogue_transport  # noqa: F401 - registers itself
from headgate.tables.definitions import table_named
from headgate.tables.files import read_file, write_file
from headgate.tables.reader import TableReader
from headgate.tables.storage import TableStamp

PRODUCER: Final = f"urn:headgate:{__version__}"
_DAY_MS: Final = 86_400_000
_TABLES: Final = ("lineage_edges", "app_io")
_SENT: Final = "openlineage-sent.json"
_INTEGRATIONS: Final = {
    "streams": ("KAFKA_STREAMS", "APPLICATION"),
    "spark": ("SPARK", "QUERY"),
    "connector": ("KAFKA_CONNECT", "CONNECTOR"),
    "share_group": ("KAFKA", "SHARE_GROUP"),
}
_MAX_SETTINGS_BYTES: Final = 1_000_000
_MOST_FAILURES: Final = 3  # in a row: the catalogue is away, and each failure may take as long as its time-out
_NAMED_JOBS: Final = 3
_OF_ADDRESSES: Final = re.compile(r"(?<=://)[^/@\s]*@|(?<=[^\s?])\?\S+")  # user names, passwords and queries
# A catalogue that does not know an event answers with a status of these, but for those that may pass.
_REFUSING: Final = range(400, 500)
_PASSING: Final = frozenset((401, 403, 408, 425, 429))


class CatalogueExport:
    """The jobs of one cluster, and what of them was sent; used by one thread."""

    def __init__(self, config: Config, clock: Clock, client: OpenLineageClient) -> None:
        self._config = config
        self._clock = clock
        self._client = client
        self._reader = TableReader(config.tables.path)
        self._file = config.pipeline.checkpoint / _SENT
        self._sent: dict[str, str] | None = None
        self._failed: dict[str, str] = {}  # of the last export, by job
        self._done: tuple[tuple[TableStamp | None, ...], int] | None = None

    def close(self) -> None:
        self._client.close(timeout=5.0)
        self._reader.close()

    def export(self, cluster: str, stop: StopEvent | None = None) -> int:
        """Send the jobs that have changed, or that were not sent today, until stopped; returns how many.

        `ClusterError` when some could not be sent: the others were, unless three in a row failed.
        """
        now_ms = self._clock.epoch_ms()
        state = (tuple(self._reader.stamp(table_named(name)) for name in _TABLES), now_ms // _DAY_MS)
        if state == self._done:
            return 0
        if self._sent is None:
            self._sent = _read_sent(self._file)
        jobs = self._jobs(cluster)
        namespace = namespace_of(self._config)
        marks = {job.name: _mark(job, namespace, state[1]) for job in jobs}
        changed = [job for job in jobs if self._sent.get(job.name) != marks[job.name]]
        failed: dict[str, str] = {}
        sent = in_a_row = 0
        # Those that failed come last: a job that always fails holds up no other.
        for job in sorted(changed, key=lambda job: job.name in self._failed):
            if in_a_row == _MOST_FAILURES or (stop is not None and stop.is_set()):
                break
            problem = self._send(events_of(job, cluster, namespace, now_ms))
            if problem is None:
                self._sent[job.name] = marks[job.name]
                sent, in_a_row = sent + 1, 0
            else:
                failed[job.name] = problem
                in_a_row += 1
        self._sent = {name: mark for name, mark in self._sent.items() if name in marks}
        self._keep_sent()
        self._failed = failed
        if failed:
            raise ClusterError(_failure_text(failed, left=len(changed) - sent))
        if sent == len(changed):
            self._done = state
        return sent

    def _keep_sent(self) -> None:
        try:
            write_file(self._file, json.dumps(self._sent))
        except OSError as failure:
            raise PlatformError(f"{self._file} cannot be written: {failure.strerror}") from None

    def _jobs(self, cluster: str) -> list[EstateJob]:
        estate = Estate(self._config.tables.path, cluster=cluster, reader=self._reader)
        try:
            return estate_jobs(estate.map_rows(), estate.flows())
        except NoTableError:
            return []

    def _send(self, events: tuple[JobEvent, RunEvent]) -> str | None:
        """Why the job was not sent; None when it was.

        Both events are sent, whatever becomes of the first: a catalogue that knows only runs refuses it.
        """
        of_job, of_run = (self._emit(event) for event in events)
        if of_run is None and (of_job is None or _is_refusal(of_job)):
            return None
        failure = of_run or of_job
        first = next(iter(str(failure).splitlines()), "")
        return f"{type(failure).__name__}: {_OF_ADDRESSES.sub('', first)}"

    def _emit(self, event: JobEvent | RunEvent) -> Exception | None:
        try:
            self._client.emit(event)
        except Exception as failure:  # noqa: BLE001 - whatever the transport raises
            return failure
        return None


def _is_refusal(failure: Exception) -> bool:
    """Whether the catalogue answered that it does not take such an event."""
    status = getattr(getattr(failure, "response", None), "status_code", 0)
    return status in _REFUSING and status not in _PASSING


def _failure_text(failed: dict[str, str], *, left: int) -> str:
    problem = next(iter(failed.values()))
    named = ", ".join(list(failed)[:_NAMED_JOBS])
    more = f" and {left - _NAMED_JOBS} more" if left > _NAMED_JOBS else ""
    return f"an OpenLineage event could not be sent: {problem}; jobs not sent: {named}{more}"


def namespace_of(config: Config) -> str:
    """The namespace of all topics: one address for the cluster, however clients reach it."""
    return config.pipeline.openlineage_namespace or f"kafka://{config.upstream.bootstrap[0]}"


def events_of(job: EstateJob, cluster: str, namespace: str, now_ms: int) -> tuple[JobEvent, RunEvent]:
    """The two events of a job. The run's id follows from the job and the time, so that a repeated event is the same."""
    at = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat()
    integration, job_type = _INTEGRATIONS[job.kind]
    facets: dict[str, JobFacet] = {
        "jobType": job_type_job.JobTypeJobFacet(
            processingType="STREAMING", integration=integration, jobType=job_type, producer=PRODUCER
        )
    }
    if job.pairs is not None:
        facets["lineage"] = LineageJobFacet(entries=_entries(job, namespace), producer=PRODUCER)
    described = Job(namespace=f"headgate://{cluster}", name=job.name, facets=facets)
    inputs = [InputDataset(namespace=namespace, name=topic) for topic in job.inputs]
    outputs = [OutputDataset(namespace=namespace, name=topic) for topic in job.outputs]
    run = Run(runId=str(uuid.uuid5(uuid.NAMESPACE_URL, f"headgate://{cluster}/{job.name}/{now_ms}")))
    shared: dict[str, Any] = {"eventTime": at, "job": described, "inputs": inputs, "outputs": outputs}
    return (
        JobEvent(**shared, producer=PRODUCER),
        RunEvent(**shared, run=run, eventType=RunState.COMPLETE, producer=PRODUCER),
    )


def _entries(job: EstateJob, namespace: str) -> list[Any]:
    """What each topic that is written is made from; one whose sources are not known has no entry."""
    sources: dict[str, list[str]] = {}
    for start, end in job.pairs or ():
        sources.setdefault(end, []).append(start)
    return [
        LineageDatasetEntry(
            namespace=namespace,
            name=output,
            type="DATASET",
            inputs=[LineageDatasetInput(namespace=namespace, name=topic, type="DATASET") for topic in sources[output]],
        )
        for output in job.outputs
        if output in sources
    ]


def create_export(config: Config, clock: Clock) -> CatalogueExport:
    """The export with the client that the file of `pipeline.openlineage` describes."""
    path = config.pipeline.openlineage
    assert path is not None
    try:
        return CatalogueExport(config, clock, OpenLineageClient(config=_read_settings(path)))
    except (RuntimeError, ValueError, TypeError, KeyError, ImportError) as failure:  # their texts may repeat secrets
        kind = type(failure).__name__
        raise UsageError(f"pipeline.openlineage: {path}: the OpenLineage client rejects it: {kind}") from None


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_SETTINGS_BYTES:
            raise UsageError(f"pipeline.openlineage: {path} is larger than {_MAX_SETTINGS_BYTES} bytes")
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as failure:
        raise UsageError(f"pipeline.openlineage: {path} cannot be read: {type(failure).__name__}") from None
    if not isinstance(found, dict) or not isinstance(found.get("transport"), dict):
        raise UsageError(f"pipeline.openlineage: {path} has no transport; see docs/openlineage.md for an example")
    transport = found["transport"]
    if "async_http" in _transport_types(transport):
        text = "the transport async_http does not say whether an event was sent: use http"
        raise UsageError(f"pipeline.openlineage: {path}: {text}")
    if transport.get("type") == "composite":  # else an event that one of them lost would count as sent
        transport.setdefault("continue_on_failure", False)
    return found


def _transport_types(transport: object) -> set[object]:
    if not isinstance(transport, dict):
        return set()
    parts = transport.get("transports") or ()
    parts = parts.values() if isinstance(parts, dict) else parts
    return {str(transport.get("type"))}.union(*(_transport_types(one) for one in parts))


def _read_sent(file: Location) -> dict[str, str]:
    """What was sent before; everything is sent again if that is not known."""
    try:
        found = json.loads(read_file(file))
    except (OSError, ValueError):
        return {}
    return {str(key): str(mark) for key, mark in found.items()} if isinstance(found, dict) else {}


def _mark(job: EstateJob, namespace: str, day: int) -> str:
    content = json.dumps([namespace, job.inputs, job.outputs, job.pairs])
    return f"{day}/{hashlib.sha256(content.encode()).hexdigest()[:32]}"
