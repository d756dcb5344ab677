"""Makes the replay plans that are requested in `headgate-replay.progress`, one after the other, in a running pipeline.

Answers are durable. A request that was being made when a pipeline ended is not tried again by the next one, because it
may be what ended it; its plan counts if it was written. What the queue does with records is in `PlanQueue`, which is
pure.
"""

import json
import secrets
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from typing import Final

from pyspark.sql import SparkSession

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError, HeadgateError, PlatformError
from headgate.config import Config
from headgate.dead_letters.audit import refresh_audit
from headgate.dead_letters.model.plans import new_plan_id
from headgate.dead_letters.plan_store import tables_id
from headgate.dead_letters.plan_topic import HEARTBEAT_S, PlanRecordReader, PlanRecordWriter
from headgate.facts.plan_requests import (
    FINAL,
    MAX_ANSWER_CHARACTERS,
    REQUEST_LIFE_MS,
    PlanAnswered,
    PlanRequested,
    PlanRequestState,
)
from headgate.facts.replays import PROGRESS_TOPIC
from headgate.kafka.topics import TopicAdmin, client_settings, list_topics
from headgate.pipeline.plan_maker import PlanMaker, plan_request_of
from headgate.pipeline.run_log import print_message
from headgate.tables.definitions import TABLES
from headgate.tables.reader import TableReader

JOB_GROUP: Final = "plan"
MOST_WAITING: Final = 20
_MOST_KNOWN: Final = 1_000
_POLL_S: Final = 0.5
_RETRY_S: Final = 5.0
_CANCEL_AGAIN_S: Final = 0.5
_FIRST_STEP: Final = "reading the tables"
_STOPPED: Final = "the pipeline was stopped while it made the plan: ask for it again"
_ENDED: Final = "a pipeline ended while it made the plan: see its log, then ask for it again"


class PlanCancelledError(HeadgateError):
    """The pipeline is being stopped, and the plan is not made."""


class PlanQueue:
    """The requests that are not done, in their order, and the last state of each."""

    def __init__(self) -> None:
        self._requests: dict[str, PlanRequested] = {}
        self._states: dict[str, PlanRequestState] = {}

    def take(self, record: PlanRequested | PlanAnswered) -> None:
        """A record of the topic; what is beyond the bound is left to those who asked."""
        if isinstance(record, PlanRequested):
            if len(self._requests) < _MOST_KNOWN:
                self._requests.setdefault(record.request, record)
        elif record.state in FINAL:
            self._requests.pop(record.request, None)
            self._states.pop(record.request, None)
        elif record.request in self._requests:
            self._states[record.request] = record.state

    def interrupted(self) -> list[PlanRequested]:
        """The requests whose plan an earlier pipeline began and did not finish."""
        return [one for one in self._requests.values() if self._states.get(one.request) == "RUNNING"]

    def refusals(self, now_ms: int, making: str | None = None) -> list[PlanAnswered]:
        """The answers to those that will not be made: too old, or too many.

        Every operator may write the topic. So a request from the future, and one that is said to be made but is not
        `making` here, do not stay for ever.
        """
        found = []
        waiting = 0
        for one in self._requests.values():
            if one.request == making:
                continue
            waits = self._states.get(one.request) != "RUNNING"
            waiting += waits
            if abs(now_ms - one.at) > REQUEST_LIFE_MS:
                minutes = REQUEST_LIFE_MS // 60_000
                apart = "older than" if one.at < now_ms else "from a clock that is ahead by more than"
                text = f"the request is {apart} {minutes} minutes by the clock of the pipeline: ask again"
                found.append(PlanAnswered(at=now_ms, request=one.request, state="FAILED", text=text))
            elif waits and waiting > MOST_WAITING:
                text = f"{MOST_WAITING} requests wait already: ask again in some minutes"
                found.append(PlanAnswered(at=now_ms, request=one.request, state="REFUSED", text=text))
        return found

    def waiting(self) -> list[PlanRequested]:
        """The requests whose plan was not begun."""
        return [one for one in self._requests.values() if self._states.get(one.request) != "RUNNING"]


