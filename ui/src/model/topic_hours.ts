/** Bytes of a topic by hour as bars: what is written stands above the line of the axis, what is read below it. */

import type { TopicActivity } from "../api/shapes";

export interface HourBar {
  key: string;
  x: number;
  y: number;
  width: number;
  height: number;
  className: "written" | "read";
}

export interface HourChart {
  bars: HourBar[];
  /** Where days begin, in the zone of the viewer. */
  days: { x: number; at: number }[];
  highest: number;
}

/** Both directions have the same scale, so that a topic that is read twice looks like it. */
export function hourChart(activity: Pick<TopicActivity, "since" | "hour_ms" | "written" | "read">, size: { width: number; height: number }): HourChart {
  const hours = activity.written.length;
  const step = size.width / Math.max(1, hours);
  const highest = Math.max(0, ...activity.written, ...activity.read);
  const half = size.height / 2;
  const bars = (values: readonly number[], className: HourBar["className"]): HourBar[] =>
    values.flatMap((value, place) => {
      if (value === 0) return [];
      const height = Math.max(1, (value / highest) * half);
      const y = className === "written" ? half - height : half;
      return [{ key: `${className} ${place}`, x: place * step, y, width: Math.max(0.5, step - 0.5), height, className }];
    });
  const days: HourChart["days"] = [];
  for (let place = 0; place < hours; place += 1) {
    const at = activity.since + place * activity.hour_ms;
    if (new Date(at).getHours() === 0) days.push({ x: place * step, at });
  }
  return { bars: [...bars(activity.written, "written"), ...bars(activity.read, "read")], days, highest };
}
