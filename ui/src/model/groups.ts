/** The state of a share group in one word, and the scale of its rate. */

import type { ShareGroup } from "../api/shapes";
import type { StateName } from "./freshness";

export function groupState(group: ShareGroup): { state: StateName; text: string } {
  if (group.paused) return { state: "stopped", text: "paused" };
  if (group.spooled > 0) return { state: "attention", text: "dead letters waiting" };
  if (!group.enabled) return { state: "unknown", text: "breaker off" };
  if (rateScale(group).isOver) return { state: "attention", text: "over the threshold" };
  return { state: "good", text: "running" };
}

/** Both in percent of the bar, which ends at twice the threshold, or at the rate where that is higher. */
export function rateScale(group: ShareGroup): { rate: number; threshold: number; isOver: boolean } {
  const rate = (group.dlq_rate ?? 0) * 100;
  const threshold = Math.max(group.threshold_percent, 0);
  const end = Math.min(100, Math.max(2 * threshold, rate, 1));
  return {
    rate: Math.min(100, (rate / end) * 100),
    threshold: Math.min(100, (threshold / end) * 100),
    isOver: rate >= threshold && rate > 0,
  };
}