class PlanRequests:
    """Answers requests until stopped; `run` is called on a thread of its own."""

    def __init__(self, config: Config, session: SparkSession, clock: Clock) -> None:
        self._config = config
        self._session = session
        self._clock = clock
        self._settings = client_settings(config.upstream)
        self._admin = TopicAdmin(self._settings)
        self._problem: str | None = None
        self._queue = PlanQueue()
        self._making: tuple[str, Future[str]] | None = None  # the id of the request
        self._cancelled = threading.Event()  # of the plan that is being made
        self._step = _FIRST_STEP
        self._beat_at = 0.0

    def run(self, stop: threading.Event) -> None:
        """A topic that does not exist yet, or cannot be read, is looked for again."""
        with ThreadPoolExecutor(1, "headgate-plan") as maker:
            while not stop.is_set():
                try:
                    if self._admin.ids([PROGRESS_TOPIC]):
                        self._serve(maker, stop)
                    self._problem = None
                except Exception as failure:  # noqa: BLE001 - the queries of the pipeline go on
                    words = str(failure) if isinstance(failure, HeadgateError) else repr(failure)
                    text = f"plans that are asked for cannot be made: {words}"
                    if text != self._problem:
                        print_message(text)
                    self._problem = text
                stop.wait(_RETRY_S)

    def _serve(self, maker: ThreadPoolExecutor, stop: threading.Event) -> None:
        self._queue = PlanQueue()
        with (
            closing(PlanRecordReader(self._settings, self._admin)) as reader,
            closing(PlanRecordWriter(self._settings)) as writer,
        ):
            while not reader.is_at_end and not stop.is_set():
                self._take(reader)
            self._answer_interrupted(writer)
            self._problem = None
            try:
                while not stop.is_set():
                    self._take(reader)
                    self._advance(maker, writer)
            finally:
                self._end_making(writer)

    def _take(self, reader: PlanRecordReader) -> None:
        records = reader.poll(_POLL_S)
        tables = {one.tables for one in records if isinstance(one, PlanRequested)}
        own = tables_id(self._config.tables.path) if tables - {None} else None
        for record in records:
            if not isinstance(record, PlanRequested) or record.tables is None or record.tables == own:
                self._queue.take(record)

    def _answer(
        self, writer: PlanRecordWriter, request: str, state: PlanRequestState, text: str | None, plan: str | None = None
    ) -> None:
        shown = None if text is None else text[:MAX_ANSWER_CHARACTERS]
        answer = PlanAnswered(at=self._clock.epoch_ms(), request=request, state=state, plan=plan, text=shown)
        writer.write(answer)
        self._queue.take(answer)

    def _answer_interrupted(self, writer: PlanRecordWriter) -> None:
        interrupted = self._queue.interrupted()
        made = self._plans_of({one.request for one in interrupted}) if interrupted else {}
        for one in interrupted:
            plan = made.get(one.request)
            self._answer(writer, one.request, "FAILED" if plan is None else "DONE", None if plan else _ENDED, plan)

    def _plans_of(self, requests: set[str]) -> dict[str, str]:
        """The plans that were made for these requests."""
        reader = TableReader(self._config.tables.path)
        try:
            rows = reader.stream(TABLES["replay_plans"], columns=("plan", "selection"))
            asked = ((json.loads(row["selection"]).get("request"), row["plan"]) for row in rows or ())
            return {request: plan for request, plan in asked if request in requests}
        finally:
            reader.close()

    def _advance(self, maker: ThreadPoolExecutor, writer: PlanRecordWriter) -> None:
        making = None if self._making is None else self._making[0]
        for refusal in self._queue.refusals(self._clock.epoch_ms(), making):
            writer.write(refusal)
            self._queue.take(refusal)
        if self._making is not None and self._making[1].done():
            self._end_making(writer)
        waiting = self._queue.waiting()
        if self._making is None and waiting:
            request = waiting.pop(0)
            self._step = _FIRST_STEP
            self._cancelled.clear()
            self._answer(writer, request.request, "RUNNING", _FIRST_STEP)
            self._making = request.request, maker.submit(self._make, request)
        if self._clock.monotonic() >= self._beat_at:
            self._beat_at = self._clock.monotonic() + HEARTBEAT_S
            if self._making is not None:
                self._answer(writer, self._making[0], "RUNNING", self._step)
            for number, one in enumerate(waiting, start=1):
                self._answer(
                    writer, one.request, "WAITING", f"waits for {number} other plan{'s' if number > 1 else ''}"
                )

    def _end_making(self, writer: PlanRecordWriter) -> None:
        """Answer the request that is being made; one that is not done is cancelled."""
        if self._making is None:
            return
        (request, result), self._making = self._making, None
        is_cancelled = not result.done()
        self._cancelled.set()
        while not result.done():
            self._session.sparkContext.cancelJobGroup(JOB_GROUP)
            wait([result], timeout=_CANCEL_AGAIN_S)
        failure = result.exception()
        if failure is None:
            self._answer(writer, request, "DONE", None, result.result())
        elif is_cancelled:
            self._answer(writer, request, "FAILED", _STOPPED)
        elif isinstance(failure, ClusterError | PlatformError):
            self._answer(writer, request, "FAILED", str(failure))
        elif isinstance(failure, HeadgateError):
            self._answer(writer, request, "REFUSED", str(failure))
        else:  # the pipeline goes on; the text of an unexpected error is for its log
            print_message(f"a plan could not be made: {failure!r}")
            self._answer(writer, request, "FAILED", "the plan could not be made: see the messages of the pipeline")

    # --- on the thread that makes plans

    def _make(self, asked: PlanRequested) -> str:
        spark = self._session.sparkContext
        spark.setLocalProperty("spark.scheduler.pool", JOB_GROUP)
        spark.setJobGroup(JOB_GROUP, "a replay plan", interruptOnCancel=True)  # by which a stop cancels what runs
        cluster_id = list_topics(self._settings).cluster
        # An open transaction of a replay that was killed may keep this waiting for more than a minute.
        refresh_audit(
            self._config.tables.path, self._settings, self._admin, cluster_id, is_stopped=self._cancelled.is_set
        )
        self._tell(_FIRST_STEP)
        now_ms = self._clock.epoch_ms()
        plan = new_plan_id(now_ms, secrets.token_bytes(2))
        request = plan_request_of(asked, plan=plan, at=now_ms, cluster_id=cluster_id)
        return PlanMaker(self._config, self._session, self._admin, self._tell).make(request).plan

    def _tell(self, step: str) -> None:
        if self._cancelled.is_set():
            raise PlanCancelledError(_STOPPED)
        if step != self._step:
            self._step = step
            self._beat_at = 0.0  # told at once
