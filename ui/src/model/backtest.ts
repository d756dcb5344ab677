/** Which settings of a back-test are shown, and the command that sets one. */

import type { Backtest, BacktestConfig } from "../api/shapes";
import { groupConfigCommand } from "./commands";

const SHOWN = 6;
const PREFIX = "share.group.dlq.circuit.breaker";

export interface BacktestRow {
  config: BacktestConfig;
  isLive: boolean;
  isRecommended: boolean;
}

/** The live setting, the recommended one, and those that avoid most without false trips. */
export function backtestRows(found: Backtest): BacktestRow[] {
  const places = found.configs.map((_, place) => place);
  const first = [found.live, found.recommended].filter((place): place is number => place !== null);
  const byUse = [...places].sort((a, b) => compared(found.configs[a], found.configs[b]) || a - b);
  return [...new Set([...first, ...byUse])].slice(0, SHOWN).flatMap((place) => {
    const config = found.configs[place];
    return config === undefined ? [] : [{ config, isLive: place === found.live, isRecommended: place === found.recommended }];
  });
}

function compared(a: BacktestConfig | undefined, b: BacktestConfig | undefined): number {
  if (a === undefined || b === undefined) return 0;
  return a.false_trips - b.false_trips || b.avoided - a.avoided || a.paused_s - b.paused_s;
}

/** Why there is no recommended setting; null where there is one. */
export function notRecommended(found: Backtest): string | null {
  if (found.recommended !== null) return null;
  return found.configs.some((one) => one.trips > 0)
    ? "No setting is recommended: one member or one key alone caused each trip."
    : "No setting would have tripped in this time.";
}

/** Also enables a breaker that is not enabled. */
export function settingCommand(group: string, config: BacktestConfig, gateway: string, isEnabled: boolean): string {
  return groupConfigCommand(group, gateway, {
    ...(isEnabled ? {} : { [`${PREFIX}.enable`]: "true" }),
    [`${PREFIX}.threshold.percent`]: config.threshold_percent,
    [`${PREFIX}.window.ms`]: config.window_ms,
    [`${PREFIX}.min.messages`]: config.min_messages,
  });
}
