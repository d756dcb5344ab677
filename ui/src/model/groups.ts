/** The state of a share group in one word, and its rate of dead letters as a picture. */

import type { BreakerEvent, MinuteRate, PauseReason, ShareGroupRow } from "../api/shapes";
import { count, percent } from "./format";
import type { StateName } from "./freshness";

/** `problem`: the server has not read the state to its end, so that a pause may be missing. */
export function groupState(group: ShareGroupRow, problem: string | null): { state: StateName; text: string } {
  if (group.paused === null || (problem !== null && !group.paused)) return { state: "unknown", text: "unknown" };
  if (group.tripped === true) return { state: "stopped", text: "paused by its breaker" };
  if (group.paused) return { state: "stopped", text: "paused" };
  return group.breaker_enabled === true ? { state: "good", text: "running" } : { state: "unknown", text: "running, breaker off" };
}

/** When the first of the reasons that still hold began. */
export function pausedSince(group: ShareGroupRow): number | null {
  const times = group.pause_reasons.flatMap((reason) => (reason.since === null ? [] : [reason.since]));
  return times.length === 0 ? null : Math.min(...times);
}

export function reasonText(reason: PauseReason): string {
  return reason.text ?? reason.code ?? "without a reason";
}

export interface ChartBar {
  x: number;
  width: number;
  height: number;
  isOver: boolean;
  title: string;
  minute: number;
}

/** A trip or a pause, a resume, and anything else that happened. */
export type MarkShape = "stop" | "resumed" | "other";

export interface RateChart {
  bars: ChartBar[];
  /** The height of the threshold; null without a breaker. */
  threshold: number | null;
  marks: { x: number; event: BreakerEvent; shape: MarkShape }[];
  top: number; // percent at the top of the picture
}

const MINUTE_MS = 60_000;

/**
 * One bar a minute from `now - minutes` to `now`, in a picture of this size. The scale ends at twice the threshold, so
 * that quiet groups look quiet, or at the highest rate where that is more.
 */
export function rateChart(
  known: { rates: readonly MinuteRate[]; events: readonly BreakerEvent[]; thresholdPercent: number | null },
  now: number,
  minutes: number,
  size: { width: number; height: number },
): RateChart {
  const begin = (Math.floor(now / MINUTE_MS) + 1 - minutes) * MINUTE_MS;
  const step = size.width / minutes;
  const place = (at: number) => ((at - begin) / MINUTE_MS) * step;
  const highest = Math.max(0, ...known.rates.map((one) => (one.dlq_rate ?? 0) * 100));
  const top = Math.min(100, Math.max(highest, 2 * (known.thresholdPercent ?? 0), 1));
  const inside = (at: number) => at >= begin && at <= begin + minutes * MINUTE_MS;
  const bars = known.rates.filter((one) => inside(one.minute)).map((one): ChartBar => {
    const rate = (one.dlq_rate ?? 0) * 100;
    return {
      x: place(one.minute),
      width: Math.max(1, step - 1),
      height: Math.min(size.height, (rate / top) * size.height),
      isOver: known.thresholdPercent !== null && rate > 0 && rate >= known.thresholdPercent,
      title: `${percent(one.dlq_rate)}: ${count(one.dead_lettered)} of ${count(one.processed)} records`,
      minute: one.minute,
    };
  });
  return {
    bars,
    threshold: known.thresholdPercent === null ? null : size.height - (known.thresholdPercent / top) * size.height,
    marks: known.events.filter((event) => inside(event.at)).map((event) => ({ x: place(event.at), event, shape: markShape(event.event) })),
    top,
  };
}

function markShape(event: string): MarkShape {
  if (event === "tripped" || event === "paused") return "stop";
  return event === "resumed" ? "resumed" : "other";
}

/** What the shapes of such a picture mean; only those that are in it. */
export function chartMeanings(chart: RateChart, thresholdPercent: number | null): { shape: "bar" | "over" | "threshold" | MarkShape; text: string }[] {
  const has = (shape: MarkShape) => chart.marks.some((mark) => mark.shape === shape);
  return [
    { shape: "bar", text: "a minute" },
    ...(chart.bars.some((bar) => bar.isOver) ? [{ shape: "over" as const, text: "threshold reached" }] : []),
    ...(thresholdPercent === null ? [] : [{ shape: "threshold" as const, text: `threshold ${thresholdPercent} %` }]),
    ...(has("stop") ? [{ shape: "stop" as const, text: "trip or pause" }] : []),
    ...(has("resumed") ? [{ shape: "resumed" as const, text: "resume" }] : []),
    ...(has("other") ? [{ shape: "other" as const, text: "other" }] : []),
  ];
}
