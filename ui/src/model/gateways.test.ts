import { describe, expect, it } from "vitest";
import type { Leader, Workers } from "../api/shapes";
import { gatewayRows, leaderMark, versionsOf } from "./gateways";

const LED: Leader = {
  state: "led",
  duty: "breakers",
  workers: [
    { worker: "gw-a:9092/0", version: "0.2.0", host: "10.0.0.1", is_leader: true },
    { worker: "gw-b:9092/0", version: "0.1.0", host: "10.0.0.2", is_leader: false },
    { worker: null, version: null, host: "10.0.0.3", is_leader: false },
  ],
  truncated: false,
  at: 5,
  problem: null,
};
const REPORTS: Workers = {
  workers: [
    { worker: "gw-a:9092/0", last_seen: 3, starts: 2 },
    { worker: "gw-c:9092/0", last_seen: 1, starts: 1 },
  ],
  since: 0,
  truncated: false,
};

describe("gateways", () => {
  it("are those that Kafka knows with what they reported, and then those that only reported", () => {
    const rows = gatewayRows(LED, REPORTS);
    expect(rows.map(({ worker, version, role, starts }) => [worker, version, role, starts])).toEqual([
      ["gw-a:9092/0", "0.2.0", "leads", 2],
      ["gw-b:9092/0", "0.1.0", "ready", null],
      [null, null, "ready", null],
      ["gw-c:9092/0", null, "away", 1],
    ]);
    expect(new Set(rows.map(({ key }) => key)).size).toBe(4);
    expect(versionsOf(rows)).toEqual(["0.1.0", "0.2.0"]);
  });

  it("have no role where it is not known who leads, or where only some may lead", () => {
    expect(gatewayRows({ ...LED, state: "unknown", workers: [] }, REPORTS).map(({ role }) => role)).toEqual([null, null]);
    expect(gatewayRows({ ...LED, duty: "lags" }, REPORTS).at(-1)?.role).toBe(null);
    expect(gatewayRows(null, null)).toEqual([]);
  });
});

describe("the leader", () => {
  it("is missed as long as nobody leads", () => {
    expect(leaderMark(LED)?.state).toBe("good");
    expect(leaderMark({ ...LED, state: "nobody" })).toMatchObject({ state: "stopped", title: "No worker leads" });
    expect(leaderMark({ ...LED, state: "nobody", workers: [] })?.title).toBe("No gateway is connected to the cluster");
    expect(leaderMark({ ...LED, state: "nobody", duty: "lags" })?.text).toContain("lags");
    expect(leaderMark({ ...LED, state: "electing" })?.state).toBe("attention");
  });

  it("is unknown for a reason, and not missed where none is needed", () => {
    expect(leaderMark({ ...LED, state: "unknown", problem: "timed out" })).toMatchObject({ state: "unknown", text: "timed out" });
    expect(leaderMark({ ...LED, state: "off", duty: null })).toBe(null);
  });
});
