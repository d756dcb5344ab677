"""The answers about share groups, for the OpenAPI document and the tests; see `models.py`."""

from typing import Annotated

from pydantic import Field

from headgate.web.api.models import ApiModel, Name, Time, TopicUseModel


class PauseReasonModel(ApiModel):
    code: str | None
    text: str | None
    by: str | None
    since: Time | None


class ShareGroupRowModel(ApiModel):
    """State as gateways decided it; null where this process does not read it."""

    name: str
    managed: bool | None
    breaker_enabled: bool | None
    paused: bool | None
    tripped: bool | None
    pause_reasons: list[PauseReasonModel]
    generation: int | None
    auto_resume_at: Time | None
    dlq_topic: str | None
    dlq_topic_hidden: bool


class ShareGroupsModel(ApiModel):
    """`problem` says why the state may be missing or old; null if it is current."""

    share_groups: list[ShareGroupRowModel]
    count: int
    next: str | None
    problem: str | None


class BreakerSettingsModel(ApiModel):
    breaker_enable: bool
    threshold_percent: int
    window_ms: int
    min_messages: int
    auto_resume_enable: bool
    auto_resume_ms: int
    write_timeout_ms: int
    strict_isolation: bool
    copy_record: bool
    limit: int | None


class RateModel(ApiModel):
    minute: Time
    processed: int
    dead_lettered: int
    dlq_rate: float | None


class BreakerEventModel(ApiModel):
    event_id: str
    event: str
    at: Time
    by: str | None
    reason: str | None
    generation: int | None
    dlq_written: int | None
    delivered: int | None
    threshold_percent: int | None
    window_ms: int | None
    resume_at: Time | None


class ShareGroupModel(ShareGroupRowModel):
    settings: BreakerSettingsModel | None
    dlq_topic_shared_with: list[Name]
    reads: list[TopicUseModel]
    rates: list[RateModel]
    events: list[BreakerEventModel]
    problem: str | None


class BacktestConfigModel(ApiModel):
    threshold_percent: int
    window_ms: int
    min_messages: int
    trips: int
    paused_s: int
    avoided: int
    false_trips: int


class BacktestModel(ApiModel):
    group: str
    days: int
    configs: list[BacktestConfigModel]
    recommended: int | None
    live: int | None
    from_: Annotated[Time, Field(alias="from")]
    left_out_s: int
