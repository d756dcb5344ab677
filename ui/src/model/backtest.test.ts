import { describe, expect, it } from "vitest";
import type { Backtest, BacktestConfig } from "../api/shapes";
import { backtestRows, notRecommended, settingCommand } from "./backtest";

function config(threshold_percent: number, more: Partial<BacktestConfig> = {}): BacktestConfig {
  return { threshold_percent, window_ms: 60_000, min_messages: 100, trips: 1, paused_s: 300, avoided: 10, false_trips: 0, ...more };
}

function backtest(configs: BacktestConfig[], more: Partial<Backtest> = {}): Backtest {
  return { group: "sg", days: 7, configs, recommended: null, live: 0, from: 0, left_out_s: 0, ...more };
}

describe("rows of a back-test", () => {
  it("begin with the live setting and the recommended one", () => {
    const rows = backtestRows(backtest([config(20), config(10, { avoided: 50 }), config(5)], { recommended: 2 }));
    expect(rows.map((row) => row.config.threshold_percent)).toEqual([20, 5, 10]);
    expect(rows.map((row) => [row.isLive, row.isRecommended])).toEqual([
      [true, false],
      [false, true],
      [false, false],
    ]);
  });

  it("show the live setting once when it is the recommended one", () => {
    const rows = backtestRows(backtest([config(20), config(10)], { recommended: 0 }));
    expect(rows.map((row) => [row.config.threshold_percent, row.isRecommended])).toEqual([
      [20, true],
      [10, false],
    ]);
  });

  it("go on with settings without false trips that avoid most, and end after six", () => {
    const configs = [config(50), config(5, { false_trips: 1, avoided: 99 }), ...[10, 15, 20, 25, 30, 40].map((percent) => config(percent, { avoided: 60 - percent }))];
    const rows = backtestRows(backtest(configs, { live: null }));
    expect(rows.map((row) => row.config.threshold_percent)).toEqual([10, 15, 20, 25, 30, 40]);
  });
});

describe("no recommendation", () => {
  it("has a reason", () => {
    expect(notRecommended(backtest([config(20)], { recommended: 0 }))).toBe(null);
    expect(notRecommended(backtest([config(20, { trips: 0 })]))).toBe("No setting would have tripped in this time.");
    expect(notRecommended(backtest([config(20, { trips: 0 }), config(10, { false_trips: 1 })]))).toContain("one key alone caused each trip");
  });
});

describe("the command of a setting", () => {
  it("enables a breaker that is not enabled", () => {
    expect(settingCommand("sg", config(20), "gw:9092", false)).toContain("--add-config share.group.dlq.circuit.breaker.enable=true,share.group");
  });

  it("quotes the group", () => {
    expect(settingCommand("a b", config(20), "gw:9092", true)).toBe(
      "kafka-configs.sh --bootstrap-server gw:9092 --alter --entity-type groups --entity-name 'a b' --add-config " +
        "share.group.dlq.circuit.breaker.threshold.percent=20,share.group.dlq.circuit.breaker.window.ms=60000,share.group.dlq.circuit.breaker.min.messages=100",
    );
  });
});
