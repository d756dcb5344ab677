"""The answers of `/api/v1/plans`, `/plan-requests` and `/replays`, and the bodies of their requests, as schemas."""

from typing import Annotated, Literal

from pydantic import Field

from headgate.dead_letters.replay_run import MOST_RATE
from headgate.web.api.models import ApiModel, Name, Time
from headgate.web.operator_requests import CredentialModel

_MAX_NAME = 4_096
_MAX_WHERE = 8_000
State = Literal["PLANNED", "STARTING", "RUNNING", "PAUSED", "DONE", "FAILED", "ABORTED"]


class PlanModel(ApiModel):
    """A plan, and what its replays have done: `records` and `to_park` are to be written, the next four are left out.

    `readers`: others that read the targets; null for a token with names, which gets no `reasons` either.
    """

    plan: str
    group: str
    to: Name
    targets: list[Name]
    at: Time
    by: str
    records: int
    to_park: int
    expired: int
    superseded: int
    already_replayed: int
    over_max_replays: int
    reasons: dict[str, int]
    readers: list[str] | None
    oldest_at: Time | None
    state: State
    written: int
    parked: int
    skipped: int


class PlansModel(ApiModel):
    """`problem`: why states and counts may not be up to date."""

    plans: list[PlanModel]
    truncated: bool
    problem: str | None


class PlannedRecordModel(ApiModel):
    """A dead letter of a plan in the order of the replay, without its payload."""

    position: int
    topic: Name
    partition: int
    offset: int
    action: Literal["replay", "park", "leave_out"]
    why: str | None
    reason: str | None
    target_topic: Name
    target_partition: int | None


class PlanDetailModel(PlanModel):
    """`next`: the position after which the next page begins."""

    selection: dict[str, str] | None
    notes: list[str]
    rows: list[PlannedRecordModel]
    next: int | None


class PlanRequestModel(ApiModel):
    """`text`: the current step, or why there is no plan; several lines."""

    request: str
    state: Literal["WAITING", "RUNNING", "DONE", "REFUSED", "FAILED"]
    plan: str | None
    text: str | None
    group: Name
    at: Time
    by: str


class PlanRequestedModel(ApiModel):
    request: str


class DryRunModel(ApiModel):
    """The last dry run by this server: what a replay would do."""

    state: State
    written: int
    parked: int
    skipped: int
    reasons: dict[str, int]
    stopped_by: str | None
    error: str | None


class ReplayModel(ApiModel):
    """`here`: a process of this server runs it. `go_on`: how to go on where none does."""

    plan: str
    group: Name
    to: Name
    state: State
    written: int
    parked: int
    skipped: int
    records: int | None
    at: Time
    by: str | None
    here: bool
    rate: float | None
    timestamp: Literal["original", "now"] | None
    stopped_by: str | None
    error: str | None
    reasons: dict[str, int]
    notes: list[str]
    go_on: str | None
    dry_run: DryRunModel | None


class ReplaysModel(ApiModel):
    replays: list[ReplayModel]
    truncated: bool
    running: int
    most: int
    problem: str | None


class PlanBodyModel(ApiModel):
    """Either `group` or `topic`; `cluster` is the id of an episode of `/api/v1/clusters`."""

    group: str | None = Field(default=None, max_length=_MAX_NAME)
    topic: str | None = Field(default=None, min_length=1, max_length=249)
    to: str = Field(min_length=1, max_length=249, description="original, or a topic")
    where: str | None = Field(default=None, max_length=_MAX_WHERE, description="as `headgate dlq plan --where`")
    since: int | Annotated[str, Field(max_length=64)] | None = None
    until: int | Annotated[str, Field(max_length=64)] | None = None
    cluster: str | None = Field(default=None, max_length=100)
    accept_fanout: bool = False
    include_superseded: bool = False


class ReplayBodyModel(ApiModel):
    plan: str = Field(min_length=1, max_length=64)
    rate: float | None = Field(default=None, gt=0, le=MOST_RATE, description="records a second; null for no limit")
    timestamp: Literal["original", "now"] = "original"
    dry_run: bool = False
    credential: CredentialModel | None = None


class AbortBodyModel(ApiModel):
    credential: CredentialModel | None = None


class EmptyBodyModel(ApiModel):
    """An empty body of JSON, which no form of another site can send."""
