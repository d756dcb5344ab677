"""The answers of `/api/v1` as models: they are the schemas of the OpenAPI document.

Answers are written as they are made and not passed through these models, which would take longer than making them;
tests compare the two. Times are epoch milliseconds.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Time = Annotated[int, Field(description="epoch milliseconds")]
Kind = Annotated[str, Field(description="topic, streams, spark, connector, share_group, consumer_group, client, ...")]
Name = Annotated[str | None, Field(description="null where the caller may not see the name")]


class ApiModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)


class ApiError(ApiModel):
    """Every error has this form."""

    error_code: int
    message: str


class UseModel(ApiModel):
    """A use of a topic by an actor."""

    declared: bool
    observed: bool
    filled: bool
    internal: bool
    bytes_day: int | None
    records_day: int | None
    last_seen: Time | None


class GraphNodeModel(ApiModel):
    id: int
    kind: Kind
    name: Name
    hidden: bool
    component: str | None
    internal: bool


class GraphEdgeModel(UseModel):
    """`topics` is the number of topics that connect two actors; null where the edge is the use of a topic."""

    from_: int = Field(alias="from")
    to: int
    topics: int | None


class GraphModel(ApiModel):
    cluster: str | None
    as_of: Time | None
    collapsed: bool
    nodes: list[GraphNodeModel]
    edges: list[GraphEdgeModel]


class TopicRowModel(ApiModel):
    name: str
    internal: bool
    writers: int
    readers: int


class TopicsModel(ApiModel):
    """`next` is the parameter `after` of the following page; null on the last one."""

    topics: list[TopicRowModel]
    count: int
    next: str | None


class ClientModel(ApiModel):
    principal: str
    client_id: str
    host: str
    software: str | None
    software_version: str | None
    last_seen: Time


class OwnerModel(ApiModel):
    kind: Kind
    name: Name
    declared: bool
    observed: bool
    filled: bool
    bytes_day: int | None
    records_day: int | None
    last_seen: Time | None
    clients: list[ClientModel]


class TopicModel(ApiModel):
    """A topic: its writers and readers, those with most bytes first, and how much of it passes the gateway."""

    topic: str
    writers: list[OwnerModel]
    readers: list[OwnerModel]
    unattributed_share: float | None
    seen_records: int
    all_records: int
    past_gateway: int
    coverage: float | None
    hours: int
    unknown_hours: int
    uncounted_hours: int
    complete_hours: bool
    truncated: bool


class ImpactNodeModel(ApiModel):
    """`filled` is there, and true, where a use leads to the node whose topic the description leaves open."""

    kind: Kind
    name: Name
    depth: int
    filled: bool = False


class ImpactModel(ApiModel):
    """What depends on a topic, or on what it depends. The counts are of all, `nodes` may be truncated."""

    root: str
    direction: str
    nodes: list[ImpactNodeModel]
    topics: int
    actors: int
    depth: int
    truncated: bool


class TableModel(ApiModel):
    name: str
    version: int
    rows: int
    bytes: int
    updated: Time


class RunModel(ApiModel):
    """The last run of a query of the pipeline."""

    query: str
    state: str
    started_at: Time
    ended_at: Time | None
    at: Time
    lag: int | None
    rejected: int
    table: str | None
    problem: str | None


class HealthModel(ApiModel):
    """`problems` are topics that this process cannot read, by section of the configuration."""

    ready: bool
    problems: dict[str, str]
    tables: list[TableModel]
    pipeline: list[RunModel]


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The documentation of error responses."""
    return {code: {"model": ApiError} for code in (400, 401, 403, *codes, 503)}
