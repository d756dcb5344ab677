import { expect, test } from "vitest";
import type { GraphEdge, GraphOverlay, OverlayNode } from "../api/shapes";
import type { MapGraph } from "./estate_graph";
import { figures } from "./overlay";

const NODE: OverlayNode = { kind: "share_group", name: "g", state: "running", lag: null, processed: null, dead_lettered: null, gaps: 0 };

function graph(bytesDay: number | null = 86_400 * 2048): MapGraph {
  const node = (kind: "topic" | "share_group", name: string | null) => ({
    key: name === null ? "hidden/2" : `${kind}/${name}`, kind, name, component: null, internal: false, label: name ?? "", width: 100, height: 28,
  });
  const use = { bytes_day: bytesDay } as GraphEdge;
  return {
    nodes: [node("topic", "t"), node("share_group", "g"), node("share_group", null)],
    edges: [
      { key: "topic/t share_group/g", from: "topic/t", to: "share_group/g", state: "both", use },
      { key: "client/c topic/t", from: "client/c", to: "topic/t", state: "both", use },
    ],
  };
}

function overlay(...nodes: OverlayNode[]): GraphOverlay {
  return { cluster: null, minutes: 60, nodes, uses: [{ kind: "share_group", name: "g", topic: "t", lag: 1234 }], truncated: false };
}

test("a state has a shape and a word, and a pause comes before gaps", () => {
  const state = (node: Partial<OverlayNode>) => figures(graph(), "state", overlay({ ...NODE, ...node })).nodes.get("share_group/g");
  expect(state({})).toMatchObject({ text: "running", state: "good" });
  expect(state({ state: "tripped", gaps: 2 })).toMatchObject({ text: "tripped", state: "stopped" });
  expect(state({ gaps: 2 })).toMatchObject({ text: "2 gaps", state: "attention" });
  expect(state({ state: "unknown" })).toMatchObject({ state: "unknown" });
  expect(state({ state: null })).toBeUndefined();
});

test("lags stand on the group, and on the edge from its topic", () => {
  const found = figures(graph(), "lag", overlay({ ...NODE, lag: 1234 }));
  expect(found.nodes.get("share_group/g")?.text).toBe("1,234");
  expect(found.edges.get("topic/t share_group/g")).toEqual({ text: "1,234", weight: 1 });
  expect(found.nodes.size).toBe(1);
});

test("dead letters have their share of the records", () => {
  const found = (node: Partial<OverlayNode>) => figures(graph(), "letters", overlay({ ...NODE, ...node })).nodes.get("share_group/g");
  expect(found({ processed: 200, dead_lettered: 30 })).toMatchObject({ text: "30 (15 %)", state: "attention" });
  expect(found({ processed: 200, dead_lettered: 0 })).toMatchObject({ text: "0", state: "good" });
  expect(found({})).toBeUndefined();
});

test("rates are in the graph itself, and only what is written counts for a topic", () => {
  const found = figures(graph(), "rate", null);
  expect(found.nodes.get("topic/t")?.text).toBe("2.0 KiB/s");
  expect(found.edges.size).toBe(2);
  expect(figures(graph(null), "rate", null).edges.size).toBe(0);
});

test("without an overlay, or before it is loaded, there are no figures", () => {
  expect(figures(graph(), "none", overlay(NODE)).nodes.size).toBe(0);
  expect(figures(graph(), "lag", null).nodes.size).toBe(0);
});
