/** The answers of `/api/v1` (docs/api.md), as far as the page reads them. Times are epoch milliseconds. */

import type { Mismatch } from "./attention_shapes";

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
  provisional: boolean;
  nodes: GraphNode[];
  edges: GraphEdge[];
}

export interface GraphLayout {
  engine: string;
  nodes: { id: number; kind: Kind; name: string | null; component: string | null; x: number; y: number }[];
}

export interface OverlayNode {
  kind: Kind;
  name: string;
  state: "running" | "paused" | "tripped" | "unknown" | null;
  lag: number | null;
  processed: number | null;
  dead_lettered: number | null;
  gaps: number;
}

export interface GraphOverlay {
  cluster: string | null;
  minutes: number;
  nodes: OverlayNode[];
  uses: { kind: Kind; name: string; topic: string; lag: number }[];
  truncated: boolean;
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

export interface RejectedFacts {
  facts: { topic: string; partition: number; offset: number; at: number; reason: string }[];
  count: number;
  more: boolean;
}

export interface Health {
  ready: boolean;
  problems: Record<string, string>;
  version: string;
  tables: TableState[];
  tables_path: string | null;
  pipeline: PipelineRun[];
  rejected: RejectedFacts | null;
}

export interface Workers {
  workers: { worker: string; last_seen: number; starts: number }[];
  since: number;
  truncated: boolean;
}

/** Who leads, as Kafka's group of the leaders has it now. `duty`: what the leader does; lags alone without share groups. */
export interface Leader {
  state: "led" | "electing" | "nobody" | "unknown" | "off";
  duty: "breakers" | "lags" | null;
  workers: { worker: string | null; version: string | null; host: string; is_leader: boolean }[];
  truncated: boolean;
  at: number;
  problem: string | null;
}

export interface TopicActivity {
  topic: string;
  since: number;
  until: number;
  hour_ms: number;
  written: number[];
  read: number[];
  actors: { kind: Kind; name: string | null; direction: "read" | "write"; bytes: number; first_seen: number; last_seen: number; hours: number[] }[];
  truncated: boolean;
}

export interface ApplicationRow {
  name: string;
  kind: Kind;
  version: string | null;
  provenance: string | null;
  since: number | null;
  reads_count: number;
  writes_count: number;
}

export interface Gap {
  kind: string;
  topic: string | null;
  direction: "read" | "write";
  opened_at: number;
  state: string;
  coverage: number | null;
}

export interface Application extends ApplicationRow {
  reads: (Use & { topic: string | null })[];
  writes: (Use & { topic: string | null })[];
  gaps: Gap[];
  mismatch: Mismatch | null;
}

export interface Applications {
  applications: ApplicationRow[];
  count: number;
  next: string | null;
}

export type TopologyNode =
  | { type: "source"; name: string; topics?: string[]; pattern?: string | null; successors?: string[] }
  | { type: "processor"; name: string; stores?: string[]; successors?: string[] }
  | { type: "sink"; name: string; topic?: string | null; successors?: string[] };

export interface Description {
  subtopologies: { id: string; nodes: TopologyNode[] }[];
  global_stores: { id?: string; source: TopologyNode; processor: TopologyNode }[];
}

export interface Version {
  version: string;
  topology_epoch: number;
  provenance: string;
  partial: boolean;
  current: boolean;
  at: number;
  ended_at: number | null;
  nodes: number;
  subtopologies: number;
  member: string | null;
}

export interface Topology extends Version {
  application: string;
  description: Description;
}

export interface Versions {
  versions: Version[];
  truncated: boolean;
}

export interface Diff {
  from: string;
  to: string;
  added: DiffItem[];
  removed: DiffItem[];
  renamed: { kind?: string; from: string; to: string }[];
  moved: (DiffItem & { from?: string; to?: string })[];
  changed: (DiffItem & { field?: string; from?: unknown; to?: unknown })[];
  verdict: string;
  reasons: string[];
}

export interface DiffItem {
  kind: string;
  name: string;
}

export interface Task {
  task: string;
  role: string | null;
  lag: number | null;
  stores: string[];
}

export interface Member {
  member: string;
  process: string;
  client_id: string;
  host: string;
  tasks_left_out: number;
  tasks: Task[];
}

export interface Tasks {
  members: Member[];
  truncated: boolean;
}

export interface PauseReason {
  code: string | null;
  text: string | null;
  by: string | null;
  since: number | null;
}

/** A row of the list. What is null is not known to the server: it does not read the state of share groups. */
export interface ShareGroupRow {
  name: string;
  managed: boolean | null;
  breaker_enabled: boolean | null;
  paused: boolean | null;
  tripped: boolean | null;
  pause_reasons: PauseReason[];
  generation: number | null;
  auto_resume_at: number | null;
  dlq_topic: string | null;
  dlq_topic_hidden: boolean;
}

export interface ShareGroups {
  share_groups: ShareGroupRow[];
  count: number;
  next: string | null;
  problem: string | null;
}

export interface BreakerSettings {
  breaker_enable: boolean;
  threshold_percent: number;
  window_ms: number;
  min_messages: number;
  auto_resume_enable: boolean;
  auto_resume_ms: number;
  limit: number | null;
}

export interface MinuteRate {
  minute: number;
  processed: number;
  dead_lettered: number;
  dlq_rate: number | null;
}

export interface BreakerEvent {
  event_id: string;
  event: string;
  at: number;
  by: string | null;
  reason: string | null;
  dlq_written: number | null;
  delivered: number | null;
  threshold_percent: number | null;
  window_ms: number | null;
}

export interface ShareGroup extends ShareGroupRow {
  settings: BreakerSettings | null;
  dlq_topic_shared_with: (string | null)[];
  reads: (Use & { topic: string | null })[];
  rates: MinuteRate[];
  events: BreakerEvent[];
  problem: string | null;
}

export interface Change {
  event_id: string;
  event: string;
  subject_kind: string;
  subject: string;
  by: string | null;
  at: number;
  /** Whatever the event has; null where the caller may not see it. */
  detail: unknown;
}

export interface Changes {
  changes: Change[];
}

export interface SearchAnswer {
  results: { kind: Kind; name: string }[];
  count: number;
}

export interface BacktestConfig {
  threshold_percent: number;
  window_ms: number;
  min_messages: number;
  trips: number;
  paused_s: number;
  avoided: number;
  false_trips: number;
}

/** `recommended` and `live` are places in `configs`. */
export interface Backtest {
  group: string;
  days: number;
  configs: BacktestConfig[];
  recommended: number | null;
  live: number | null;
  from: number;
  left_out_s: number;
}
