/** How fresh the page is, from the last answer of `/health`: one state with a shape and a short text. */

import type { Health } from "../api/shapes";
import { duration } from "./format";
import type { Loaded } from "./loaded";

export type StateName = "good" | "attention" | "stopped" | "unknown";

export interface Freshness {
  state: StateName;
  text: string;
  detail: string;
}

/** A running pipeline writes its row at least this often, also when nothing happens. */
export const QUIET_MS = 10 * 60_000;

export function freshness(health: Loaded<Health>, now: number): Freshness {
  if (health.state === "loading") return { state: "unknown", text: "connecting", detail: "Waiting for the first answer." };
  if (health.state === "forbidden") {
    return { state: "stopped", text: "no access", detail: health.problem.message };
  }
  if (health.state !== "ready") {
    return { state: "stopped", text: health.problem.status === 0 ? "no connection" : "server error", detail: health.problem.message };
  }
  if (health.stale !== null) {
    const what = health.stale.status === 0 ? "no connection" : "server error";
    return { state: "stopped", text: `${what} for ${duration(now - health.at)}`, detail: health.stale.message };
  }
  const { pipeline, tables } = health.data;
  const failed = pipeline.find((run) => run.state === "failed");
  if (failed !== undefined) {
    return { state: "attention", text: "pipeline failed", detail: `${failed.query}: ${failed.problem ?? "see its log"}` };
  }
  const times = [...pipeline.map((run) => run.at), ...tables.map((table) => table.updated)];
  if (times.length === 0) {
    return { state: "unknown", text: "no data yet", detail: "The pipeline has not written a table yet." };
  }
  const age = now - Math.max(...times);
  const text = `${age < 1_000 ? "1 s" : duration(age)}`;
  return age > QUIET_MS
    ? { state: "attention", text: `data ${text} old`, detail: "The pipeline has written nothing since then." }
    : { state: "good", text: `fresh ${text}`, detail: "Age of what the pipeline wrote last." };
}
