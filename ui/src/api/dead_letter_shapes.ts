/** The answers of `/api/v1/clusters` and `/api/v1/dead-letters`. */

export type Verdict = "insufficient" | "member" | "content" | "outage" | "poison" | "mixed";

/** Failed attempts and the bounds of their rate, from 0 to 1. */
export interface FailureRate {
  failed: number;
  attempts: number;
  lower: number;
  upper: number;
}

/** The numbers behind a verdict; what is not known is left out. */
export interface Evidence {
  attempts?: FailureRate;
  base_rate?: number;
  worst_bucket?: FailureRate;
  members?: number;
  worst_members?: (FailureRate & { member: string })[];
  other_members?: FailureRate;
  worst_features?: (FailureRate & { feature: string })[];
  other_records?: FailureRate;
  paused_ms?: number;
}

export interface Episode {
  id: string;
  group: string;
  verdict: Verdict;
  action: string;
  count: number;
  first_at: number;
  last_at: number;
  ended_at: number | null;
  topics: string[];
  member: string | null;
  feature: string | null;
  evidence: Evidence | null;
  /** Dead letters of the group by time, from before its beginning to after its end; empty where none are counted. */
  points: number[];
  points_from: number | null;
  points_ms: number | null;
}

export interface Episodes {
  clusters: Episode[];
  truncated: boolean;
}

export interface DeadLetter {
  topic: string | null;
  topic_id: string;
  partition: number;
  offset: number;
  dlq_topic: string | null;
  dlq_partition: number;
  dlq_offset: number;
  dead_lettered_at: number;
  reason: string | null;
  exception: string | null;
  delivery_count: number | null;
  copied: boolean;
  source_state: string;
  copies: number;
  letter_expires_at: number | null;
  source_expires_at: number | null;
}

/** How many records can still be had, of all dead letters that were asked for. */
export interface LetterCounts {
  letters: number;
  readable: number;
  gone: number;
  unknown: number;
  unplannable: number;
  expire_soon: number;
  next_expiry: number | null;
  problems: number;
}

export interface DeadLetters {
  group: string;
  letters: DeadLetter[];
  count: number;
  truncated: boolean;
  records: LetterCounts;
}
