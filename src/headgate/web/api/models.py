"""The answers of `/api/v1` as models: they are the schemas of the OpenAPI document.

Answers are written as they are made and not passed through these models, which would take longer than making them;
tests compare the two. Times are epoch milliseconds.
"""

from typing import Annotated, Any, Literal

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
    """`provisional`: some of it was read from Headgate's topics, because the tables do not have it yet."""

    cluster: str | None
    as_of: Time | None
    collapsed: bool
    provisional: bool
    nodes: list[GraphNodeModel]
    edges: list[GraphEdgeModel]


class NodePlaceModel(ApiModel):
    """`x` and `y` are the centre of the node in pixels, y downwards."""

    id: int
    kind: Kind
    name: Name
    component: str | None
    x: int
    y: int


class GraphLayoutModel(ApiModel):
    engine: str
    nodes: list[NodePlaceModel]


class OverlayNodeModel(ApiModel):
    """Figures are null where the tables have none; `state` only of a share group."""

    kind: Kind
    name: str
    state: Literal["running", "paused", "tripped", "unknown"] | None
    lag: int | None
    processed: int | None
    dead_lettered: int | None
    gaps: int


class OverlayUseModel(ApiModel):
    kind: Kind
    name: str
    topic: str
    lag: int


class GraphOverlayModel(ApiModel):
    """`minutes` is how far back dead letters are counted."""

    cluster: str | None
    minutes: int
    nodes: list[OverlayNodeModel]
    uses: list[OverlayUseModel]
    truncated: bool


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
    """The dependents of a topic, or its dependencies. The counts are of all, `nodes` may be truncated."""

    root: str
    direction: str
    nodes: list[ImpactNodeModel]
    topics: int
    actors: int
    depth: int
    truncated: bool


class ApplicationRowModel(ApiModel):
    """`version`, `provenance` and `since` are null of an application that is only seen on the wire."""

    name: str
    kind: Kind
    version: str | None
    provenance: str | None
    since: Time | None
    reads_count: int
    writes_count: int


class ApplicationsModel(ApiModel):
    applications: list[ApplicationRowModel]
    count: int
    next: str | None


class TopicUseModel(UseModel):
    topic: Name


class GapModel(ApiModel):
    kind: str
    topic: Name
    direction: str
    opened_at: Time
    state: str
    coverage: float | None


class MismatchMemberModel(ApiModel):
    member: str | None
    host: str | None


class MismatchSideModel(ApiModel):
    """Members that run the same topology; `refused`: the broker does not let them join."""

    fingerprint: str | None
    refused: bool
    member_count: int
    members: list[MismatchMemberModel]


class MismatchModel(ApiModel):
    """Members of one application run different topologies."""

    since: Time
    kind: str | None
    topology_count: int | None
    topologies: list[MismatchSideModel]


class ApplicationModel(ApplicationRowModel):
    """`mismatch` is null of a past time, and where all members run the same topology."""

    reads: list[TopicUseModel]
    writes: list[TopicUseModel]
    gaps: list[GapModel]
    mismatch: MismatchModel | None


class VersionModel(ApiModel):
    """A version of a topology; a partial one is what members send to be assigned tasks."""

    version: str
    incarnation: str
    topology_epoch: int
    hash: str
    provenance: str
    partial: bool
    current: bool
    at: Time
    ended_at: Time | None
    member: str | None
    process: str | None
    subtopologies: int
    nodes: int
    global_stores: int


class VersionsModel(ApiModel):
    application: str
    versions: list[VersionModel]
    truncated: bool


Description = Annotated[dict[str, Any], Field(description="subtopologies and global_stores, see docs/facts.md")]


class TopologyModel(VersionModel):
    application: str
    description: Description


class DiffModel(ApiModel):
    """The difference of two versions, as in `headgate topology diff --json`."""

    application: str
    from_: str = Field(alias="from")
    to: str
    added: list[dict[str, Any]]
    removed: list[dict[str, Any]]
    renamed: list[dict[str, Any]]
    moved: list[dict[str, Any]]
    changed: list[dict[str, Any]]
    renumbered: int
    verdict: str
    reasons: list[str]


class TaskModel(ApiModel):
    task: str
    subtopology: str | None
    partition: int | None
    role: str | None
    lag: int | None
    at: Time
    stores: list[str]


class MemberModel(ApiModel):
    member: str
    process: str
    client_id: str
    host: str
    tasks_left_out: int
    tasks: list[TaskModel]


class TasksModel(ApiModel):
    application: str
    members: list[MemberModel]
    truncated: bool


class ResultModel(ApiModel):
    kind: Kind
    name: str


class SearchModel(ApiModel):
    results: list[ResultModel]
    count: int


class ChangeModel(ApiModel):
    event_id: str
    event: str
    subject_kind: str
    subject: str
    by: str | None
    at: Time
    detail: Any


class ChangesModel(ApiModel):
    changes: list[ChangeModel]
    since: Time
    until: Time
    truncated: bool


class FlawModel(ApiModel):
    flaw: str
    subtopology: str | None
    node: str | None
    text: str


class ParsedModel(ApiModel):
    hash: str
    description: Description
    findings: list[FlawModel]


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


class RejectedModel(ApiModel):
    """A record of Headgate's topics that this release does not understand."""

    topic: str
    partition: int
    offset: int
    at: Time
    reason: str


class RejectedFactsModel(ApiModel):
    """The newest; `more`: there are more than were counted."""

    facts: list[RejectedModel]
    count: int
    more: bool


class WorkerModel(ApiModel):
    """A worker of a gateway, by what it reported in the last two hours; `starts`: of how many runs."""

    worker: str
    last_seen: Time
    starts: int


class WorkersModel(ApiModel):
    workers: list[WorkerModel]
    since: Time
    truncated: bool


class HealthModel(ApiModel):
    """`problems` are topics that this process cannot read, by section of the configuration.

    `version` is that of this process. A token with names gets neither the folder of the tables nor rejected facts.
    """

    ready: bool
    problems: dict[str, str]
    version: str
    tables: list[TableModel]
    tables_path: str | None
    pipeline: list[RunModel]
    rejected: RejectedFactsModel | None


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The documentation of error responses."""
    return {code: {"model": ApiError} for code in (400, 401, 403, *codes, 503)}
