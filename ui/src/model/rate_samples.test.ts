import { expect, test } from "vitest";
import { rateLine, SPAN_MS, withSample } from "./rate_samples";

test("samples are kept for three minutes, and none is kept twice", () => {
  let samples = withSample([], { at: 1_000, rate: 0.1 });
  samples = withSample(samples, { at: 1_000, rate: 0.5 });
  expect(samples).toEqual([{ at: 1_000, rate: 0.1 }]);
  samples = withSample(samples, { at: 1_000 + SPAN_MS, rate: 0.2 });
  expect(samples).toEqual([{ at: 1_000 + SPAN_MS, rate: 0.2 }]);
});

test("the line ends at the right, the threshold is in the middle, and a gap is no line", () => {
  const now = 1_000_000;
  const found = rateLine([{ at: now - 60_000, rate: 0.2 }, { at: now - 1_000, rate: null }, { at: now, rate: 0.4 }], 20, now, { width: 180, height: 40 });
  expect(found.top).toBe(40);
  expect(found.threshold).toBe(20);
  expect(found.lines).toEqual(["120.0,20.0", "179.0,40.0 180.0,0.0"]);
});

test("without a breaker there is no threshold, and a high rate has room", () => {
  const found = rateLine([{ at: 5, rate: 1 }], null, 5, { width: 10, height: 10 });
  expect(found).toEqual({ lines: ["10.0,0.0"], threshold: null, top: 100 });
});
