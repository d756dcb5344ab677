import { expect, test } from "vitest";
import type { AttentionCounts, AttentionItem } from "../api/attention_shapes";
import type { ShareGroupRow } from "../api/shapes";
import { chartMeanings, groupState, rateChart } from "./groups";
import { changeText, nowCards, sinceText, summaryParts, watchedText } from "./now_cards";

const NOW = 1_794_744_000_000;
const HEALTH = { ready: false, problems: { "connect.main": "no such topic" }, version: "1", tables: [], tables_path: null, pipeline: [], rejected: null };

function group(name: string, more: Partial<ShareGroupRow> = {}): ShareGroupRow {
  return { name, managed: true, breaker_enabled: true, paused: false, tripped: false, pause_reasons: [], generation: 1, auto_resume_at: null, dlq_topic: null, dlq_topic_hidden: false, ...more };
}

function item(kind: AttentionItem["kind"], more: Partial<AttentionItem> = {}): AttentionItem {
  return {
    kind, state: kind === "paused" ? "stopped" : "attention", subject_kind: "share_group", subject: "sg one", since: NOW, tripped: false,
    pause_reasons: [], auto_resume_at: null, now: null, before: null, mismatch: null, gaps: [], gap_count: 0, points: [], causes: [], causes_left_out: 0, ...more,
  };
}

const PAUSED = group("sg one", { paused: true, tripped: true, pause_reasons: [{ code: "TRIPPED", text: "too many", by: null, since: NOW - 60_000 }] });

test("a paused group is a card with its reasons, the next action, and the command that resumes it", () => {
  const reason = { code: "TRIPPED", text: "too many", by: "headgate", since: NOW };
  const [card] = nowCards({ items: [item("paused", { tripped: true, pause_reasons: [reason, { ...reason, text: "deploy", by: "User:ops" }] })], health: null, leader: null, gateway: "gw:9092" });
  expect(card).toMatchObject({ state: "stopped", title: "paused by its breaker", facts: ["too many", "deploy (User:ops)"] });
  expect(card?.action).toEqual({ text: "Resume…", to: "/groups/-/sg%20one?do=resume" });
  expect(card?.command).toBe("headgate share-groups --bootstrap-server gw:9092 --resume --group 'sg one' --reason REASON");
  expect(card?.letters).toBe(`/letters/-/sg%20one?at=${NOW}`);
  expect(nowCards({ items: [item("paused"), item("lag")], health: null, leader: null, gateway: "gw:9092" }).map((one) => one.letters)).toEqual([null, null]);
});

test("growth has both figures and their change, also from nothing", () => {
  const cards = nowCards({ items: [item("dead_letters", { now: 412, before: 298 }), item("lag", { subject_kind: "consumer_group", now: 5000, before: 0 })], health: null, leader: null, gateway: "gw:9092" });
  expect(cards.map((card) => card.facts[0])).toEqual([
    "412 in the last hour, 298 in the hour before (↑\u00a038\u00a0%)",
    "5,000 records behind, 0 half an hour ago",
  ]);
  expect(cards[1]?.action).toBeNull(); // consumer groups have no view
  expect([changeText(1, 0), changeText(5, 5), changeText(5, 10), changeText(null, 1)]).toEqual([null, "unchanged", "↓\u00a050\u00a0%", null]);
});

test("a mismatch says who runs what where", () => {
  const side = (host: string | null, refused: boolean) => ({ fingerprint: "a", refused, member_count: 2, members: [{ member: "m", host }] });
  const mismatch = { since: NOW, kind: "refused", topology_count: 2, topologies: [side("10.0.0.7", false), side(null, true)] };
  const [card] = nowCards({ items: [item("mismatch", { subject_kind: "streams", mismatch })], health: null, leader: null, gateway: "gw:9092" });
  expect(card?.facts).toEqual(["Its members run 2 topologies: 2 members on 10.0.0.7; 2 members, refused by the broker, on unknown hosts."]);
});

