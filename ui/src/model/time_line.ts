/** The time line under the map: its span, its ticks, and the times that its handles can have. */

import type { Change } from "../api/shapes";

export const SPANS = ["1h", "1d", "7d", "30d"] as const;
export type Span = (typeof SPANS)[number];

export const SPAN_MS: Readonly<Record<Span, number>> = { "1h": 3_600_000, "1d": 86_400_000, "7d": 604_800_000, "30d": 2_592_000_000 };
export const SPAN_WORDS: Readonly<Record<Span, string>> = { "1h": "1 hour", "1d": "1 day", "7d": "7 days", "30d": "30 days" };

const STEPS = 240;
const MINUTE = 60_000;

export interface Range {
  from: number;
  to: number;
  step: number;
}

/** The last so long, in whole steps: it stays the same for a while, so that it is not requested again all the time. */
export function rangeOf(span: Span, now: number): Range {
  const step = Math.max(MINUTE, SPAN_MS[span] / STEPS);
  const to = Math.ceil(now / step) * step;
  return { from: to - SPAN_MS[span], to, step };
}

/** The place of a time, from 0 to 1. */
export function shareOf(range: Range, at: number): number {
  return Math.min(1, Math.max(0, (at - range.from) / (range.to - range.from)));
}

/** The time at a place; null, which is live, at the right end. */
export function timeAt(range: Range, share: number): number | null {
  const at = range.from + Math.round((Math.min(1, Math.max(0, share)) * (range.to - range.from)) / range.step) * range.step;
  return at >= range.to ? null : at;
}

export interface Tick {
  share: number;
  /** After the last change of the tick, so that the map at this time has it. */
  at: number;
  count: number;
  title: string;
  isTrip: boolean;
}

const BINS = 160;

/** Changes that are too near to each other to be told apart are one tick. */
export function ticks(changes: readonly Change[], range: Range): Tick[] {
  const bins = new Map<number, Change[]>();
  for (const one of changes) {
    if (one.at < range.from || one.at > range.to) continue;
    const bin = Math.min(BINS - 1, Math.floor(shareOf(range, one.at) * BINS));
    bins.set(bin, [...(bins.get(bin) ?? []), one]);
  }
  return [...bins.values()]
    .map((found): Tick => {
      const at = Math.max(...found.map((one) => one.at));
      const first = found[0];
      const title = found.length === 1 && first !== undefined ? `${first.event.replaceAll("_", " ")}: ${first.subject}` : `${found.length} changes`;
      return { share: shareOf(range, at), at: at + 1, count: found.length, title, isTrip: found.some((one) => one.event.includes("trip")) };
    })
    .sort((a, b) => a.at - b.at);
}

/** Where a key moves a handle: steps, changes, the ends; undefined for other keys. */
export function moved(range: Range, found: readonly Tick[], at: number | null, key: string): number | null | undefined {
  const now = at ?? range.to;
  const clamped = (time: number) => (time >= range.to ? null : Math.max(range.from, time));
  switch (key) {
    case "ArrowLeft":
    case "ArrowDown":
      return clamped(now - range.step);
    case "ArrowRight":
    case "ArrowUp":
      return clamped(now + range.step);
    case "Home":
      return range.from;
    case "End":
      return null;
    case "PageDown":
      return found.filter((tick) => tick.at < now).pop()?.at ?? range.from;
    case "PageUp":
      return found.find((tick) => tick.at > now)?.at ?? null;
    default:
      return undefined;
  }
}
