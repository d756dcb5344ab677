import { expect, test } from "vitest";
import type { Description } from "../api/shapes";
import { describedBy, shortVersion, topologyGraph } from "./topology";

const DESCRIPTION: Description = {
  subtopologies: [
    {
      id: "0",
      nodes: [
        { type: "source", name: "S.1", topics: ["orders"], successors: ["P"] },
        { type: "processor", name: "P", stores: ["totals"], successors: ["K", "D"] },
        { type: "sink", name: "K", topic: "out" },
        { type: "sink", name: "D", topic: null },
      ],
    },
    { id: "10", nodes: [{ type: "source", name: "S.1", topics: [], pattern: "logs-.*", successors: [] }] },
  ],
  global_stores: [{ source: { type: "source", name: "G", topics: ["rates"], successors: ["GP"] }, processor: { type: "processor", name: "GP", stores: ["rates-store"] } }],
};

test("every node, store and topic is a piece, in its sub-topology", () => {
  const { pieces } = topologyGraph(DESCRIPTION);
  const subs = pieces.filter((piece) => piece.type === "sub").map((piece) => piece.name);
  expect(subs).toEqual(["Sub-topology 0", "Sub-topology 10", "Global store"]);
  expect(pieces.filter((piece) => piece.type === "topic").map((piece) => piece.name)).toEqual(["orders", "out", "rates"]);
  expect(pieces.filter((piece) => piece.name === "S.1")).toHaveLength(2);
  expect(new Set(pieces.map((piece) => piece.key)).size).toBe(pieces.length);
});

test("edges lead from topics through nodes to stores and topics", () => {
  const { pieces, edges } = topologyGraph(DESCRIPTION);
  const name = new Map(pieces.map((piece) => [piece.key, piece.name]));
  const links = edges.map((edge) => `${name.get(edge.from)}>${name.get(edge.to)}`);
  expect(links.sort()).toEqual(["G>GP", "GP>rates-store", "K>out", "P>D", "P>K", "P>totals", "S.1>P", "orders>S.1", "rates>G"]);
});

test("patterns and dynamic sinks are marked", () => {
  const { pieces } = topologyGraph(DESCRIPTION);
  expect(pieces.flatMap((piece) => piece.note ?? [])).toEqual(["topic chosen for each record", "pattern logs-.*"]);
});

test("versions are named as the commands name them", () => {
  expect(shortVersion(`9f2c/0/${"ab".repeat(32)}`)).toBe("9f2c/0/abababababab");
  expect(shortVersion("odd")).toBe("odd");
});

test("where a description comes from is said in words, also where the server knows more of them", () => {
  expect(["pushed", "assignment", "spark", "new"].map(describedBy)).toEqual(["a member", "task assignment", "a Spark query", "new"]);
});
