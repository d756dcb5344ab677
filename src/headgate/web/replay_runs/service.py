"""Plans, replays and the view of records of one web server: all parts together, with their life."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastapi import FastAPI

from headgate.base.clock import Clock
from headgate.config.model import Config
from headgate.dead_letters.model.plans import ReplayRules
from headgate.kafka.shared_clients import SharedClients
from headgate.web.access import AccessControl
from headgate.web.api.answers import Answers
from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.plans import plans_router
from headgate.web.operations import Audit, GatewayAccess, LoginRate, OperationTrail
from headgate.web.record_actions import record_router
from headgate.web.record_view import RecordViewer
from headgate.web.replay_runs.actions import replay_actions_router
from headgate.web.replay_runs.progress import ReplayRecords, ReplayTail
from headgate.web.replay_runs.replay_operations import ReplayOperations
from headgate.web.replay_runs.supervisor import ReplaySupervisor
from headgate.web.replay_runs.view import ReplayView


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayService:
    """`tail` is None in tests that read no topic."""

    gateway: GatewayAccess
    tables: EstateTables
    supervisor: ReplaySupervisor
    operations: ReplayOperations
    viewer: RecordViewer
    view: ReplayView
    clock: Clock
    tail: ReplayTail | None = None

    @classmethod
    def of(
        cls,
        config: Config,
        clients: SharedClients,
        tables: EstateTables,
        audit: Audit,
        clock: Clock,
        logins: LoginRate,
    ) -> "ReplayService":
        """Made on the event loop."""
        gateway = GatewayAccess.of(config)
        records = ReplayRecords()
        supervisor = ReplaySupervisor(clock)
        tail = ReplayTail(clients.bulk_consumer, records)
        trail = OperationTrail(audit, clock)
        operations = ReplayOperations(
            gateway,
            tables=config.tables.path.absolute(),
            rules=ReplayRules(
                topics=config.replay.topics,
                dlq_prefix=config.share_groups.dlq_prefix,
                facts_prefix=config.facts.prefix,
                parking_topic=config.replay.parking_topic,
            ),
            settings=lambda: clients.settings,
            supervisor=supervisor,
            records=records,
            trail=trail,
            clock=clock,
            logins=logins,
        )
        return cls(
            gateway=gateway,
            tables=tables,
            supervisor=supervisor,
            operations=operations,
            viewer=RecordViewer(gateway, trail, clock, logins),
            view=ReplayView(records, supervisor, tail),
            clock=clock,
            tail=tail,
        )

    def add_routers(self, app: FastAPI, access: AccessControl) -> None:
        app.include_router(plans_router(self.tables, Answers(self.tables), access, self.view))
        app.include_router(replay_actions_router(self.tables, self.operations, self.view, access, self.clock))
        app.include_router(record_router(self.tables, self.viewer, access))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read the topic during the block; at its end, replays are stopped after their running transaction."""
        if self.tail is not None:
            self.tail.start()
        try:
            yield
        finally:
            await self.supervisor.close()
            await self.viewer.close()
            if self.tail is not None:
                await self.tail.close()
