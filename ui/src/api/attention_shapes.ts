/** The answer of `/api/v1/attention`, and mismatches, as far as the page reads them. Times are epoch milliseconds. */

import type { PauseReason } from "./shapes";

export interface MismatchSide {
  fingerprint: string | null;
  refused: boolean;
  member_count: number;
  members: { member: string | null; host: string | null }[];
}

export interface Mismatch {
  since: number;
  kind: string | null;
  topology_count: number | null;
  topologies: MismatchSide[];
}

export interface Cause {
  what: string;
  subject_kind: string;
  subject: string | null;
  topic: string | null;
  at: number;
  likelihood: string | null;
  /** As in `Change`. */
  detail: unknown;
}

export interface NewGap {
  kind: string;
  topic: string | null;
  direction: string;
  opened_at: number;
}

export interface AttentionItem {
  kind: "paused" | "dead_letters" | "mismatch" | "lag" | "gaps";
  state: "stopped" | "attention";
  subject_kind: string;
  subject: string;
  since: number | null;
  tripped: boolean;
  pause_reasons: PauseReason[];
  auto_resume_at: number | null;
  now: number | null;
  before: number | null;
  mismatch: Mismatch | null;
  gaps: NewGap[];
  gap_count: number;
  points: number[];
  causes: Cause[];
  causes_left_out: number;
}

export interface AttentionCounts {
  paused: number | null;
  mismatches: number | null;
  new_gaps: number | null;
  older_gaps: number | null;
  dead_letters_hour: number | null;
  dead_letters_before: number | null;
  growing_lags: number | null;
}

export interface Watched {
  share_groups: number | null;
  applications: number | null;
  topics: number | null;
  groups_with_lags: number | null;
}

export interface Attention {
  items: AttentionItem[];
  counts: AttentionCounts;
  watched: Watched;
  missing: string[];
  incomplete: string[];
  problem: string | null;
  truncated: boolean;
}
