"""The answers of `/api/v1/clusters` and `/api/v1/dead-letters` as schemas of the OpenAPI document."""

from typing import Annotated, Any, Literal

from pydantic import Field

from headgate.web.api.models import ApiModel, Name, Time


class DeadLetterClusterModel(ApiModel):
    """An episode in which records of a group became dead letters, as `headgate dlq triage --json` has it."""

    id: str
    group: str
    verdict: Literal["insufficient", "member", "content", "outage", "poison", "mixed"]
    action: str
    count: int
    first_at: Time
    last_at: Time
    ended_at: Time | None
    topics: list[str]
    member: str | None
    feature: str | None
    evidence: Annotated[dict[str, Any] | None, Field(description="the numbers; null for a token with names")]
    points: Annotated[list[int], Field(description="dead letters of the group by time; empty where none are counted")]
    points_from: Annotated[Time | None, Field(description="the beginning of the first of them")]
    points_ms: Annotated[int | None, Field(description="how long each of them is")]


class DeadLetterClustersModel(ApiModel):
    clusters: list[DeadLetterClusterModel]
    truncated: bool


class DeadLetterModel(ApiModel):
    """A dead letter without its payload, with the columns of the table `dead_letters`."""

    topic: Name
    topic_id: str
    partition: int
    offset: int
    dlq_topic: Name
    dlq_partition: int
    dlq_offset: int
    dead_lettered_at: Time
    format: str
    reason: str | None
    exception: str | None
    member: str | None
    delivery_count: int | None
    copied: bool
    source_state: str
    source_at: Time | None
    key_hash: str | None
    schema_id: int | None
    type_header: str | None
    size_bytes: int | None
    copies: int
    letter_expires_at: Time | None
    source_expires_at: Time | None
    cluster: str | None
    problem: str | None


class DeadLetterCountsModel(ApiModel):
    """Counts of the records of dead letters that can still be had, as in `headgate dlq triage --json`."""

    letters: int
    readable: Annotated[int, Field(description="a plan takes them, and their record can be read")]
    gone: Annotated[int, Field(description="gone at their source, and the dead letter has no copy")]
    unknown: Annotated[
        int,
        Field(description="no copy, and the service account may not read the source or has not yet; a plan takes them"),
    ]
    unplannable: Annotated[int, Field(description="they do not identify their record, so that no plan replays them")]
    expire_soon: Annotated[int, Field(description="of the readable ones: within 24 hours, to the hour")]
    next_expiry: Annotated[Time | None, Field(description="when the first of them expires; null for never")]
    problems: int


class DeadLettersModel(ApiModel):
    """`records` are those of all of these dead letters, also where not all are listed."""

    group: str
    letters: list[DeadLetterModel]
    count: int
    truncated: bool
    records: DeadLetterCountsModel
