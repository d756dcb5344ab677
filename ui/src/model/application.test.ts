import { expect, test } from "vitest";
import type { Diff, Member } from "../api/shapes";
import { columnCount, taskMatrix } from "./task_matrix";
import { topologyGraph } from "./topology";
import { diffLines, markedGraph } from "./topology_marks";
import { topologyOutline } from "./topology_outline";

const DESCRIPTION = {
  subtopologies: [
    {
      id: "0",
      nodes: [
        { type: "source" as const, name: "in", topics: ["orders"], pattern: null, successors: ["count"] },
        { type: "processor" as const, name: "count", stores: ["s"], successors: ["out"] },
        { type: "sink" as const, name: "out", topic: null, successors: [] },
      ],
    },
  ],
  global_stores: [{ source: { type: "source" as const, name: "g", topics: ["users"] }, processor: { type: "processor" as const, name: "gp", stores: ["gs"] } }],
};

const DIFF: Diff = {
  from: "a", to: "b", verdict: "safe", reasons: [],
  added: [{ kind: "processor", name: "count" }],
  removed: [{ kind: "sink", name: "old" }],
  renamed: [{ kind: "processor", from: "was", to: "in" }],
  moved: [{ kind: "processor", name: "m", from: "0", to: "1" }],
  changed: [{ kind: "store", name: "s", field: "topics", from: [], to: ["x\u202e"] }],
};

function member(name: string, host: string, tasks: string[]): Member {
  return { member: name, process: "p", client_id: "c", host, tasks_left_out: 0, tasks: tasks.map((task) => ({ task, role: "active", lag: null, stores: task.startsWith("1") ? ["s"] : [] })) };
}

test("the newer picture has what is new, the older one what is gone, both what differs", () => {
  const graph = topologyGraph(DESCRIPTION);
  const marks = (side: "from" | "to") => Object.fromEntries(markedGraph(graph, DIFF, side).pieces.flatMap((piece) => (piece.mark === undefined ? [] : [[piece.name, piece.mark]])));
  expect(marks("to")).toEqual({ count: "added", in: "renamed", s: "changed" });
  expect(marks("from")).toEqual({ s: "changed" });
});

test("every difference is one line, and names stay text", () => {
  expect(diffLines(DIFF).map((line) => [line.mark, line.name, line.detail])).toEqual([
    ["removed", "old", ""],
    ["added", "count", ""],
    ["changed", "s", "topics: none → x\\u{202e}"],
    ["moved", "m", "from sub-topology 0 to 1"],
    ["renamed", "was", "to in"],
  ]);
});

test("tasks stand in the order of their numbers, members in that of their hosts", () => {
  const matrix = taskMatrix([member("b", "10.0.0.2", ["0_10", "1_0"]), member("a", "10.0.0.1", ["0_9"]), member("c", "10.0.0.1", [])]);
  expect(matrix.parts).toEqual([
    { id: "0", tasks: ["0_9", "0_10"], stores: [] },
    { id: "1", tasks: ["1_0"], stores: ["s"] },
  ]);
  expect(matrix.rows.map((row) => row.member.member)).toEqual(["a", "c", "b"]);
  expect(columnCount(matrix)).toBe(3);
});

test("a topology as a list, with global stores and sinks that choose their topic", () => {
  expect(topologyOutline(DESCRIPTION)).toMatchObject([
    { title: "Sub-topology 0", reads: ["orders"], processors: ["count"], stores: ["s"], writes: [], dynamicSinks: ["out"], isGlobal: false },
    { title: "Global store", reads: ["users"], processors: ["gp"], stores: ["gs"], isGlobal: true },
  ]);
});
