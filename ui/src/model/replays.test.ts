import { describe, expect, it } from "vitest";
import type { Replay } from "../api/replay_shapes";
import { progressOf, rateOf, replayControls, replayMark, speedText, withProgress } from "./replays";

function replay(more: Partial<Replay>): Replay {
  return {
    plan: "p", group: "g", to: "original", state: "RUNNING", records: 60, written: 30, parked: 0, skipped: 0, at: 1, by: null, here: true,
    rate: null, timestamp: null, stopped_by: null, error: null, reasons: {}, notes: [], go_on: null, dry_run: null, ...more,
  };
}
const working = (found: ReturnType<typeof replayControls>) => Object.entries(found).flatMap(([name, works]) => (works ? [name] : []));

describe("the buttons of a replay", () => {
  it("are those that its state and its place allow", () => {
    expect(working(replayControls(null))).toEqual(["start"]);
    expect(working(replayControls(replay({})))).toEqual(["pause", "stop", "abort"]);
    expect(working(replayControls(replay({ state: "PAUSED" })))).toEqual(["resume", "stop", "abort"]);
    expect(working(replayControls(replay({ state: "PAUSED", here: false })))).toEqual(["start", "abort"]);
    expect(working(replayControls(replay({ state: "DONE" })))).toEqual([]);
    expect(working(replayControls(replay({ state: "ABORTED", here: false })))).toEqual([]);
  });

  it("has a mark for every state, also for one that is new", () => {
    expect(replayMark("ABORTED")).toEqual({ state: "stopped", text: "given up" });
    expect(replayMark("FENCED")).toEqual({ state: "unknown", text: "fenced" });
  });
});

describe("the progress of a replay", () => {
  it("counts parked and skipped records too", () => {
    expect(progressOf(replay({ written: 30, parked: 2, skipped: 3 }))).toEqual({ share: 35 / 60, finished: 35, text: "30 written, 2 parked, 3 skipped of 60" });
    expect(progressOf(replay({ records: null })).share).toBe(null);
    expect(progressOf(replay({ records: 0, written: 0 })).share).toBe(1);
  });

  it("has the speed of the last seconds, and none while nothing moves", () => {
    let samples = withProgress([], { at: 1_000, finished: 0 });
    expect(speedText(samples, 60)).toBe(null);
    samples = withProgress(samples, { at: 3_000, finished: 100 });
    expect(speedText(samples, 500)).toBe("50 records/s, 10 s left");
    expect(speedText(withProgress(samples, { at: 30_000, finished: 100 }), 500)).toBe(null);
    expect(withProgress(samples, { at: 4_000, finished: 2 })).toEqual([{ at: 4_000, finished: 2 }]);
  });

  it("takes a rate above 0, or none", () => {
    expect([rateOf(""), rateOf("0.5"), rateOf("0"), rateOf("x"), rateOf("1000001")]).toEqual([null, 0.5, undefined, undefined, undefined]);
  });
});
