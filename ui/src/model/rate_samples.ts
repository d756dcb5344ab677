/** The rate of dead letters of the breaker's window, as it was read once a second: a line beside the threshold. */

export interface RateSample {
  at: number;
  /** 0 to 1; null while nothing was counted. */
  rate: number | null;
}

export const SPAN_MS = 3 * 60_000;

/** With the new sample, and without those that are too old; one of the same time is the same one. */
export function withSample(samples: readonly RateSample[], sample: RateSample): RateSample[] {
  const last = samples.at(-1);
  if (last !== undefined && last.at >= sample.at) return [...samples];
  return [...samples.filter((one) => one.at > sample.at - SPAN_MS), sample];
}

export interface RateLine {
  /** Points of an SVG polyline, one for each stretch without a gap. */
  lines: string[];
  threshold: number | null;
  top: number; // percent at the top of the picture
}

const GAP_MS = 10_000;

/** The scale ends at twice the threshold, or at the highest rate where that is more. */
export function rateLine(samples: readonly RateSample[], thresholdPercent: number | null, now: number, size: { width: number; height: number }): RateLine {
  const highest = Math.max(0, ...samples.map((one) => (one.rate ?? 0) * 100));
  const top = Math.min(100, Math.max(highest, 2 * (thresholdPercent ?? 0), 1));
  const lines: string[][] = [];
  let before = Number.NEGATIVE_INFINITY;
  for (const { at, rate } of samples) {
    const x = size.width * (1 - (now - at) / SPAN_MS);
    if (x < 0 || x > size.width) continue;
    if (at - before > GAP_MS) lines.push([]);
    lines.at(-1)?.push(`${x.toFixed(1)},${(size.height * (1 - ((rate ?? 0) * 100) / top)).toFixed(1)}`);
    before = at;
  }
  return {
    lines: lines.map((points) => points.join(" ")),
    threshold: thresholdPercent === null ? null : size.height * (1 - thresholdPercent / top),
    top,
  };
}
