import { expect, test } from "vitest";
import type { Change } from "../api/shapes";
import { moved, rangeOf, shareOf, ticks, timeAt } from "./time_line";

const NOW = 1_794_744_030_123;

function change(at: number, event = "topology_changed", subject = "app"): Change {
  return { event_id: String(at), event, subject_kind: "application", subject, by: null, at, detail: null };
}

test("the range ends after now, and stays for a step", () => {
  const range = rangeOf("1h", NOW);
  expect(range.to).toBeGreaterThanOrEqual(NOW);
  expect(range.to - range.from).toBe(3_600_000);
  expect(rangeOf("1h", NOW + 1)).toEqual(range);
});

test("a place is a time, and the right end is live", () => {
  const range = rangeOf("1d", NOW);
  expect(timeAt(range, 1)).toBeNull();
  expect(timeAt(range, 7)).toBeNull();
  expect(timeAt(range, -1)).toBe(range.from);
  const half = timeAt(range, 0.5) ?? 0;
  expect(shareOf(range, half)).toBeCloseTo(0.5, 2);
});

test("near changes are one tick, and a tick leads to the map with its change", () => {
  const range = rangeOf("1d", NOW);
  const found = ticks([change(range.from + 1_000), change(range.from + 2_000, "tripped"), change(range.to - 7_200_000), change(range.from - 1)], range);
  expect(found.map((tick) => tick.count)).toEqual([2, 1]);
  expect(found[0]).toMatchObject({ at: range.from + 2_001, title: "2 changes", isTrip: true });
  expect(found[1]).toMatchObject({ title: "topology changed: app", isTrip: false });
});

test("keys move by steps, by changes and to the ends", () => {
  const range = rangeOf("1d", NOW);
  const found = ticks([change(range.from + 10_000_000), change(range.from + 50_000_000)], range);
  expect(moved(range, found, null, "ArrowLeft")).toBe(range.to - range.step);
  expect(moved(range, found, range.to - range.step, "ArrowRight")).toBeNull();
  expect(moved(range, found, null, "PageDown")).toBe(range.from + 50_000_001);
  expect(moved(range, found, range.from + 50_000_001, "PageDown")).toBe(range.from + 10_000_001);
  expect(moved(range, found, range.from + 50_000_001, "PageUp")).toBeNull();
  expect(moved(range, found, range.from, "ArrowLeft")).toBe(range.from);
  expect(moved(range, found, null, "Home")).toBe(range.from);
  expect(moved(range, found, 5, "End")).toBeNull();
  expect(moved(range, found, 5, "x")).toBeUndefined();
});
