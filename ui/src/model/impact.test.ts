import { expect, test } from "vitest";
import type { Topic } from "../api/shapes";
import { coverageState, impactLevels } from "./impact";

test("impact is grouped by distance, the nearest first", () => {
  const found = impactLevels([
    { kind: "topic", name: "b", depth: 2 },
    { kind: "streams", name: "a", depth: 1 },
    { kind: "topic", name: null, depth: 2 },
  ]);
  expect(found.map((level) => [level.depth, level.nodes.length])).toEqual([
    [1, 1],
    [2, 2],
  ]);
});

test("a topic whose records were not counted is unknown, and not uncovered", () => {
  const of = (coverage: number | null, complete_hours = true) => coverageState({ coverage, complete_hours } as Topic);
  expect([of(null).state, of(0.4).state, of(1).state]).toEqual(["unknown", "attention", "good"]);
  expect(of(0.4, false)).toMatchObject({ state: "unknown", note: expect.stringContaining("No hour is complete yet") });
  expect(of(1, false).note).toBe(null); // 100 % is not too low
});
