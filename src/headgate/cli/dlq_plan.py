"""`headgate dlq plan`: asks the running pipeline for a replay plan, or makes it with `--local`, and shows it.

The request is sent with the credentials of the operator, as a replay is. Spark in this process uses the service account
of the configuration.
"""

import argparse
import getpass
import os
import secrets
from dataclasses import replace

from headgate.base.clock import SystemClock
from headgate.base.errors import ClusterError, UsageError
from headgate.cli import logs
from headgate.cli.cluster_calls import dialler_of, tell
from headgate.cli.columns import json_text
from headgate.cli.dlq_text import plan_document, print_plan
from headgate.cli.escaping import escaped
from headgate.cli.row_text import parse_time
from headgate.config import Config, load
from headgate.config.addresses import Address
from headgate.dead_letters.audit import refresh_audit
from headgate.dead_letters.model.plans import WHERE_COLUMNS, ReplayPlan, ReplayRefusedError, new_plan_id
from headgate.dead_letters.model.where import parse_where
from headgate.dead_letters.plan_store import load_answered_plan, tables_id
from headgate.dead_letters.plan_topic import request_plan
from headgate.dead_letters.progress_topic import ensure_progress_topic
from headgate.facts.plan_requests import PlanOption, PlanRequested
from headgate.kafka.client_properties import librdkafka_settings, read_properties
from headgate.kafka.topics import TopicAdmin, client_settings, list_topics
from headgate.tables.reader import TableReader


def run(args: argparse.Namespace) -> int:
    logs.configure("warning")
    config = load(args.config, os.environ)
    if args.local and (args.bootstrap_server is not None or args.command_config is not None):
        raise UsageError("--local reads with the service account: leave out --bootstrap-server and --command-config")
    asked = _asked(args)
    plan = _make(config, asked) if args.local else _ask(args, config, asked)
    if args.json:
        print(json_text(plan_document(plan)), end="")
    else:
        print_plan(plan, f"headgate dlq replay {plan.plan} --config {args.config} --command-config OPERATOR.properties")
    return 0


def _asked(args: argparse.Namespace) -> PlanRequested:
    """The request; a wrong argument is reported before anything is sent or Spark is started."""
    if args.where is not None:
        parse_where(args.where, WHERE_COLUMNS)
    since, until = (
        None if text is None else parse_time(option, text)
        for option, text in (("--since", args.since), ("--until", args.until))
    )
    if since is not None and until is not None and since >= until:
        raise UsageError("--since must be before --until")
    flags: dict[PlanOption, bool] = {
        "accept_fanout": args.accept_fanout,
        "include_superseded": args.include_superseded,
    }
    now_ms = SystemClock().epoch_ms()
    return PlanRequested(
        at=now_ms,
        request=new_plan_id(now_ms, secrets.token_bytes(6)),
        by=getpass.getuser(),
        group=args.group,
        dlq_topic=args.topic,
        where=args.where,
        since=since,
        until=until,
        episode=args.cluster,
        to=args.to,
        options=tuple(name for name, is_set in flags.items() if is_set),
    )


def _ask(args: argparse.Namespace, config: Config, asked: PlanRequested) -> ReplayPlan:
    if args.bootstrap_server is None:
        args.bootstrap_server = str(Address(config.gateway.advertised_host, config.gateway.listen.port))
    args.timeout = None
    asked = replace(asked, tables=tables_id(config.tables.path))
    dialler = dialler_of(args)
    properties = {} if args.command_config is None else read_properties(args.command_config)
    settings = librdkafka_settings(properties, dialler.bootstrap)
    admin = TopicAdmin(settings)
    try:
        ensure_progress_topic(admin)
        tell("asking the pipeline for the plan")
        answer = request_plan(settings, admin, asked, lambda step: tell(escaped(step)))
    except ClusterError as failure:  # some of the text comes from servers
        raise type(failure)(escaped(str(failure))) from None
    if answer.plan is None:
        lines = (escaped(line) for line in (answer.text or "the plan was refused").split("\n"))
        text = "\n".join(lines)
        raise ClusterError(text) if answer.state == "FAILED" else ReplayRefusedError(text)
    reader = TableReader(config.tables.path)
    try:
        return load_answered_plan(reader, answer.plan, asked)
    finally:
        reader.close()


def _make(config: Config, asked: PlanRequested) -> ReplayPlan:
    # Spark takes a second to import: a wrong argument is reported before.
    from headgate.pipeline.plan_maker import PlanMaker, plan_request_of  # noqa: PLC0415
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
    plan = new_plan_id(asked.at, secrets.token_bytes(2))
    request = plan_request_of(asked, plan=plan, at=asked.at, cluster_id=cluster_id)
    tell("starting Spark")
    session = start_session(config.pipeline.spark, (config.tables.path, config.pipeline.checkpoint))
    try:
        return PlanMaker(config, session, admin, tell).make(request)
    finally:
        end_session(session)
