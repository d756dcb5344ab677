"""Reads plans from their tables, and the limits of the topics that they write to from the cluster.

Everyone who may ask for a plan may write an answer too, and could name a plan of other records. What a plan was made
for is in its table, which only the pipeline writes: that is compared with the request.
"""

import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from headgate.base.errors import ClusterError, UsageError
from headgate.base.locations import Location
from headgate.dead_letters.model.plans import (
    WHERE_COLUMNS,
    PlanMismatchError,
    PlanNotFoundError,
    PlanRecord,
    ReplayPlan,
    ReplayRefusedError,
    ReplayRules,
)
from headgate.dead_letters.model.target_limits import TargetLimits, limits_of
from headgate.dead_letters.model.where import parse_where, where_text
from headgate.facts.plan_requests import PlanRequested
from headgate.facts.replays import PROGRESS_TOPIC
from headgate.kafka.topics import TopicAdmin, reason
from headgate.tables.definitions import TABLES
from headgate.tables.reader import Condition, TableReader
from headgate.tables.storage import StoredTable

_CALL_S: Final = 30.0
_AT_ONCE: Final = 10_000
_LONGEST_ID: Final = 64
_PLANS: Final = TABLES["replay_plans"]
_RECORDS: Final = TABLES["replay_plan_records"]
_FIELDS: Final = tuple(PlanRecord.__dataclass_fields__)


def load_plan(reader: TableReader, plan: str) -> ReplayPlan:
    row = _plan_row(reader, plan)
    if row is None:
        raise PlanNotFoundError(f"there is no plan {plan}: `headgate tables show replay_plans` lists them")
    return plan_of_row(row)


def load_answered_plan(reader: TableReader, plan: str, request: PlanRequested) -> ReplayPlan:
    """The plan that an answer to the request names; `PlanMismatchError` unless it was made for this request."""
    is_id = len(plan) <= _LONGEST_ID and plan.isascii() and plan.isprintable()
    row = _plan_row(reader, plan) if is_id else None
    if row is None or row["to"] != request.to or json.loads(row["selection"]) != kept_request(request):
        named = f"the plan {plan}" if is_id else "a plan"
        what = "which the tables here do not have" if row is None else "which was made for another request"
        raise PlanMismatchError(
            f"the answer names {named}, {what}: do not replay it. Another principal may have written the answer: see "
            f"who may write {PROGRESS_TOPIC}, and ask again"
        )
    return plan_of_row(row)


def kept_request(request: PlanRequested) -> dict[str, str]:
    """What is kept of a request with its plan. A `where` that is no expression has no plan, and stays as it is."""
    kept = request.asked() | {"request": request.request}
    with suppress(UsageError):
        if request.where is not None:
            kept["where"] = where_text(parse_where(request.where, WHERE_COLUMNS))
    return kept


def tables_id(root: Location) -> str | None:
    """What tells these tables from others, by whatever path they are reached; None without `dead_letters`."""
    delta = StoredTable(root, TABLES["dead_letters"]).newest()
    return None if delta is None else str(delta.metadata().id)


def _plan_row(reader: TableReader, plan: str) -> dict[str, Any] | None:
    found = reader.rows(_PLANS, where=[Condition("plan", "=", plan)], limit=2).rows
    return found[0] if len(found) == 1 else None


def plan_of_row(row: dict[str, Any]) -> ReplayPlan:
    as_json = {name: json.loads(row[name]) for name in ("targets", "reasons")}
    plain = {name: row[name] for name in ReplayPlan.__dataclass_fields__ if name not in {"readers", *as_json}}
    return ReplayPlan(**plain, **as_json, readers=tuple(json.loads(row["readers"])))


def plan_records(reader: TableReader, plan: ReplayPlan) -> Iterator[PlanRecord]:
    """The records of the plan that are to be written, in its order.

    They are read in parts, because a slow replay lasts longer than the files of one version of a table are kept.
    """
    position = 0
    while True:
        where = [
            Condition("cluster_id", "=", plan.cluster_id),
            Condition("plan", "=", plan.plan),
            Condition("action", "!=", "leave_out"),
            Condition("position", ">=", position),
        ]
        found = reader.rows(_RECORDS, where=where, columns=_FIELDS, limit=_AT_ONCE)
        for row in found.rows:
            yield PlanRecord(**row)
        if not found.more:
            return
        position = found.rows[-1]["position"] + 1


def check_targets(plan: ReplayPlan, rules: ReplayRules, admin: TopicAdmin) -> dict[str, TargetLimits]:
    """The limits of the plan's targets; a `ReplayRefusedError` when one of them may not be written to."""
    try:
        cluster = admin.client.list_topics(timeout=_CALL_S).cluster_id or ""
    except KafkaException as failure:
        raise ClusterError(f"the cluster cannot be reached: {reason(failure)}") from None
    if cluster != plan.cluster_id:
        raise ReplayRefusedError(f"plan {plan.plan} is for the cluster {plan.cluster_id}, and this one is {cluster}")
    for topic in plan.targets:
        refused = rules.parking_refusal() if topic == rules.parking_topic else rules.target_refusal(topic)
        if refused is not None:
            raise ReplayRefusedError(refused)
    ids = admin.ids(list(plan.targets), timeout_s=_CALL_S)
    for topic, topic_id in plan.targets.items():
        if topic not in ids:
            raise ReplayRefusedError(f"the topic {topic} does not exist, or the operator may not describe it")
        if ids[topic] != topic_id:
            raise ReplayRefusedError(f"the topic {topic} was created again since the plan was made: make a new plan")
    return topic_limits(admin, plan.targets)


def topic_limits(admin: TopicAdmin, topics: Collection[str]) -> dict[str, TargetLimits]:
    """The limits of these topics; `ClusterError` when their configs cannot be read."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    found: dict[str, TargetLimits] = {}
    for resource, described in admin.client.describe_configs(resources, request_timeout=_CALL_S).items():
        try:
            configs = described.result(_CALL_S)
        except KafkaException as failure:
            raise ClusterError(
                f"the configs of the topic {resource.name} cannot be read: {reason(failure)}. The operator needs "
                "DESCRIBE_CONFIGS on it"
            ) from None
        found[resource.name] = limits_of(resource.name, {name: entry.value for name, entry in configs.items()})
    return found
