import { expect, test } from "vitest";
import type { Description, GraphEdge } from "../api/shapes";
import type { MapGraph } from "./estate_graph";
import { expanded, insideOf, type Opened } from "./insides";

const DESCRIPTION: Description = {
  subtopologies: [
    {
      id: "0",
      nodes: [
        { type: "source", name: "in", topics: ["orders"], pattern: null, successors: ["map"] },
        { type: "processor", name: "map", stores: ["store"], successors: ["rekey"] },
        { type: "sink", name: "rekey", topic: "app-repartition" },
      ],
    },
    {
      id: "1",
      nodes: [
        { type: "source", name: "again", topics: ["app-repartition"], pattern: null, successors: ["out"] },
        { type: "sink", name: "out", topic: "totals" },
      ],
    },
  ],
  global_stores: [],
};
const APP = "streams/app";

function graph(): MapGraph {
  const names = ["orders", "totals", "app-repartition", "audit"];
  const node = (key: string, name: string, kind: "topic" | "streams") => ({ key, kind, name, component: null, internal: false, label: name, width: 100, height: 40 });
  const link = (from: string, to: string) => ({ key: `${from} ${to}`, from, to, state: "both" as const, use: {} as GraphEdge });
  return {
    nodes: [node(APP, "app", "streams"), ...names.map((name) => node(`topic/${name}`, name, "topic"))],
    edges: [link("topic/orders", APP), link(APP, "topic/totals"), link(APP, "topic/app-repartition"), link("topic/app-repartition", APP), link(APP, "topic/audit")],
  };
}

function opened(hasTopics: boolean): Map<string, Opened> {
  return new Map([[APP, { inside: insideOf(APP, DESCRIPTION, hasTopics), extent: { width: 400, height: 240 }, at: new Map(), size: new Map() }]]);
}

const AT = new Map([
  ["topic/orders", { x: 0, y: 0 }],
  [APP, { x: 200, y: 0 }],
  ["topic/totals", { x: 400, y: 0 }],
  ["topic/audit", { x: 400, y: 60 }],
  ["topic/app-repartition", { x: 200, y: 60 }],
]);

test("sub-topologies are connected directly, or by the topics between them", () => {
  const direct = insideOf(APP, DESCRIPTION, false);
  expect(direct.pieces.some((piece) => piece.type === "topic")).toBe(false);
  expect(direct.edges.some((edge) => edge.from.includes("rekey") && edge.to.includes("again"))).toBe(true);
  const shown = insideOf(APP, DESCRIPTION, true);
  expect(shown.pieces.filter((piece) => piece.type === "topic").map((piece) => piece.name)).toEqual(["app-repartition"]);
  expect(shown.own).toEqual(new Set(["app-repartition"]));
  expect(shown.pieces.every((piece) => piece.key.startsWith(`${APP}#`))).toBe(true);
});

test("what is right of the application and below it moves away, and everything else stays", () => {
  const found = expanded(graph(), AT, opened(false));
  expect(found.at.get("topic/orders")).toEqual({ x: 0, y: 0 });
  expect(found.at.get(APP)).toEqual({ x: 200, y: 0 });
  expect(found.at.get("topic/totals")).toEqual({ x: 700, y: 0 });
  expect(found.at.get("topic/audit")).toEqual({ x: 700, y: 260 });
  expect(found.graph.nodes.find((node) => node.key === APP)).toMatchObject({ width: 400, height: 240 });
});

test("edges lead to the source and come from the sink; a use that is not described stays at the application", () => {
  const { edges } = expanded(graph(), AT, opened(false)).graph;
  expect(edges.find((edge) => edge.from === "topic/orders")?.toPiece).toContain("source/in");
  expect(edges.find((edge) => edge.to === "topic/totals")?.fromPiece).toContain("sink/out");
  const silent = edges.find((edge) => edge.to === "topic/audit");
  expect([silent?.from, silent?.fromPiece]).toEqual([APP, undefined]);
  expect(new Set(edges.map((edge) => edge.key)).size).toBe(edges.length);
});

test("a topic that only the application uses is shown within it, and not beside it", () => {
  const found = expanded(graph(), AT, opened(true)).graph;
  expect(found.nodes.some((node) => node.key === "topic/app-repartition")).toBe(false);
  expect(found.nodes.some((node) => node.key === "topic/orders")).toBe(true);
});

test("without expanded applications nothing moves", () => {
  const found = expanded(graph(), AT, new Map());
  expect(found.at).toEqual(AT);
});
