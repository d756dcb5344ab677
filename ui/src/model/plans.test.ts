import { describe, expect, it } from "vitest";
import type { Plan, PlanRequest } from "../api/replay_shapes";
import { emptyForm, formProblem, holdsText, isFanout, leftOut, planBody, planCommand, reasonBars, replayCommand } from "./plans";

const PLAN: Plan = {
  plan: "6afb-1", group: "billing", to: "original", targets: ["orders"], at: 1, by: "token alice", records: 60, to_park: 0,
  expired: 1, superseded: 2, already_replayed: 0, over_max_replays: 0, reasons: { rare: 10, common: 50 }, readers: [], oldest_at: null,
  state: "PLANNED", written: 0, parked: 0, skipped: 0,
};
const FORM = emptyForm("bill ing", "5f1c");

describe("a form for a plan", () => {
  it("sends what was filled in, and shows the same command", () => {
    expect(planBody(FORM)).toEqual({ group: "bill ing", to: "original", cluster: "5f1c", accept_fanout: false, include_superseded: false });
    expect(planCommand(FORM)).toBe("headgate dlq plan --group 'bill ing' --cluster 5f1c --to original --config FILE");
    const full = { ...FORM, by: "topic" as const, name: "dlq.o", to: "topic" as const, target: "again", where: "reason = 'x'", episode: "", since: "2026-11-15T12:00", acceptFanout: true, includeSuperseded: true };
    expect(planBody(full)).toMatchObject({ topic: "dlq.o", to: "again", where: "reason = 'x'", since: new Date("2026-11-15T12:00").getTime(), accept_fanout: true, include_superseded: true });
    expect(planBody(full)).not.toHaveProperty("cluster");
    expect(planCommand(full)).toContain("--topic dlq.o --where 'reason = '\\''x'\\''' --since 2026-");
    expect(planCommand(full)).toContain("--to again --accept-fanout --include-superseded");
  });

  it("says what is missing", () => {
    expect(formProblem(FORM)).toBe(null);
    expect(formProblem({ ...FORM, name: " " })).toBe("Name the group.");
    expect(formProblem({ ...FORM, to: "topic" })).toBe("Name the topic to write to.");
    expect(formProblem({ ...FORM, since: "2026-11-15T12:00", until: "2026-11-15T11:00" })).toBe("The end must be after the beginning.");
  });

  it("offers to accept readers only where they are the reason", () => {
    const request: PlanRequest = { request: "r", state: "REFUSED", plan: null, text: "others read orders:\n  streams totals\nuse --accept-fanout if", group: "billing", at: 1, by: null };
    expect(isFanout(request)).toBe(true);
    expect(isFanout({ ...request, text: "orders is not in [replay] topics" })).toBe(false);
    expect(isFanout({ ...request, state: "FAILED" })).toBe(false);
  });
});

describe("a plan", () => {
  it("says what it holds and what it leaves out", () => {
    expect(holdsText(PLAN)).toBe("60 records to be replayed");
    expect(holdsText({ ...PLAN, records: 1, to_park: 3 })).toBe("1 record to be replayed, 3 to be parked");
    expect(leftOut(PLAN).map((one) => [one.key, one.number])).toEqual([["expired", 1], ["superseded", 2]]);
    expect(reasonBars(PLAN).map((one) => [one.reason, Math.round(one.share * 100)])).toEqual([["common", 83], ["rare", 17]]);
    expect(reasonBars({ ...PLAN, reasons: {} })).toEqual([]);
  });

  it("is replayed by a command with the same settings", () => {
    expect(replayCommand("6afb-1", 10, "now", true)).toBe("headgate dlq replay 6afb-1 --rate 10 --timestamp now --dry-run --config FILE --command-config OPERATOR.properties");
    expect(replayCommand("6afb-1", null, "original", false)).toBe("headgate dlq replay 6afb-1 --config FILE --command-config OPERATOR.properties");
  });
});
