"""Plans and replays of the application without a cluster: a replay process of a few lines, and no topic."""

import sys
from typing import Any, NoReturn

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.dead_letters.model.plans import ReplayRules
from headgate.web.api.estate_tables import EstateTables
from headgate.web.operations import Audit, GatewayAccess, LoginRate, OperationTrail
from headgate.web.record_view import RecordViewer
from headgate.web.replay_runs.progress import ReplayRecords
from headgate.web.replay_runs.replay_operations import ReplayOperations
from headgate.web.replay_runs.service import ReplayService
from headgate.web.replay_runs.supervisor import ReplaySupervisor
from headgate.web.replay_runs.view import ReplayView

# Says what it was given but the password, then obeys; the words are those of `child.py`.
PROCESS = """
import json, os, sys
job = json.loads(sys.stdin.readline())
secret = (job["credentials"] or {}).get("password", "none")
seen = secret in " ".join(sys.argv) + repr(dict(os.environ))
def say(event, state, **more):
    known = {"written": 1, "parked": 0, "skipped": 0, "reasons": {}, "stopped_by": None}
    print(json.dumps(known | {"event": event, "state": state} | more), flush=True)
if job["kind"] == "abort":
    say("ended", "ABORTED", written=2)
    sys.exit(0)
if job["plan"] == "broken":
    sys.exit(3)
if job["plan"] == "refused":
    print(json.dumps({"event": "failed", "error": "the topic shop.x does not exist"}), flush=True)
    sys.exit(1)
print(json.dumps({"event": "note", "text": f"seen {seen} by {job['by']} at {job['rate']}"}), flush=True)
say("progress", "RUNNING")
for line in sys.stdin:
    if job["plan"] == "hung":
        continue
    word, _, why = line.strip().partition(" ")
    if word == "stop":
        say("ended", "PAUSED", stopped_by=why)
        sys.exit(0)
    say("progress", {"pause": "PAUSED", "resume": "RUNNING"}[word], written=2)
say("ended", "PAUSED", stopped_by="the web server ended")
"""


def _no_cluster() -> NoReturn:
    raise ClusterError("no cluster is here")


def replay_service(
    tables: EstateTables, gateway: GatewayAccess, audit: Audit, clock: Clock, **limits: Any
) -> ReplayService:
    records = ReplayRecords()
    supervisor = ReplaySupervisor(clock, (sys.executable, "-S", "-E", "-c", PROCESS), **limits)
    trail, logins = OperationTrail(audit, clock), LoginRate(clock)
    operations = ReplayOperations(
        gateway,
        tables=tables.root,
        rules=ReplayRules(topics=("orders",), dlq_prefix="dlq.", facts_prefix="headgate."),
        settings=_no_cluster,
        supervisor=supervisor,
        records=records,
        trail=trail,
        clock=clock,
        logins=logins,
    )
    return ReplayService(
        gateway=gateway,
        tables=tables,
        supervisor=supervisor,
        operations=operations,
        viewer=RecordViewer(gateway, trail, clock, logins),
        view=ReplayView(records, supervisor),
        clock=clock,
    )
