"""Carries out what operators do with plans and replays through the web server, each time with an event of who did it.

A replay runs as the operator's own user of the cluster, and never as the service account, which only writes the request
for a plan: that makes a list, and the caller has proved its token.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.base.locations import Location
from headgate.base.threads import off_loop
from headgate.dead_letters.model.plans import ReplayPlan, ReplayRules
from headgate.dead_letters.model.target_limits import TimestampMode
from headgate.dead_letters.plan_topic import PlanRecordWriter
from headgate.dead_letters.progress_topic import ensure_progress_topic
from headgate.facts.plan_requests import PlanRequested
from headgate.facts.replays import PROGRESS_TOPIC
from headgate.kafka.connections import Connections
from headgate.kafka.topics import TopicAdmin
from headgate.web.operations import GatewayAccess, LoginRate, OperationError, OperationRate, OperationTrail, Operator
from headgate.web.replay_runs.job import ReplayCommand, ReplayJob, ReplayKind
from headgate.web.replay_runs.progress import ReplayRecords
from headgate.web.replay_runs.supervisor import ReplayRun, ReplaySupervisor

_ENDED: Final = {"DONE": "is done", "ABORTED": "was aborted: make a new plan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOrder:
    """The options of a replay."""

    kind: ReplayKind
    rate: float | None = None
    timestamps: TimestampMode = "original"


class ReplayOperations:
    """`settings` returns those of the service account, for requests of plans alone."""

    def __init__(
        self,
        gateway: GatewayAccess,
        *,
        tables: Location,
        rules: ReplayRules,
        settings: Callable[[], Mapping[str, Any]],
        supervisor: ReplaySupervisor,
        records: ReplayRecords,
        trail: OperationTrail,
        clock: Clock,
        logins: LoginRate,
    ) -> None:
        self.gateway = gateway
        self._tables = tables
        self._rules = rules
        self._settings = settings
        self._supervisor = supervisor
        self._records = records
        self._trail = trail
        self._rate = OperationRate(clock)
        self._logins = logins

    async def request_plan(self, request: PlanRequested, operator: Operator) -> None:
        """Ask the running pipeline for a plan; `OperationError` when the request could not be written."""
        subject, kind = (request.group, "share_group") if request.group is not None else (request.dlq_topic, "topic")
        detail: dict[str, object] = {"operation": "plan", "request": request.request, "to": request.to}
        self._rate.take(operator.caller)
        async with self._trail.audited(subject or "", operator, detail, kind=kind):
            try:
                await off_loop(lambda: self._write(request))
            except ClusterError as failure:
                text = f"The plan cannot be asked for: {failure}. The service account needs WRITE on {PROGRESS_TOPIC}"
                raise OperationError(HTTPStatus.SERVICE_UNAVAILABLE, text, outcome="failed") from None
            self._records.add_request(request)

    async def start(self, plan: ReplayPlan, order: ReplayOrder, operator: Operator) -> ReplayRun:
        """Start a process that replays the plan as the operator; `OperationError` when that is not possible."""
        detail: dict[str, object] = {
            "operation": order.kind.value,
            "plan": plan.plan,
            "rate": order.rate,
            "timestamps": order.timestamps,
        }
        self._rate.take(operator.caller)
        async with self._trail.audited(plan.group, operator, detail):
            totals = self._records.totals(plan.plan)
            ended = None if totals is None or totals.state is None else _ENDED.get(totals.state)
            if ended is not None and order.kind is not ReplayKind.DRY_RUN:
                raise OperationError(HTTPStatus.CONFLICT, f"Plan {plan.plan} {ended}")
            dialler = await self.gateway.login(operator)
            async with Connections(dialler) as connections:
                await self.gateway.reach(connections, operator, self._logins)
            if order.kind is ReplayKind.ABORT and self._supervisor.is_running(plan.plan):
                await self._supervisor.end(plan.plan, "aborted")
            job = ReplayJob(
                plan=plan.plan,
                kind=order.kind,
                rate=order.rate,
                timestamps=order.timestamps,
                by=operator.principal,
                tables=self._tables,
                rules=self._rules,
                gateway=self.gateway,
                credentials=dialler.credentials,
            )
            return self._supervisor.start(job, plan.group, operator.caller)

    async def command(self, plan: str, group: str, command: ReplayCommand, operator: Operator) -> ReplayRun:
        """Pause, resume or stop the process that replays the plan here.

        It writes as the user of who started it, so others may hold it up, and not make it go on.
        """
        self._rate.take(operator.caller)
        async with self._trail.audited(group, operator, {"operation": f"{command.value}_replay", "plan": plan}):
            run = self._supervisor.running_run(plan)
            if command is ReplayCommand.RESUME and run is not None and not _may_resume(run, operator):
                text = (
                    f"The replay writes as {run.by}, for {run.caller}: stop it, and start the plan again as your own "
                    "user. It goes on where it was"
                )
                raise OperationError(HTTPStatus.FORBIDDEN, text)
            return await self._supervisor.command(plan, command, f"stopped by {operator.caller}")

    def _write(self, request: PlanRequested) -> None:
        settings = self._settings()
        ensure_progress_topic(TopicAdmin(settings))
        writer = PlanRecordWriter(settings)
        try:
            writer.write(request)
        finally:
            writer.close()


def _may_resume(run: ReplayRun, operator: Operator) -> bool:
    return operator.caller == run.caller or (operator.bound is not None and operator.principal == run.by)