test("what is stopped comes before what needs a look, and the order of the server stays", () => {
  const run = { query: "facts", state: "failed", started_at: 1, ended_at: null, at: NOW, lag: null, rejected: 0, table: null, problem: null };
  const items = [item("paused"), item("lag", { subject: "b" }), item("gaps", { subject: "a", gap_count: 2 })];
  expect(nowCards({ items, health: { ...HEALTH, pipeline: [run] }, leader: null, gateway: "gw:9092" }).map((card) => card.key)).toEqual([
    "paused share_group sg one",
    "pipeline facts",
    "lag share_group b",
    "gaps share_group a",
    "topic connect.main",
  ]);
});

test("what the gateway does for groups is missing while nobody leads, and that is the first card", () => {
  const leader = { state: "nobody", duty: "breakers", workers: [], truncated: false, at: NOW, problem: null } as const;
  const cards = nowCards({ items: [item("paused")], health: null, leader: { ...leader, workers: [] }, gateway: "gw:9092" });
  expect(cards.map((card) => [card.key, card.state])).toEqual([
    ["leader", "stopped"],
    ["paused share_group sg one", "stopped"],
  ]);
  expect(nowCards({ items: [], health: null, leader: { ...leader, workers: [], state: "electing" }, gateway: "gw:9092" })).toEqual([]);
});

test("a name of an argument stays one argument", () => {
  const [card] = nowCards({ items: [item("lag", { subject: "a b; rm" })], health: null, leader: null, gateway: "gw:9092" });
  expect(card?.command).toContain("--where 'group=a b; rm'");
});

test("the line on top has what there is, and dead letters also where they are few", () => {
  const none: AttentionCounts = { paused: 0, mismatches: 0, new_gaps: 0, older_gaps: 9, dead_letters_hour: 3, dead_letters_before: 6, growing_lags: 0 };
  expect(summaryParts(none).map((part) => [part.state, part.text])).toEqual([["good", "3 dead letters/h ↓\u00a050\u00a0%"]]);
  const much = summaryParts({ ...none, paused: 1, new_gaps: 2, mismatches: 1, growing_lags: 1, dead_letters_hour: 412, dead_letters_before: 298 });
  expect(much.map((part) => part.text)).toEqual(["1 group paused", "1 mismatch", "1 lag grows", "2 new gaps", "412 dead letters/h ↑\u00a038\u00a0%"]);
  expect(summaryParts({ ...none, dead_letters_hour: null })).toEqual([]);
});

test("what is not known is not watched", () => {
  const found = watchedText({ share_groups: 2, applications: 1, topics: null, groups_with_lags: 0 }, true);
  expect(found).toEqual({ watched: ["2 share groups", "1 application", "0 lags of groups"], unwatched: ["topics"] });
  expect(watchedText({ share_groups: 2, applications: 1, topics: 1, groups_with_lags: 1 }, false).unwatched).toEqual(["share groups"]);
});

test("since when: the time of the viewer, with the day where it is another one", () => {
  expect(sinceText(NOW - 240_000, NOW, "UTC")).toBe("since 11:56 (4 min)");
  expect(sinceText(NOW - 240_000, NOW, "Asia/Tokyo")).toBe("since 20:56 (4 min)");
  expect(sinceText(NOW - 86_400_000, NOW, "UTC")).toBe("since 2026-11-14 12:00 (1 d)");
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
  expect(chartMeanings(chart, 20).map((one) => one.text)).toEqual(["a minute", "threshold reached", "threshold 20 %"]);
});

test("marks on the rate have a shape for stops, resumes and other events, which the legend names", () => {
  const known = { by: null, reason: null, dlq_written: null, delivered: null, threshold_percent: null, window_ms: null };
  const events = ["tripped", "paused", "resumed", "config_changed"].map((event) => ({ ...known, event_id: event, event, at: NOW - 60_000 }));
  const chart = rateChart({ rates: [], events, thresholdPercent: null }, NOW, 60, { width: 600, height: 100 });
  expect(chart.marks.map((mark) => mark.shape)).toEqual(["stop", "stop", "resumed", "other"]);
  expect(chartMeanings(chart, null).map((one) => one.text)).toEqual(["a minute", "trip or pause", "resume", "other"]);
});
