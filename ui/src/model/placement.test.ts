import { expect, test } from "vitest";
import type { GraphEdge } from "../api/shapes";
import type { MapGraph, MapNode } from "./estate_graph";
import { placed, type Point, serverPositions, walk } from "./placement";

function node(key: string): MapNode {
  return { key, kind: "topic", name: key, component: null, internal: false, label: key, width: 100, height: 28 };
}

function graph(keys: string[], links: [string, string][]): MapGraph {
  const edges = links.map(([from, to]) => ({ key: `${from} ${to}`, from, to, state: "both" as const, use: {} as GraphEdge }));
  return { nodes: keys.map(node), edges };
}

const KNOWN = new Map<string, Point>([
  ["a", { x: 0, y: 0 }],
  ["b", { x: 200, y: 0 }],
]);

test("nodes that are known keep their positions, and those that are gone lose them", () => {
  const at = placed(graph(["b", "c"], [["b", "c"]]), KNOWN);
  expect(at.get("b")).toEqual({ x: 200, y: 0 });
  expect(at.has("a")).toBe(false);
});

test("a new node stands to the right of what it gets data from, and on nothing else", () => {
  const at = placed(graph(["a", "b", "c", "d"], [["a", "b"], ["a", "c"], ["a", "d"]]), KNOWN);
  const [c, d] = [at.get("c"), at.get("d")];
  expect(c?.x).toBeGreaterThanOrEqual(100);
  expect(new Set([at.get("b"), c, d].map((one) => `${one?.x} ${one?.y}`)).size).toBe(3);
  expect(Math.abs((c?.y ?? 0) - (d?.y ?? 0))).toBeGreaterThanOrEqual(28);
});

test("a new node that feeds a known one stands to the left of it", () => {
  expect(placed(graph(["a", "b", "n"], [["n", "a"]]), KNOWN).get("n")?.x).toBeLessThan(0);
});

test("a node without neighbours stands below the others", () => {
  expect(placed(graph(["a", "b", "n"], []), KNOWN).get("n")?.y).toBeGreaterThanOrEqual(28);
});

test("arrows follow the data and the column", () => {
  const shown = graph(["a", "b", "c"], [["a", "b"]]);
  const at = new Map([...KNOWN, ["c", { x: 0, y: 50 }]]) as Map<string, Point>;
  expect(walk(shown, at, "a", "ArrowRight")).toBe("b");
  expect(walk(shown, at, "b", "ArrowLeft")).toBe("a");
  expect(walk(shown, at, "a", "ArrowDown")).toBe("c");
  expect(walk(shown, at, "c", "ArrowUp")).toBe("a");
  expect(walk(shown, at, "b", "ArrowRight")).toBe("b");
  expect(walk(shown, at, null, "ArrowRight")).toBe("a");
  expect(walk(graph([], []), new Map(), null, "ArrowUp")).toBeNull();
});

test("positions of the server are centres, and a node that it does not know finds a free place", () => {
  const shown = graph(["topic/a", "topic/b", "topic/new"], [["topic/a", "topic/new"]]);
  const places = [
    { id: 0, kind: "topic" as const, name: "gone", component: null, x: 0, y: 0 },
    { id: 1, kind: "topic" as const, name: "b", component: null, x: 250, y: 14 },
    { id: 2, kind: "topic" as const, name: "a", component: null, x: 50, y: 14 },
  ];
  const at = serverPositions(shown, { engine: "graphviz", nodes: places });
  expect(at.get("topic/a")).toEqual({ x: 0, y: 0 });
  expect(at.get("topic/b")).toEqual({ x: 200, y: 0 });
  expect(at.get("topic/new")?.x).toBeGreaterThanOrEqual(100);
  expect(at.size).toBe(3);
});
