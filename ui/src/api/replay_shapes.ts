/** The answers of `/api/v1/plans`, `plan-requests`, `replays` and `dead-letters/record`. A name that is null may not be seen. */

export interface Plan {
  plan: string;
  group: string;
  to: string | null;
  targets: (string | null)[];
  at: number;
  by: string | null;
  /** To be written, and to the parking topic. */
  records: number;
  to_park: number;
  /** Left out. */
  expired: number;
  superseded: number;
  already_replayed: number;
  over_max_replays: number;
  reasons: Record<string, number>;
  /** Other readers of the targets; null for a token with names. */
  readers: string[] | null;
  oldest_at: number | null;
  state: string;
  written: number;
  parked: number;
  skipped: number;
}

export interface Plans {
  plans: Plan[];
  truncated: boolean;
  problem: string | null;
}

export interface PlannedRecord {
  position: number;
  topic: string | null;
  partition: number;
  offset: number;
  action: "replay" | "park" | "leave_out";
  why: string | null;
  reason: string | null;
  target_topic: string | null;
  target_partition: number | null;
}

export interface PlanDetail extends Plan {
  selection: Record<string, unknown> | null;
  notes: string[];
  rows: PlannedRecord[];
  next: number | null;
}

export interface PlanRequest {
  request: string;
  state: "WAITING" | "RUNNING" | "DONE" | "REFUSED" | "FAILED";
  plan: string | null;
  text: string | null;
  group: string | null;
  at: number;
  by: string | null;
}

export interface DryRun {
  state: string;
  written: number;
  parked: number;
  skipped: number;
  reasons: Record<string, number>;
  stopped_by: string | null;
  error: string | null;
}

export interface Replay {
  plan: string;
  group: string | null;
  to: string | null;
  state: string;
  records: number | null;
  written: number;
  parked: number;
  skipped: number;
  at: number;
  by: string | null;
  /** Whether this server runs it now, so that it can be paused, resumed and stopped here. */
  here: boolean;
  rate: number | null;
  timestamp: "original" | "now" | null;
  stopped_by: string | null;
  error: string | null;
  reasons: Record<string, number>;
  /** What is to be known of the run here, such as that the breaker cannot be watched. */
  notes: string[];
  go_on: string | null;
  dry_run: DryRun | null;
}

/** Bytes of a record, of which the first ones are sent. `text` is null where they are not UTF-8. */
export interface RecordBytes {
  size: number;
  hex: string;
  text: string | null;
  truncated: boolean;
}

export interface ShownRecord {
  group: string;
  topic: string;
  partition: number;
  offset: number;
  from: "source" | "dead_letter";
  timestamp: number | null;
  size: number;
  key: RecordBytes | null;
  value: RecordBytes | null;
  headers: { name: string; value: RecordBytes | null }[];
  headers_truncated: boolean;
  dead_letter: { topic: string | null; partition: number; offset: number; reason: string | null };
}
