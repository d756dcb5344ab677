import { expect, test } from "vitest";
import type { Graph } from "../api/shapes";
import { impactGraph } from "./impact_graph";
import { hourChart } from "./topic_hours";

test("written stands above the middle, read below, on one scale", () => {
  const chart = hourChart({ since: 0, hour_ms: 3_600_000, written: [10, 0], read: [20, 5] }, { width: 20, height: 100 });
  expect(chart.highest).toBe(20);
  expect(chart.bars.map((bar) => [bar.className, bar.x, bar.y, bar.height])).toEqual([
    ["written", 0, 25, 25],
    ["read", 0, 50, 50],
    ["read", 10, 50, 12.5],
  ]);
  expect(hourChart({ since: 0, hour_ms: 3_600_000, written: [], read: [] }, { width: 20, height: 100 }).bars).toEqual([]);
});

test("days begin at midnight of the viewer", () => {
  const midnight = new Date(2026, 10, 15).getTime();
  const chart = hourChart({ since: midnight - 2 * 3_600_000, hour_ms: 3_600_000, written: Array(30).fill(1), read: Array(30).fill(0) }, { width: 30, height: 10 });
  expect(chart.days.map((day) => [day.x, day.at])).toEqual([
    [2, midnight],
    [26, midnight + 24 * 3_600_000],
  ]);
});

test("the picture has the nodes of the list only, and no name that is hidden", () => {
  const node = (id: number, kind: string, name: string | null) => ({ id, kind, name, hidden: name === null, component: null, internal: false }) as Graph["nodes"][number];
  const edge = (from: number, to: number) => ({ from, to }) as Graph["edges"][number];
  const graph = { cluster: null, as_of: null, collapsed: true, provisional: false, nodes: [node(0, "topic", "a"), node(1, "streams", "app"), node(2, "topic", "b"), node(3, "client", "other"), node(4, "client", null)], edges: [edge(0, 1), edge(1, 2), edge(3, 0), edge(4, 0)] };
  const found = impactGraph(graph, "a", [{ kind: "streams", name: "app", depth: 1 }, { kind: "topic", name: "b", depth: 1 }, { kind: "client", name: null, depth: 2 }]);
  expect(found.pieces.map((piece) => [piece.type, piece.name])).toEqual([["topic", "a"], ["actor", "app"], ["topic", "b"]]);
  expect(found.edges).toEqual([{ from: "topic/a", to: "streams/app" }, { from: "streams/app", to: "topic/b" }]);
});
