import { describe, expect, it } from "vitest";
import type { DeadLetter, Episode } from "../api/dead_letter_shapes";
import { actionText, episodeAt, episodeState, evidenceLines, expiryText, letterPointsText, lettersPath, newestOpen, nextCommand, nextStep, replayable, verdictText } from "./dead_letters";

function episode(more: Partial<Episode> = {}): Episode {
  return {
    id: "5f1c",
    group: "bill ing",
    verdict: "content",
    action: "fix_first",
    count: 25,
    first_at: 1,
    last_at: 2,
    ended_at: null,
    topics: ["orders"],
    member: null,
    feature: "schema_id=7",
    evidence: null,
    points: [],
    points_from: null,
    points_ms: null,
    ...more,
  };
}

function letter(more: Partial<DeadLetter>): DeadLetter {
  const at = { topic: "t", topic_id: "i", partition: 0, offset: 1, dlq_topic: "d", dlq_partition: 0, dlq_offset: 1, dead_lettered_at: 1 };
  const known = { reason: null, exception: null, delivery_count: 5, copied: false, source_state: "found", copies: 1 };
  return { ...at, ...known, letter_expires_at: null, source_expires_at: null, ...more };
}

describe("an episode", () => {
  it("names what its verdict is about", () => {
    expect(verdictText(episode())).toBe("Some records fail, all others work: schema_id=7");
    expect(verdictText(episode({ verdict: "outage", feature: null }))).toBe("What the group calls failed, for most members at once");
    expect(actionText(episode())).toContain("then replay them");
  });

  it("says the size that its records share as a range of bytes", () => {
    const shared = (band: number) => verdictText(episode({ feature: `size_band=${band}` }));
    expect(shared(5)).toBe("Some records fail, all others work: those of 32 to 63 bytes");
    expect([shared(0), shared(9), shared(10), shared(21)].map((text) => text.split(": ")[1])).toEqual([
      "those of at most 1 byte",
      "those of 512 to 1,023 bytes",
      "those of 1 to 2 KiB",
      "those of 2 to 4 MiB",
    ]);
    const rate = { failed: 9, attempts: 50, lower: 0.1, upper: 0.31 };
    expect(evidenceLines({ worst_features: [{ ...rate, feature: "size_band=5" }] })).toEqual(["most failures with 32 to 63 bytes: 9 of 50 (10 to 31 %)"]);
    expect(verdictText(episode({ feature: "size_band=x" }))).toContain("size_band=x");
  });

  it("is the next thing to do where it is the newest that lasts", () => {
    const over = episode({ id: "over", first_at: 9, ended_at: 10 });
    const [older, newer] = [episode({ id: "older", first_at: 1 }), episode({ id: "newer", first_at: 5 })];
    expect(newestOpen([over, older, newer])).toBe(newer);
    expect(newestOpen([over])).toBeNull();
  });

  it("is stopped while it lasts, and to look at afterwards", () => {
    expect(episodeState(episode())).toBe("stopped");
    expect(episodeState(episode({ ended_at: 3 }))).toBe("attention");
    expect(episodeState(episode({ verdict: "insufficient" }))).toBe("unknown");
  });

  it("has the next command, with quoted names", () => {
    expect(nextCommand(episode(), "gw:9092", false)).toBe("headgate dlq plan --group 'bill ing' --cluster 5f1c --to original --config FILE");
    expect(nextCommand(episode({ action: "quarantine" }), "gw:9092", false)).toMatch(/cluster=5f1c.* --config FILE$/);
    expect(nextCommand(episode({ action: "resume_and_watch" }), "gw:9092", true)).toContain("--bootstrap-server gw:9092 --resume --group 'bill ing'");
    expect(nextCommand(episode({ action: "resume_and_watch" }), "gw:9092", false)).toContain("--describe --group 'bill ing' --circuit-breaker");
  });
});

