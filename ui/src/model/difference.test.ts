import { expect, test } from "vitest";
import type { Change, GraphEdge } from "../api/shapes";
import { changedKeys, difference, differenceSummary } from "./difference";
import type { EdgeState, MapGraph } from "./estate_graph";

function graph(keys: string[], links: [string, string, EdgeState?][]): MapGraph {
  return {
    nodes: keys.map((key) => ({
      key, kind: "topic", name: key.startsWith("hidden") ? null : key, component: null, internal: false, label: key, width: 100, height: 28,
    })),
    edges: links.map(([from, to, state = "both"]) => ({ key: `${from} ${to}`, from, to, state, use: { filled: false } as GraphEdge })),
  };
}

test("what came, what went and what is different is marked, and nothing else", () => {
  const before = graph(["a", "b", "old"], [["a", "b"], ["a", "old"], ["b", "a", "declared"]]);
  const after = graph(["a", "b", "new"], [["a", "b"], ["a", "new"], ["b", "a", "both"]]);
  const found = difference(before, after, new Set(["b", "new"]));
  expect(Object.fromEntries(found.marks)).toEqual({
    new: "added", old: "removed", b: "changed", "a new": "added", "a old": "removed", "b a": "changed",
  });
  expect(new Set(found.graph.nodes.map((node) => node.key))).toEqual(new Set(["a", "b", "new", "old"]));
  expect(found.graph.edges).toHaveLength(4);
  expect(differenceSummary(found.marks)).toBe("+ 2 added, − 2 removed, ~ 2 changed");
});

test("equal times have no difference", () => {
  const same = graph(["a", "b"], [["a", "b"]]);
  const found = difference(same, same, new Set());
  expect(found.marks.size).toBe(0);
  expect(differenceSummary(found.marks)).toBe("no difference");
});

test("nodes without names, whose keys mean nothing at another time, are not compared", () => {
  const found = difference(graph(["a", "hidden/1"], [["a", "hidden/1"]]), graph(["a", "hidden/2"], [["a", "hidden/2"]]), new Set());
  expect(found.marks.size).toBe(0);
  expect(found.graph.nodes.map((node) => node.key)).toEqual(["a", "hidden/2"]);
});

test("changes between the times are about applications of either kind, and share groups", () => {
  const change = (at: number, kind: string, subject: string): Change => ({ event_id: "", event: "", by: null, at, subject_kind: kind, subject, detail: null });
  const changes = [change(10, "application", "app"), change(20, "share_group", "g"), change(5, "application", "before"), change(30, "share_group", "after")];
  expect(changedKeys(changes, 5, 20)).toEqual(new Set(["streams/app", "spark/app", "share_group/g"]));
});
