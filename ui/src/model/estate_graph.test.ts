import { expect, test } from "vitest";
import type { Graph, GraphEdge, GraphNode } from "../api/shapes";
import { kindCounts, mapGraph, neighbours, nodeKey } from "./estate_graph";

function node(id: number, kind: GraphNode["kind"], name: string | null): GraphNode {
  return { id, kind, name, hidden: name === null, component: null, internal: false };
}

function edge(from: number, to: number, declared = true, observed = true): GraphEdge {
  return { from, to, declared, observed, filled: false, internal: false, bytes_day: null, records_day: null, last_seen: null, topics: null };
}

function graph(nodes: GraphNode[], edges: GraphEdge[]): Graph {
  return { cluster: "c1", as_of: null, collapsed: true, provisional: false, nodes, edges };
}

test("keys do not depend on the numbers of an answer", () => {
  const first = mapGraph(graph([node(0, "topic", "a"), node(1, "streams", "b")], [edge(0, 1)]));
  const second = mapGraph(graph([node(7, "streams", "b"), node(9, "topic", "a")], [edge(9, 7)]));
  expect(new Set(first.nodes.map((one) => one.key))).toEqual(new Set(second.nodes.map((one) => one.key)));
  expect(first.edges[0]?.key).toBe(second.edges[0]?.key);
});

test("names that contain a separator stay apart", () => {
  expect(nodeKey("topic", "a/b")).not.toBe(nodeKey("topic", "a", "b"));
  expect(nodeKey("topic", "streams/x")).not.toBe(nodeKey("streams", "x"));
});

test("declared and observed are told apart", () => {
  const made = mapGraph(graph([node(0, "topic", "a"), node(1, "streams", "b")], [edge(0, 1), edge(1, 0, true, false), edge(0, 1, false, true)]));
  expect(made.edges.map((one) => one.state)).toEqual(["both", "declared", "observed"]);
});

test("a node without a name is kept, and has no name in its label", () => {
  const made = mapGraph(graph([node(0, "topic", "a"), node(1, "streams", null)], [edge(0, 1)]));
  expect(made.nodes[1]).toMatchObject({ name: null, label: "name not visible" });
  expect(neighbours(made, nodeKey("topic", "a")).down).toHaveLength(1);
});

test("an edge of an unknown node is left out", () => {
  expect(mapGraph(graph([node(0, "topic", "a")], [edge(0, 5)])).edges).toEqual([]);
});

test("kinds are counted, the most frequent first", () => {
  expect(kindCounts([{ kind: "topic" }, { kind: "streams" }, { kind: "topic" }])).toEqual([
    ["topic", 2],
    ["streams", 1],
  ]);
});
