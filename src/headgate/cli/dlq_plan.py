"""`headgate dlq plan`: makes a replay plan on Spark, with the service account, and shows it."""

import argparse
import getpass
import os
import secrets

from headgate.base.clock import SystemClock
from headgate.base.errors import ClusterError, UsageError
from headgate.cli import logs
from headgate.cli.cluster_calls import tell
from headgate.cli.columns import json_text
from headgate.cli.dlq_text import plan_document, print_plan
from headgate.cli.row_text import parse_time
from headgate.config import Config, load
from headgate.dead_letters.audit import refresh_audit
from headgate.dead_letters.model.plans import WHERE_COLUMNS, ReplayPlan, new_plan_id
from headgate.dead_letters.model.where import Where, parse_where, where_text
from headgate.kafka.topics import TopicAdmin, client_settings, list_topics


def run(args: argparse.Namespace) -> int:
    logs.configure("warning")
    config = load(args.config, os.environ)
    where = None if args.where is None else parse_where(args.where, WHERE_COLUMNS)
    since, until = (
        None if text is None else parse_time(option, text)
        for option, text in (("--since", args.since), ("--until", args.until))
    )
    if since is not None and until is not None and since >= until:
        raise UsageError("--since must be before --until")
    plan = _make(args, config, where, since, until)
    if args.json:
        print(json_text(plan_document(plan)), end="")
    else:
        print_plan(plan, f"headgate dlq replay {plan.plan} --config {args.config} --command-config OPERATOR.properties")
    return 0


def _make(
    args: argparse.Namespace, config: Config, where: Where | None, since: int | None, until: int | None
) -> ReplayPlan:
    # Spark takes a second to import: a wrong argument is reported before.
    from headgate.pipeline.plan_maker import PlanMaker, PlanRequest  # noqa: PLC0415
    from headgate.pipeline.replay_plans import PlanSelection  # noqa: PLC0415
    from headgate.pipeline.session import end_session, start_session  # noqa: PLC0415

    settings = client_settings(config.upstream)
    admin = TopicAdmin(settings)
    cluster_id = list_topics(settings).cluster
    try:
        refresh_audit(config.tables.path, settings, admin, cluster_id)
    except ClusterError as failure:
        raise ClusterError(
            f"{failure}. Without it, records could be replayed twice: grant the service account READ on it"
        ) from None
    now_ms = SystemClock().epoch_ms()
    options = {name: getattr(args, name) for name in ("group", "topic", "since", "until", "cluster")}
    asked = {name: value for name, value in options.items() if value is not None}
    request = PlanRequest(
        plan=new_plan_id(now_ms, secrets.token_bytes(2)),
        at=now_ms,
        by=getpass.getuser(),
        to=args.to,
        selection=PlanSelection(
            cluster_id=cluster_id,
            group=args.group,
            dlq_topic=args.topic,
            where=where,
            since=since,
            until=until,
            episode=args.cluster,
        ),
        asked=asked | ({} if where is None else {"where": where_text(where)}),
        accept_fanout=args.accept_fanout,
        include_superseded=args.include_superseded,
    )
    tell("starting Spark")
    session = start_session(config.pipeline.spark)
    try:
        return PlanMaker(config, session, admin, tell).make(request)
    finally:
        end_session(session)
