import { describe, expect, it } from "vitest";
import { concerns, EventParser, isAnnounced, noticesOf } from "./notices";

describe("the stream", () => {
  it("is cut into events wherever the pieces end", () => {
    const text = 'retry: 2000\n\nid: b-1\nevent: share_group\ndata: {"name":"a\\n\\nb"}\n\n: heartbeat\n\nid: b-2\n\n';
    for (const size of [1, 2, 7, 1000]) {
      const parser = new EventParser();
      const found = [];
      for (let at = 0; at < text.length; at += size) found.push(...parser.push(text.slice(at, at + size)));
      expect(found).toEqual([{ id: "b-1", kind: "share_group", data: '{"name":"a\\n\\nb"}' }]);
      expect(parser.lastId).toBe("b-2");
    }
  });

  it("gives no notice for what is malformed or unknown", () => {
    for (const [kind, data] of [["share_group", "no json"], ["share_group", "null"], ["tables", "{}"], ["other", "{}"]] as const) {
      expect(noticesOf({ id: null, kind, data })).toEqual([]);
    }
  });

  it("gives a snapshot for all groups and all tables", () => {
    const found = noticesOf({ id: null, kind: "snapshot", data: '{"paused":[],"tables":{"changes":3}}' });
    expect(found).toEqual([{ kind: "share_groups", group: null }, { kind: "tables", tables: ["changes"] }]);
  });
});

describe("a notice", () => {
  it("of a group concerns the lists and that group alone", () => {
    const notice = { kind: "share_groups", group: "a/b" } as const;
    expect(concerns("share-groups?limit=1000", notice)).toBe(true);
    expect(concerns("share-groups/a%2Fb?cluster=x", notice)).toBe(true);
    expect(concerns("share-groups/other", notice)).toBe(false);
    expect(concerns("attention", notice)).toBe(true);
    expect(concerns("graph", notice)).toBe(false);
    expect(concerns("graph?focus=overlay", notice)).toBe(false);
  });

  it("of a group concerns the states on the map, which are those of all groups", () => {
    expect(concerns("graph/overlay", { kind: "share_groups", group: "a/b" })).toBe(true);
    expect(concerns("graph/overlay", { kind: "share_groups", group: null })).toBe(true);
  });

  it("of tables concerns what is made of them", () => {
    expect(concerns("graph?focus=x", { kind: "tables", tables: ["lineage_edges"] })).toBe(true);
    expect(concerns("graph?focus=x", { kind: "tables", tables: ["pipeline_runs"] })).toBe(false);
    expect(concerns("share-groups/g", { kind: "tables", tables: ["dlq_rates"] })).toBe(true);
    expect(concerns("share-groups", { kind: "tables", tables: ["dlq_rates"] })).toBe(false);
    expect(concerns("changes?limit=1", { kind: "tables", tables: ["changes"] })).toBe(true);
    expect(concerns("clusters?group=g", { kind: "tables", tables: ["dead_letter_clusters"] })).toBe(true);
    expect(concerns("dead-letters?group=g", { kind: "tables", tables: ["dead_letters"] })).toBe(true);
    expect(concerns("graph", { kind: "tables", tables: ["dead_letters"] })).toBe(false);
  });

  it("of a lost stream concerns all that was announced", () => {
    expect(concerns("topics?limit=3", { kind: "lost" })).toBe(true);
    expect(concerns("health", { kind: "lost" })).toBe(false);
  });

  it("does not announce what only polling shows", () => {
    expect(isAnnounced("share-groups/a")).toBe(true);
    expect(isAnnounced("share-groups/a/breaker")).toBe(false); // the counts of the window, each second
    expect(isAnnounced("share-groups/breaker")).toBe(true); // a group of that name
    expect(isAnnounced("share-groups/a%2Fbreaker?events=200")).toBe(true);
    expect(isAnnounced("health")).toBe(false);
  });
});
