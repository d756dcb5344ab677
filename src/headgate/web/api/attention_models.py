"""The answers of `/api/v1/attention` as schemas of the OpenAPI document."""

from typing import Annotated, Any, Literal

from pydantic import Field

from headgate.web.api.models import ApiModel, Kind, MismatchModel, Name, Time
from headgate.web.api.share_group_models import PauseReasonModel


class CauseModel(ApiModel):
    """An earlier change: a cause of a trip has a likelihood, any other change has none."""

    what: str
    subject_kind: Kind
    subject: Name
    topic: Name
    at: Time
    likelihood: str | None
    detail: Annotated[Any, Field(description="further fields of the change; null where it has more than 8 KiB")]


class NewGapModel(ApiModel):
    kind: str
    topic: Name
    direction: str
    opened_at: Time


class AttentionItemModel(ApiModel):
    """One thing that needs attention. Fields that do not belong to its kind are null or empty.

    `points` are by minute, oldest first: of a paused group its share of dead letters, of growth the figure that grew.
    """

    kind: Literal["paused", "dead_letters", "mismatch", "lag", "gaps"]
    state: Literal["stopped", "attention"]
    subject_kind: Kind
    subject: str
    since: Time | None
    tripped: bool
    pause_reasons: list[PauseReasonModel]
    auto_resume_at: Time | None
    now: Annotated[int | None, Field(description="dead letters of the last hour, or the lag")]
    before: Annotated[int | None, Field(description="dead letters of the hour before, or the lag 30 minutes ago")]
    mismatch: MismatchModel | None
    gaps: list[NewGapModel]
    gap_count: int
    points: list[float]
    causes: list[CauseModel]
    causes_left_out: int


class AttentionCountsModel(ApiModel):
    """The numbers of all items that the caller may see; null where a number is not known."""

    paused: int | None
    mismatches: int | None
    new_gaps: int | None
    older_gaps: int | None
    dead_letters_hour: int | None
    dead_letters_before: int | None
    growing_lags: int | None


class WatchedModel(ApiModel):
    """Counts of what is watched; null where nothing is."""

    share_groups: int | None
    applications: int | None
    topics: int | None
    groups_with_lags: int | None


class AttentionModel(ApiModel):
    items: list[AttentionItemModel]
    counts: AttentionCountsModel
    watched: WatchedModel
    missing: Annotated[list[str], Field(description="tables that do not exist yet")]
    incomplete: Annotated[list[str], Field(description="tables with too many rows to read them whole")]
    problem: Annotated[str | None, Field(description="why the state of share groups may be missing or old")]
    truncated: bool
