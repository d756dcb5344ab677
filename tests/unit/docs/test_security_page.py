"""`docs/security.md` has one table a section; the tests that it names exist, and its numbers are those of the code."""

import re
from pathlib import Path

import pytest

from headgate.proxy import decoding, gather_budget, metric_series, worker_reports
from headgate.share_groups import (
    acknowledgements,
    config_interceptors,
    dead_letter_delivery,
    deferred_acks,
    fact_outbox,
    record_lookup,
    reserved_names,
)
from headgate.share_groups.model import in_flight_shares
from headgate.share_groups.spool import writer
from headgate.share_groups.spool.model import records, routes
from headgate.topologies import delete_interceptor, describe_interceptor
from headgate.topologies.model import push_rate
from headgate.web import live_feed, operator_requests
from headgate.web.replay_runs import supervisor
from tests.support import hostile_campaign

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
HEAD = "| who | may or can do | bound | test |"
TEST = re.compile(r"`(test_\w+)`")


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
        f"{dead_letter_delivery.MAX_OFFSETS:,} offsets a request",
        f"{acknowledgements.MAX_UNKNOWN_OFFSETS:,} a second for each connection",
        f"{in_flight_shares.MAX_LETTERS:,} dead letters and {size(in_flight_shares.MAX_BYTES)} a worker",
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
