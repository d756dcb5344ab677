/** How far a replay is, what its state means, and which of its buttons work. */

import type { Replay } from "../api/replay_shapes";
import { count, duration } from "./format";
import type { StateName } from "./freshness";

const MARKS: Readonly<Record<string, { state: StateName; text: string }>> = {
  PLANNED: { state: "unknown", text: "planned" },
  STARTING: { state: "good", text: "starting" },
  RUNNING: { state: "good", text: "running" },
  PAUSED: { state: "attention", text: "paused" },
  DONE: { state: "good", text: "done" },
  FAILED: { state: "stopped", text: "failed" },
  ABORTED: { state: "stopped", text: "given up" },
};

export function replayMark(state: string): { state: StateName; text: string } {
  return MARKS[state] ?? { state: "unknown", text: state.toLowerCase() };
}

export interface ReplayControls {
  start: boolean;
  pause: boolean;
  resume: boolean;
  stop: boolean;
  abort: boolean;
}

/** Without a replay the plan can be started. What another process runs can only be ended for good. */
export function replayControls(replay: Replay | null): ReplayControls {
  const none = { start: false, pause: false, resume: false, stop: false, abort: false };
  if (replay === null) return { ...none, start: true };
  const isOver = replay.state === "DONE" || replay.state === "ABORTED";
  if (isOver) return none;
  const isPlanned = replay.state === "PLANNED";
  if (!replay.here) return { ...none, start: true, abort: !isPlanned };
  return { ...none, pause: replay.state === "RUNNING" || replay.state === "STARTING", resume: replay.state === "PAUSED", stop: true, abort: true };
}

export interface Progress {
  /** From 0 to 1; null where it is not known of how many. */
  share: number | null;
  finished: number;
  text: string;
}

/** A skipped record is finished too: it will not be tried again by this plan. */
export function progressOf(replay: Pick<Replay, "records" | "written" | "parked" | "skipped">): Progress {
  const finished = replay.written + replay.parked + replay.skipped;
  const parts = [`${count(replay.written)} written`];
  if (replay.parked > 0) parts.push(`${count(replay.parked)} parked`);
  if (replay.skipped > 0) parts.push(`${count(replay.skipped)} skipped`);
  const of = replay.records === null ? "" : ` of ${count(replay.records)}`;
  const share = replay.records === null ? null : replay.records === 0 ? 1 : Math.min(1, finished / replay.records);
  return { share, finished, text: `${parts.join(", ")}${of}` };
}

export interface ProgressSample {
  at: number;
  finished: number;
}

const WINDOW_MS = 15_000;

/** The samples of the last seconds; a count that goes back begins anew. */
export function withProgress(before: readonly ProgressSample[], sample: ProgressSample): ProgressSample[] {
  const last = before.at(-1);
  if (last !== undefined && sample.finished < last.finished) return [sample];
  return [...before.filter((one) => one.at > sample.at - WINDOW_MS && one.at < sample.at), sample];
}

/** Records a second as seen here, and how long the rest takes at that speed; null where nothing moves. */
export function speedText(samples: readonly ProgressSample[], left: number | null): string | null {
  const [first, last] = [samples[0], samples.at(-1)];
  if (first === undefined || last === undefined || last.at <= first.at || last.finished <= first.finished) return null;
  const rate = ((last.finished - first.finished) * 1_000) / (last.at - first.at);
  const speed = `${rate >= 10 ? count(Math.round(rate)) : rate.toFixed(1)} records/s`;
  return left === null || left <= 0 ? speed : `${speed}, ${duration(Math.max(1_000, (left * 1_000) / rate))} left`;
}

/** A rate of a form: null for as fast as possible, undefined where it is no rate. */
export function rateOf(field: string): number | null | undefined {
  if (field.trim() === "") return null;
  const rate = Number(field);
  return Number.isFinite(rate) && rate > 0 && rate <= 1_000_000 ? rate : undefined;
}
