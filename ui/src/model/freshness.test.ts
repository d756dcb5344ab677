import { expect, test } from "vitest";
import type { Health, PipelineRun } from "../api/shapes";
import { freshness, QUIET_MS } from "./freshness";
import type { Loaded } from "./loaded";

const NOW = 1_000_000_000;

function run(state: string, at: number): PipelineRun {
  return { query: "facts", state, started_at: 0, ended_at: null, at, lag: 0, rejected: 0, table: null, problem: null };
}

function ready(health: Partial<Health>, stale = false): Loaded<Health> {
  const data = { ready: true, problems: {}, version: "1", tables_path: null, rejected: null, tables: [], pipeline: [], ...health };
  return { state: "ready", data, at: NOW - 12_000, stale: stale ? { status: 0, message: "m" } : null };
}

test("each case has a shape of its own", () => {
  expect(freshness({ state: "loading" }, NOW).state).toBe("unknown");
  expect(freshness({ state: "failed", problem: { status: 0, message: "" } }, NOW)).toMatchObject({ state: "stopped", text: "no connection" });
  expect(freshness({ state: "failed", problem: { status: 503, message: "" } }, NOW).text).toBe("server error");
  expect(freshness({ state: "forbidden", problem: { status: 401, message: "" } }, NOW).text).toBe("no access");
  expect(freshness(ready({}, true), NOW).text).toBe("no connection for 12 s");
  expect(freshness(ready({}), NOW).text).toBe("no data yet");
  expect(freshness(ready({ pipeline: [run("running", NOW - 2_000)] }), NOW)).toMatchObject({ state: "good", text: "fresh 2 s" });
  expect(freshness(ready({ pipeline: [run("running", NOW - QUIET_MS - 1)] }), NOW)).toMatchObject({ state: "attention", text: "data 10 min old" });
  expect(freshness(ready({ pipeline: [run("failed", NOW)] }), NOW).text).toBe("pipeline failed");
});

test("clocks that differ do not give a negative age", () => {
  expect(freshness(ready({ pipeline: [run("running", NOW + 60_000)] }), NOW).text).toBe("fresh 1 s");
});