describe("what comes next", () => {
  it("is a plan where records can go back, and the group where it has to be resumed", () => {
    expect(nextStep(episode(), true)).toEqual({ text: "Plan a replay…", to: "/letters/-/bill%20ing?new=plan&episode=5f1c" });
    expect(nextStep(episode(), false)).toBe(null);
    expect(nextStep(episode({ action: "resume_and_watch" }), false)?.to).toBe("/groups/-/bill%20ing");
    expect(nextStep(episode({ action: "quarantine" }), true)).toBe(null);
  });

  it("leads from a trip to the episode that lasted then", () => {
    const minute = 60_000;
    const episodes = [
      episode({ id: "late", first_at: 200 * minute, last_at: 230 * minute }),
      episode({ id: "early", first_at: 10 * minute, last_at: 20 * minute, ended_at: 30 * minute }),
    ];
    expect(episodeAt(episodes, 12 * minute)?.id).toBe("early");
    expect(episodeAt(episodes, 195 * minute)?.id).toBe("late");
    expect(episodeAt(episodes, 100 * minute)).toBe(null);
    expect(lettersPath("a/b", 5)).toBe("/letters/-/a%2Fb?at=5");
  });

  it("says what each bar of its picture counts", () => {
    expect(letterPointsText(episode({ points_ms: 60_000 }))).toBe("dead letters a minute");
    expect(letterPointsText(episode({ points_ms: 300_000 }))).toBe("dead letters in 5 min");
  });
});

describe("evidence", () => {
  const rate = { failed: 9, attempts: 50, lower: 0.1, upper: 0.314 };

  it("has a line for each number that is known", () => {
    expect(evidenceLines(null)).toEqual([]);
    expect(evidenceLines({ attempts: rate, base_rate: 0.001 })).toEqual(["9 of 50 (10 to 31 %) attempts failed, usually 0.1 %"]);
    const usually = [0, 0.0152, 1].map((base_rate) => evidenceLines({ attempts: rate, base_rate })[0]?.split(", ")[1]);
    expect(usually).toEqual(["usually 0 %", "usually 1.5 %", "usually 100 %"]);
    expect(evidenceLines({ members: 3, worst_members: [{ ...rate, member: "m-1" }], other_members: rate, paused_ms: 60_000 })).toEqual([
      "worst of 3 members m-1: 9 of 50 (10 to 31 %); all others 9 of 50 (10 to 31 %)",
      "paused for 1 min of it, which is no sign of recovery",
    ]);
  });

  it("says nothing of others where there are none", () => {
    const none = { failed: 0, attempts: 0, lower: 0, upper: 1 };
    const alone = { members: 1, worst_members: [{ ...rate, member: "m-1" }], other_members: none };
    expect(evidenceLines(alone)).toEqual(["the only member m-1: 9 of 50 (10 to 31 %)"]);
    const shared = { worst_features: [{ ...rate, feature: "schema_id=7" }], other_records: none };
    expect(evidenceLines(shared)).toEqual(["most failures with schema_id=7: 9 of 50 (10 to 31 %)"]);
  });
});

const NOW = 1_800_000_000_000;
const HOUR = 3_600_000;

describe("a dead letter", () => {
  it("can be replayed from its source or its copy", () => {
    expect(replayable(letter({}), NOW).text).toBe("at its source");
    expect(replayable(letter({ source_state: "expired", copied: true }), NOW).state).toBe("good");
    expect(replayable(letter({ source_state: "expired" }), NOW)).toEqual({ state: "attention", text: "gone: expired" });
    expect(replayable(letter({ source_state: "unreadable" }), NOW).state).toBe("unknown");
  });

  it("says when its record can no longer be had, if that is within a day", () => {
    const soon = { source_expires_at: NOW + 3 * HOUR };
    expect(replayable(letter(soon), NOW)).toEqual({ state: "attention", text: "at its source, expires in 3 h" });
    expect(replayable(letter({ source_expires_at: NOW + 25 * HOUR }), NOW).state).toBe("good");
    expect(replayable(letter({ ...soon, copied: true }), NOW)).toEqual({ state: "good", text: "at its source" });
    expect(replayable(letter({ ...soon, copied: true, letter_expires_at: NOW + 5 * HOUR }), NOW).text).toBe("at its source, expires in 5 h");
    expect(replayable(letter({ source_expires_at: NOW - 1 }), NOW)).toEqual({ state: "attention", text: "gone: expired" });
  });

  it("is counted in a warning before its record expires", () => {
    const records = { letters: 9, readable: 8, gone: 1, unknown: 0, unplannable: 0, expire_soon: 2, next_expiry: NOW + HOUR, problems: 0 };
    expect(expiryText(records, NOW)).toBe("2 records expire within 24 hours, the first in 1 h");
    expect(expiryText({ ...records, expire_soon: 1 }, NOW)).toBe("1 record expires within 24 hours, in 1 h");
    expect(expiryText({ ...records, expire_soon: 0 }, NOW)).toBeNull();
  });
});
