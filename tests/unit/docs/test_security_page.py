"""`docs/security.md` has one table a section; the tests that it names exist, and its numbers are those of the code."""

import re
from pathlib import Path

import pytest

from headgate.activity import connect_recorder, topic_resolver
from headgate.base import pipe_limits
from headgate.cli import log_writer, topology_files, worker
from headgate.config import Config
from headgate.dead_letters import progress_topic
from headgate.dead_letters.model import where
from headgate.facts import plan_requests as plan_request_facts
from headgate.kafka import connections, fact_reader
from headgate.lags.model import round_plan
from headgate.pipeline import pipeline_lock, plan_requests
from headgate.proxy import (
    advertising,
    chain,
    connection,
    decoding,
    gather_budget,
    listeners,
    metric_series,
    requests,
    tls,
    worker_reports,
)
from headgate.share_groups import (
    acknowledgements,
    config_interceptors,
    dead_letter_delivery,
    dead_letter_reports,
    deferred_acks,
    fact_outbox,
    group_start,
    record_lookup,
    reserved_names,
    resources,
    share_interceptor,
    state_recovery,
)
from headgate.share_groups.model import in_flight_shares
from headgate.share_groups.spool import mover, parking, readers, transfer, writer
from headgate.share_groups.spool.model import records, routes
from headgate.topologies import delete_interceptor, describe_interceptor, heartbeat_interceptor
from headgate.topologies.model import group_members, push_rate, topology_mismatches, topology_pictures
from headgate.topologies.older_clients import assignment_recorder, classic_interceptor
from headgate.topologies.tasks import group_tasks, task_watch
from headgate.web import client_connections, live_feed, operations, operator_requests, record_view
from headgate.web.api import estate_tables
from headgate.web.replay_runs import supervisor
from headgate.wire import splice, walk
from tests.support import hostile_campaign

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
HEAD = "| who | may or can do | bound | test |"
TEST = re.compile(r"`(test_\w+)`")
GATEWAY = Config().gateway
LAGS = round_plan.RoundLimits()


def test_each_section_has_one_table_and_each_row_names_a_test() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    assert [section[:2] for section in sections] == ["A.", "B.", "C.", "D.", "E.", "F.", "G."]
    for section in sections:
        head, line, *rows = [row for row in section.splitlines() if row.startswith("|")]
        assert (head, line) == (HEAD, "|---|---|---|---|")
        assert [row for row in rows if not TEST.search(row.split(" | ")[-1]) or row.count(" | ") != 3] == []


def test_every_test_that_the_page_names_exists() -> None:
    named = set(TEST.findall(PAGE))
    defined = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
    }
    assert len(named) > 25
    assert named - defined == set()


def size(number: int) -> str:
    mib, rest = divmod(number, 1024 * 1024)
    return f"{mib} MiB" if not rest else f"{number // 1024} KiB"


