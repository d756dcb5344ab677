/** The answers of `/api/v1` (docs/api.md), as far as the page reads them. Times are epoch milliseconds. */

export type Kind =
  | "topic"
  | "streams"
  | "spark"
  | "connector"
  | "share_group"
  | "consumer_group"
  | "client"
  | "unattributed";

export interface Use {
  declared: boolean;
  observed: boolean;
  filled: boolean;
  bytes_day: number | null;
  records_day: number | null;
  last_seen: number | null;
}

export interface GraphNode {
  id: number;
  kind: Kind;
  name: string | null;
  hidden: boolean;
  component: string | null;
  internal: boolean;
}

export interface GraphEdge extends Use {
  from: number;
  to: number;
  internal: boolean;
  topics: number | null;
}

export interface Graph {
  cluster: string | null;
  as_of: number | null;
  collapsed: boolean;
  nodes: GraphNode[];
  edges: GraphEdge[];
}

export interface TopicRow {
  name: string;
  internal: boolean;
  writers: number;
  readers: number;
}

export interface Topics {
  topics: TopicRow[];
  count: number;
  next: string | null;
}

export interface Client {
  principal: string;
  client_id: string;
  host: string;
  software: string | null;
  software_version: string | null;
  last_seen: number;
}

export interface Owner extends Use {
  kind: Kind;
  name: string | null;
  clients: Client[];
}

export interface Topic {
  topic: string;
  writers: Owner[];
  readers: Owner[];
  unattributed_share: number | null;
  seen_records: number;
  all_records: number;
  past_gateway: number;
  coverage: number | null;
  hours: number;
  unknown_hours: number;
  complete_hours: boolean;
  truncated: boolean;
}

export interface ImpactNode {
  kind: Kind;
  name: string | null;
  depth: number;
}

export interface Impact {
  root: string;
  direction: "up" | "down";
  nodes: ImpactNode[];
  topics: number;
  actors: number;
  depth: number;
  truncated: boolean;
}

export interface TableState {
  name: string;
  version: number;
  rows: number;
  bytes: number;
  updated: number;
}

export interface PipelineRun {
  query: string;
  state: string;
  started_at: number;
  ended_at: number | null;
  at: number;
  lag: number | null;
  rejected: number;
  table: string | null;
  problem: string | null;
}

export interface Health {
  ready: boolean;
  problems: Record<string, string>;
  tables: TableState[];
  pipeline: PipelineRun[];
}

export interface ApplicationRow {
  name: string;
  kind: Kind;
  version: string | null;
  provenance: string | null;
  at: number | null;
}

export interface Applications {
  applications: ApplicationRow[];
  count: number;
  next: string | null;
}

export type TopologyNode =
  | { type: "source"; name: string; topics?: string[]; pattern?: string | null; successors: string[] }
  | { type: "processor"; name: string; stores?: string[]; successors: string[] }
  | { type: "sink"; name: string; topic?: string | null; extractor?: string | null; successors: string[] };

export interface Description {
  subtopologies: { id: string; nodes: TopologyNode[] }[];
  global_stores: { id?: string; source: TopologyNode; processor: TopologyNode }[];
}

export interface Topology {
  group: string;
  version: string | null;
  provenance: string | null;
  description: Description;
}

export interface Version {
  version: string;
  provenance: string;
  at: number;
  ended_at: number | null;
  nodes: number;
  subtopologies: number;
  member: string | null;
}

export interface Versions {
  versions: Version[];
}

export interface PauseReason {
  code: string;
  text: string;
  by: string | null;
  since: number;
}

export interface ShareGroup {
  group: string;
  enabled: boolean;
  paused: boolean;
  pause_reasons: PauseReason[];
  generation: number;
  window_ms: number;
  delivered: number;
  dlq_written: number;
  dlq_rate: number | null;
  threshold_percent: number;
  min_messages: number;
  auto_resume_at: number | null;
  last_resume: { reason: string; by: string | null; at: number } | null;
  dlq_topic: string | null;
  limit: number;
  spooled: number;
  oldest_spooled_at: number | null;
}

export interface ShareGroups {
  share_groups: ShareGroup[];
}

export interface Change {
  event_id: string;
  event: string;
  subject_kind: string;
  subject: string;
  by: string | null;
  at: number;
}

export interface Changes {
  changes: Change[];
}

export interface SearchAnswer {
  results: { kind: Kind; name: string }[];
}
