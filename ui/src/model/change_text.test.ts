import { expect, test } from "vitest";
import { detailText, hostsOf } from "./change_text";

const BREAKER = "share.group.dlq.circuit.breaker";

test("a trip has its records, its window and the threshold", () => {
  const detail = { delivered: 48, dlq_written: 12, threshold_percent: 20, window_ms: 30_000, generation: 3, resume_at: null };
  expect(detailText("tripped", detail)).toBe("12 of 60 records (20 %) in 30 s, threshold 20 %");
  expect(detailText("tripped", { dlq_written: 12 })).toBe("");
});

test("a pause and a resume have their reason", () => {
  expect(detailText("paused", { reason: "maintenance <b>now</b>" })).toBe("maintenance <b>now</b>");
  expect(detailText("resumed", { reason: "the downstream is back", generation: 2 })).toBe("the downstream is back");
  expect(detailText("resumed", { reason: "auto-resume", generation: 2 })).toBe("by itself, after the time that is set");
  expect(detailText("paused", {})).toBe("");
});

test("a changed config has the value before and after, by the words of the page", () => {
  const name = `${BREAKER}.threshold.percent`;
  expect(detailText("config_changed", { changes: { [name]: "30" }, before: { [name]: "20" } })).toBe("threshold 20 % → 30 %");
  expect(detailText("config_changed", { changes: { [name]: null }, before: { [name]: "20" } })).toBe("threshold 20 % → default");
  expect(detailText("config_changed", { changes: { [name]: "30" } })).toBe("threshold → 30 %"); // an event of an earlier release
  const several = { [`${BREAKER}.enable`]: "true", [`${BREAKER}.window.ms`]: "60000", "errors.deadletterqueue.topic.name": "dlq.x", "some.config": "a" };
  const before = { [`${BREAKER}.enable`]: "false", [`${BREAKER}.window.ms`]: null, "errors.deadletterqueue.topic.name": null, "some.config": "b" };
  expect(detailText("config_changed", { changes: several, before })).toBe(
    "breaker off → on, window default → 60 s, dead-letter topic none → dlq.x, and 1 more",
  );
});

test("a topology has what was added, removed and changed, inputs and outputs first", () => {
  const one = (element: string, name: string, change: string) => ({ element, name, change });
  const changes = [one("input", "customers", "added"), one("output", "audit", "removed"), one("processor", "join", "changed"), one("sink", "s", "added")];
  expect(detailText("topology_changed", { counts: { added: 2, removed: 1, changed: 1 }, changes })).toBe(
    "added input customers, removed output audit, changed processor join, and 1 more",
  );
  expect(detailText("topology_changed", { event_id: "e", depth: 2, counts: { added: 2, removed: 1 } })).toBe("2 added, 1 removed"); // of a cause
  const io = [one("input", "orders", "added"), one("output", "a", "added"), one("output", "b", "added"), one("processor", "p", "added")];
  expect(detailText("topology_added", { counts: { added: 12 }, changes: io })).toBe("reads orders; writes a, b");
  expect(detailText("topology_added", { counts: { added: 11 }, changes: [one("processor", "p", "added")] })).toBe("11 added");
  expect(detailText("topology_removed", { counts: { removed: 12 }, changes: [] })).toBe("its description was deleted");
});

test("members that disagree, and dead letters that are late, missing or void", () => {
  const sides = [
    { member_count: 1, refused: false, members: [{ host: "10.0.0.21" }] },
    { member_count: 2, refused: true, members: [{ host: "10.0.0.22" }, { host: "10.0.0.23" }] },
  ];
  expect(detailText("topology_mismatch", { state: "open", topology_count: 2, topologies: sides })).toBe(
    "1 member on 10.0.0.21; 2 members, refused by the broker, on 10.0.0.22, 10.0.0.23",
  );
  expect(detailText("topology_mismatch", { state: "ended" })).toBe("all members run the same again");
  const place = { topic: "orders", partition: 3, offsets: [[7, 9], [12, 12]] };
  expect(detailText("write_timeout", { ...place, reason: "the topic does not exist", spooled: true })).toBe(
    "4 records of orders, partition 3, wait in the spool: the topic does not exist",
  );
  expect(detailText("write_timeout", { ...place, reason: "full", spooled: false })).toBe("4 records of orders, partition 3, archived without a dead letter: full");
  expect(detailText("late_write", place)).toBe("4 dead letters of orders, partition 3");
  expect(detailText("dead_letter_withdrawn", { topic_id: "x", partition: 0, offsets: [[1, 1]] })).toBe("1 dead letter of partition 0");
  expect(detailText("isolation_conflict", { dlq_topic: "dlq.x", registered_by: "billing" })).toBe("dlq.x is the topic of billing");
});

test("of many hosts the first are named", () => {
  expect(hostsOf(["a", "b", "a", "c", "d", "e"].map((host) => ({ host })))).toBe("a, b, c and 2 more");
});

test("an operation says what it was and how it ended", () => {
  expect(detailText("operation", { operation: "resume", reason: "back", outcome: "done", error: null })).toBe("resume: back");
  expect(detailText("operation", { operation: "pause_replay", plan: "6afb", outcome: "refused", error: "not yours" })).toBe("pause replay, plan 6afb, refused: not yours");
});

test("the causes of a trip: who came, who left, and what fell behind", () => {
  expect(detailText("joined", { app_id: "enricher", host: "10.0.0.7" })).toBe("on 10.0.0.7");
  expect(detailText("started", { direction: "write", host: "10.0.0.8", principal: "User:shop" })).toBe("as User:shop, on 10.0.0.8");
  expect(detailText("grew", { lag_before: 12, lag: 5_000, depth: 0, read_topic: "orders" })).toBe("12 → 5,000 records behind");
});

test("what others wrote is one short line of printable text, and anything else is nothing", () => {
  const hostile = `<img src=x>\u202e\r\n${"n".repeat(40_000)}`;
  for (const [event, detail] of [
    ["paused", { reason: hostile }],
    ["config_changed", { changes: { [hostile]: hostile, b: hostile, c: hostile, d: hostile }, before: { [hostile]: hostile } }],
    ["topology_changed", { changes: [0, 1, 2, 3].map((number) => ({ element: hostile, name: `${number}${hostile}`, change: hostile })) }],
    ["topology_mismatch", { state: "open", topologies: [{ member_count: 1, refused: false, members: [{ host: hostile }] }] }],
    ["operation", { operation: hostile, reason: hostile, outcome: hostile, plan: hostile, error: hostile }],
  ] as const) {
    const text = detailText(event, detail);
    expect(text.length).toBeGreaterThan(10);
    expect(text.length).toBeLessThanOrEqual(200);
    expect(text).not.toMatch(/[\u0000-\u001f\u202e]/);
  }
  expect(detailText("config_changed", JSON.parse('{"changes": {"constructor": "1", "__proto__": "2"}, "before": {}}'))).toBe("constructor → 1, __proto__ → 2");
  for (const detail of [null, "{", 7, [], { reason: 7 }, { changes: 7 }, { changes: [null, 7] }, { changes: null }, { topologies: [null], state: "open" }, { offsets: [[9, 1], "x", [null, 2]], partition: "x" }]) {
    for (const event of ["tripped", "paused", "config_changed", "topology_changed", "topology_mismatch", "write_timeout", "late_write", "operation", "grew", "joined", "of_a_later_release"]) {
      expect(detailText(event, detail)).toBe("");
    }
  }
});
