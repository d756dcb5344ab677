/** What a view knows of a resource: a pure state machine over the outcomes of its requests. */

export interface Problem {
  status: number; // 0 without a connection
  message: string;
}

export type Outcome<T> = { kind: "data"; data: T } | { kind: "unchanged" } | { kind: "problem"; problem: Problem };

export type Loaded<T> =
  | { state: "loading" }
  | { state: "ready"; data: T; at: number; stale: Problem | null }
  | { state: "forbidden" | "absent" | "failed"; problem: Problem };

/**
 * A response that fails leaves the data that is shown, and marks it as stale; what the caller may not see any more,
 * or what does not exist any more, is taken away.
 */
export function next<T>(now: Loaded<T>, outcome: Outcome<T>, at: number): Loaded<T> {
  if (outcome.kind === "data") return { state: "ready", data: outcome.data, at, stale: null };
  if (outcome.kind === "unchanged") return now.state === "ready" ? { ...now, at, stale: null } : now;
  const { problem } = outcome;
  if (problem.status === 401 || problem.status === 403) return { state: "forbidden", problem };
  if (problem.status === 404) return { state: "absent", problem };
  return now.state === "ready" ? { ...now, stale: problem } : { state: "failed", problem };
}
