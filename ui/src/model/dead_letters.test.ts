import { describe, expect, it } from "vitest";
import type { DeadLetter, Episode } from "../api/dead_letter_shapes";
import { actionText, episodeState, evidenceLines, nextCommand, replayable, verdictText } from "./dead_letters";

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

  it("is stopped while it lasts, and to look at afterwards", () => {
    expect(episodeState(episode())).toBe("stopped");
    expect(episodeState(episode({ ended_at: 3 }))).toBe("attention");
    expect(episodeState(episode({ verdict: "insufficient" }))).toBe("unknown");
  });

  it("has the next command, with quoted names", () => {
    expect(nextCommand(episode())).toBe("headgate dlq plan --group 'bill ing' --cluster 5f1c --to original --config FILE");
    expect(nextCommand(episode({ action: "quarantine" }))).toContain("cluster=5f1c");
    expect(nextCommand(episode({ action: "resume_and_watch" }))).toContain("--resume --group 'bill ing'");
  });
});

describe("evidence", () => {
  const rate = { failed: 9, attempts: 50, lower: 0.1, upper: 0.314 };

  it("has a line for each number that is known", () => {
    expect(evidenceLines(null)).toEqual([]);
    expect(evidenceLines({ attempts: rate, base_rate: 0.001 })).toEqual(["9 of 50 (10 to 31 %) attempts failed, usually 0.10 %"]);
    expect(evidenceLines({ members: 3, worst_members: [{ ...rate, member: "m-1" }], other_members: rate, paused_ms: 60_000 })).toEqual([
      "worst of 3 members m-1: 9 of 50 (10 to 31 %); all others 9 of 50 (10 to 31 %)",
      "paused for 1 min of it, which is no sign of recovery",
    ]);
  });
});

describe("a dead letter", () => {
  it("can be replayed from its source or its copy", () => {
    expect(replayable(letter({})).text).toBe("at its source");
    expect(replayable(letter({ source_state: "expired", copied: true })).state).toBe("good");
    expect(replayable(letter({ source_state: "expired" }))).toEqual({ state: "attention", text: "gone: expired" });
    expect(replayable(letter({ source_state: "unreadable" })).state).toBe("unknown");
  });
});