@pytest.mark.parametrize(
    "words",
    [
        f"`gateway.max_connections` ({GATEWAY.max_connections:,}) in all",
        f"{listeners._FREE_SHARE - 1} of {listeners._FREE_SHARE}, the oldest unproved connection is closed",
        f"{size(connection._UNAUTHENTICATED_BYTES)} before the connection is proved, `gateway.max_frame_bytes`",
        f"`gateway.max_frame_bytes` ({size(GATEWAY.max_frame_bytes)}) after",
        f"send an ApiVersions request | {size(advertising.ApiVersionsInterceptor.max_bytes)} |",
        f"`gateway.first_request_ms` ({GATEWAY.first_request_ms:,}), without a connection",
        f"{connection.PROOF_PERIODS} x `gateway.first_request_ms`",
        f"`gateway.idle_ms` ({GATEWAY.idle_ms:,})",
        f"`gateway.max_unproved_connections` ({GATEWAY.max_unproved_connections:,}) in all",
        f"`gateway.max_unproved_connections_per_address` ({GATEWAY.max_unproved_connections_per_address:,}) for",
        f"share one of {listeners._BUCKETS:,} counters depends on a key",
        f"{size(chain.LARGEST_UNPROVED)}; larger ones wait for the answer to a probe",
        f"ApiVersions has at most {size(requests._LARGEST_UNPROVED_HANDSHAKE)} |",
        f"{splice.MOST_PARTS:,} nodes, {splice.NODES_A_STEP} at a time; {splice.MOST_ENDPOINTS:,} in NodeEndpoints",
        f"{walk.MOST_FIELDS_IN_ALL:,} tagged fields in a response that passes",
        f"one thread, {worker._SWITCH_INTERVAL_S * 1000:g} ms a turn",
        f"the {topic_resolver._MOST_TOPICS:,} topics used last are remembered",
        f"{size(share_interceptor.ShareInterceptor.max_bytes)} a request; over {size(decoding.SMALL_BYTES)} off",
        f"| {config_interceptors._MAX_GROUPS} groups a request |",
        f"once in {group_start._KEPT_S:g} seconds for each other group, {group_start._MAX_EARLIER} groups of a topic",
        f"not decoded within {decoding.DECODE_SECONDS:g} s, ends the connection",
        f"| {size(config_interceptors.AlterConfigsInterceptor.max_bytes)}, over {size(decoding.SMALL_BYTES)} read",
        f"before the connection is proved {size(connection._UNAUTHENTICATED_BYTES)}, a larger one passes unopened",
        f"| {size(heartbeat_interceptor.HeartbeatInterceptor.max_bytes)}, over {size(decoding.SMALL_BYTES)} decoded",
        f"event loop; over {size(connection._UNAUTHENTICATED_BYTES)} only after the connection is proved",
        f"| {size(delete_interceptor.DeleteGroupsInterceptor.max_bytes)} of names;",
        f"| {size(describe_interceptor.DescribeInterceptor.max_bytes)} of names;",
        f"one description in {task_watch.BETWEEN_S:g} s, or in {task_watch.SECONDS_PER_MEMBER:g} s for each member",
        f"of at most {group_tasks.MAX_TASKS:,} tasks",
        f"names are labels of at most {topology_pictures._LONGEST_LABEL} characters",
        f"a text has at most {size(topology_files._LARGEST_TEXT)}",
        f"{log_writer._MOST_LINES:,} lines or {size(log_writer._MOST_BYTES)} wait",
        f"{log_writer._LINES_PER_WINDOW} lines in {log_writer._WINDOW_S:g} s for each event and cause, ",
        f"for each event and cause, {log_writer._MOST_CAUSES:,} causes",
        f"{size(tls._SEALED_AT_ONCE)} are encrypted at once",
        f"{pipe_limits.MOST_PIPES} pipes of {size(pipe_limits.PIPE_BYTES)} a worker",
        f"{LAGS.groups:,} groups, {LAGS.partitions:,} partitions and {size(LAGS.fact_bytes)} of facts a round",
        f"responses up to {size(connections._LARGEST_ANSWER)}, decoded off the event loop",
        f"joins up to {size(assignment_recorder.MAX_BYTES)}, {size(assignment_recorder.MAX_WAITING_BYTES)} of them",
        f"{size(classic_interceptor.MAX_HELD_BYTES)} of a worker's classic groups",
        f"{group_members.MAX_MEMBERS:,} members and {topology_mismatches.MAX_LISTED} names in an event",
        f"{dead_letter_reports._MAX_LOGGED} partitions a second; names are escaped",
        f"{connect_recorder._MOST_PENDING:,} uses wait for each",
        f"`share_groups.hold_max_ms` ({Config().share_groups.hold_max_ms} ms) for the first",
        f"its lanes alone: {transfer.WRITE_S:g} s once, then one dead letter of each of {mover._TOPIC_PROBES} lanes",
        f"lanes at a time; {mover._MAX_PROBES} in all",
        f"{readers._READ_S:g} s once in {transfer._UNREAD_S:g} s, and its own lanes",
        f"the leader reads {transfer._SLOTS} times {size(transfer.BATCH_BYTES)}, or one dead letter each",
        f"up to {mover._MAX_UNREMOVED + mover._BATCH_DEAD_LETTERS:,} are written twice",
        f"{parking._PARKED_DEAD_LETTERS} of a topic in {'a minute' if parking._PARKED_S == 60 else '?'}, until one is",
        f"that group, {config_interceptors._MAX_PARKED_CHARACTERS:,} characters",
        f"{acknowledgements._MAX_ACQUIRED_RANGES:,} ranges a worker, of 200 bytes",
        f"all are {acknowledgements.KEPT_S:,.0f} s after their locks have ended",
        f"never later than {acknowledgements._LOCK_MARGIN_S:g} s before its lock ends",
        f"the last {resources.EVENT_HISTORY:,} events of each partition are read",
        f"by the others after {state_recovery.OTHERS_WRITE_AFTER_S:g} s",
        f"{fact_reader.FactReader.look_s:g} s: the id and the first offset of the topic are compared",
        f"{fact_reader.FactReader.look_s:g} s: the first offsets of all partitions are compared",
        f"others take it over after {pipeline_lock.EXPIRES_S:g} s",
        f"{client_connections.MOST} connections are served, {client_connections.MOST_OF_ONE_ADDRESS} of one address",
        f"{client_connections.HEAD_S:g} s for a handshake or the head of a request, ",
        f"{client_connections.BODY_S:g} s for its body, {client_connections.UNREAD_S:g} s without reading",
        f"{'four' if estate_tables._THREADS == 4 else '?'} threads, {estate_tables._MOST_WAITING} requests and",
        f"requests and {estate_tables._MOST_LOADS} loads of graphs wait",
        f"{operations._MOST_OF_ONE} failed logins a minute over operations of all kinds",
        f"over operations of all kinds, {operations._MOST} of all callers",
        f"{operations._MOST_OF_ONE} operations a minute of each kind ({record_view._MOST_OF_ONE} views of records)",
        f"{live_feed._QUEUE} events a listener",
        f"{where.MAX_CHARACTERS:,} characters of `where`, {size(plan_request_facts.MAX_REQUEST_BYTES)} a request",
        f"one plan at a time, {plan_requests.MOST_WAITING} wait, {plan_requests._MOST_KNOWN:,} are known",
        f"| {progress_topic._SILENCE_S:g} s; the end of the pipeline does not wait for it",
        f"text or hexadecimal digits, {size(record_view.MAX_VALUE)} of a value",
        f"{dead_letter_delivery.MAX_OFFSETS:,} offsets a request",
        f"{acknowledgements.MAX_UNKNOWN_OFFSETS:,} a second for each connection",
        f"{in_flight_shares.MAX_DEAD_LETTERS:,} dead letters and {size(in_flight_shares.MAX_BYTES)} a worker",
        f"{size(record_lookup.MAX_BYTES)} a worker; when it is full, the group with the most bytes loses its oldest",
        f"{size(fact_outbox.MAX_WAITING_BYTES)} of each a worker",
        f"{deferred_acks.MAX_RANGES:,} ranges a member, {deferred_acks.MAX_MEMBERS:,} members a worker",
        f"may have {config_interceptors._MOST_PARTS:,} resources and configs in all",
        f"describes more than {config_interceptors._MOST_DESCRIBED:,} resources gets the broker's configs alone",
        f"those of Headgate are added to {decoding.A_STEP} groups at a time",
        f"looked at {describe_interceptor._STEP} at a time, or {decoding.A_STEP} share groups or statuses at a time",
        f"looked at {delete_interceptor._STEP} at a time",
        f"than the received bytes and {size(hostile_campaign._ALLOWANCE)}, and a second wave",
        f"leaves no more than {size(hostile_campaign._GROWTH)}. An attack",
        f"more than {'a tenth' if hostile_campaign._STARVED_SHARE == 0.1 else '?'} of the time",
        f"at most {'twice' if hostile_campaign.Limits().p99_ratio == 2 else '?'} the greater of their quiet p99",
        f"more than {size(reserved_names.LARGEST_DECODED)} with such a name",
        f"{push_rate.AT_ONCE} at once and then one every {push_rate.REFILL_S:g} s",
        f"{size(gather_budget.RESPONSE_BYTES)} a worker, all clients together",
        f"{size(gather_budget.REQUEST_BYTES)} a worker; {size(gather_budget.UNPROVED_REQUEST_BYTES)} for connections",
        f"frames up to {size(gather_budget.FREE_BYTES)} never wait",
        f"{gather_budget.PATIENCE_S:g} s while another waits for the memory",
        f"{metric_series.MOST_SERIES:,} series for each family, {metric_series.LONGEST_LABEL} characters",
        f"{size(worker_reports.LARGEST_REPORT)} for each report of a worker",
        f"{size(worker_reports.LARGEST_LINE)}; a longer one is skipped",
        f"{size(records.MAX_GROUP_SPOOL_BYTES)} a group; further records",
        f"{routes.MAX_UNREAD:,} that were not read back",
        f"{writer.ANSWER_S * 1000:.0f} ms for all in-sync replicas of a partition",
        f"{writer.PATIENCE_S:g} s once, and then",
        f"| {size(operator_requests.MAX_BODY)} |",
        f"{live_feed.MAX_LISTENERS} listeners, {live_feed.MAX_OF_ONE_CALLER} of a caller",
        f"| {supervisor.MOST_RUNNING} replays |",
    ],
)
def test_the_numbers_are_those_of_the_code(words: str) -> None:
    assert words in PAGE


def test_the_latency_under_an_unbounded_attack_is_that_of_the_last_soak() -> None:
    soak = (ROOT / "bench" / "SOAK.md").read_text("utf-8")
    found = re.search(r"^\| mutated, full speed \| [\d.]+ \| [\d.]+ \| ([\d.]+) \|", soak, re.MULTILINE)
    assert found is not None
    assert f"the p99 of another client was {float(found[1]):.0f} ms (`bench/SOAK.md`)" in PAGE
