import { expect, test } from "vitest";
import type { ConnectorRow } from "../api/connector_shapes";
import { comparedTopics, comparison, connectorKind } from "./connectors";

function row(more: Partial<ConnectorRow>): ConnectorRow {
  return { cluster: "main", connector: "src", connect: [], wire: [], hidden_topics: 0, tracking: true, reset_allowed: true, reads_count: null, writes_count: null, last_seen: null, ...more };
}

test("topics of both sides, each with who knows it", () => {
  expect(comparedTopics(row({ connect: ["b", "a"], wire: ["c", "a"] }))).toEqual([
    { topic: "a", inConnect: true, onWire: true },
    { topic: "b", inConnect: true, onWire: false },
    { topic: "c", inConnect: false, onWire: true },
  ]);
  expect(comparedTopics(row({ connect: null, wire: ["c"] }))).toEqual([{ topic: "c", inConnect: null, onWire: true }]);
});

test("what is not known is neither the same nor different", () => {
  expect(comparison(row({ connect: ["a"], wire: ["a"] }))).toEqual({ state: "good", text: "the same" });
  expect(comparison(row({ connect: ["a", "b"], wire: ["c"] }))).toEqual({ state: "attention", text: "2 only in Connect, 1 only on the wire" });
  expect(comparison(row({ connect: null, wire: ["c"], tracking: false }))).toEqual({ state: "unknown", text: "tracking is off" });
  expect(comparison(row({ connect: null, wire: ["c"], tracking: null })).text).toBe("seen on the wire only");
  expect(comparison(row({ wire: null })).text).toBe("the wire is not watched");
  expect(comparison(row({})).text).toBe("no topics yet");
});

test("a source writes, a sink reads", () => {
  expect([
    connectorKind({ reads_count: 0, writes_count: 2 }),
    connectorKind({ reads_count: 1, writes_count: 0 }),
    connectorKind({ reads_count: 1, writes_count: 1 }),
    connectorKind({ reads_count: null, writes_count: null }),
  ]).toEqual(["source", "sink", "reads and writes", null]);
});
