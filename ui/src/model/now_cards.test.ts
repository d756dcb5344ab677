import { expect, test } from "vitest";
import type { Change, ShareGroupRow } from "../api/shapes";
import { groupState, rateChart } from "./groups";
import { changesBefore, nowCards } from "./now_cards";

const NOW = 1_794_744_000_000;

function group(name: string, more: Partial<ShareGroupRow> = {}): ShareGroupRow {
  return { name, managed: true, breaker_enabled: true, paused: false, tripped: false, pause_reasons: [], generation: 1, auto_resume_at: null, dlq_topic: null, dlq_topic_hidden: false, ...more };
}

function change(event: string, subject: string, at: number): Change {
  return { event_id: `${event} ${at}`, event, subject_kind: "application", subject, by: null, at };
}

const PAUSED = group("sg one", { paused: true, tripped: true, pause_reasons: [{ code: "TRIPPED", text: "too many", by: null, since: NOW - 60_000 }] });

test("a paused group is a card with what changed before, and the command that resumes it", () => {
  const changes = [change("topology_changed", "shop", NOW - 120_000), change("topology_changed", "late", NOW)];
  const [card] = nowCards({ groups: [group("quiet"), PAUSED], changes, health: null });
  expect(card).toMatchObject({ state: "stopped", title: "paused by its breaker", since: NOW - 60_000, facts: ["too many"] });
  expect(card?.before.map((one) => one.subject)).toEqual(["shop"]);
  expect(card?.command).toContain("--resume --group 'sg one' --reason REASON");
});

test("groups that run, and that are not known, are no cards", () => {
  expect(nowCards({ groups: [group("a"), group("b", { paused: null })], changes: [], health: null })).toEqual([]);
});

test("what is stopped comes before what needs a look", () => {
  const health = { ready: false, problems: { "connect.main": "no such topic" }, tables: [], pipeline: [] };
  expect(nowCards({ groups: [PAUSED], changes: [], health }).map((card) => card.state)).toEqual(["stopped", "attention"]);
});

test("the group's own events are no cause, but its settings are", () => {
  const changes = [change("tripped", "sg", NOW - 1), change("config_changed", "sg", NOW - 2), change("paused", "other", NOW - 3_600_000)];
  expect(changesBefore(changes, NOW, "sg").map((one) => one.event)).toEqual(["config_changed"]);
});

test("a state that was not read to its end is unknown, unless it is a pause", () => {
  expect(groupState(group("a"), null).state).toBe("good");
  expect(groupState(group("a"), "not read").state).toBe("unknown");
  expect(groupState(PAUSED, "not read").state).toBe("stopped");
  expect(groupState(group("a", { breaker_enabled: false }), null).text).toBe("running, breaker off");
});

test("rates stand in their minutes below or above the threshold", () => {
  const minute = Math.floor(NOW / 60_000) * 60_000;
  const rates = [
    { minute: minute - 60_000, processed: 100, dead_lettered: 10, dlq_rate: 0.1 },
    { minute, processed: 100, dead_lettered: 40, dlq_rate: 0.4 },
    { minute: minute - 3_600_000, processed: 100, dead_lettered: 100, dlq_rate: null },
  ];
  const chart = rateChart({ rates, events: [], thresholdPercent: 20 }, NOW, 60, { width: 600, height: 100 });
  expect(chart.bars.map((bar) => [bar.x, bar.height, bar.isOver])).toEqual([
    [580, 25, false],
    [590, 100, true],
  ]);
  expect(chart.threshold).toBe(50);
});
