import { expect, test } from "vitest";
import { parseRoute, thingPath, viewOfKind } from "./route";

test.each(["a.b", "a/b", "..x", "%2F", 'q?&#"<>', "größe \u202e", " ", "-"])("the link of %j leads to it", (name) => {
  const route = parseRoute(thingPath("topics", "c/1", name));
  expect(route).toMatchObject({ view: "topics", cluster: "c/1", name });
  expect(parseRoute(thingPath("apps", null, name, { tab: "text" })).cluster).toBeNull();
});

test("views, lists and unknown paths", () => {
  expect(parseRoute("/")).toMatchObject({ view: "now", name: null });
  expect(parseRoute("/groups")).toMatchObject({ view: "groups", name: null, cluster: null });
  expect(parseRoute("/nothing").view).toBe("unknown");
  expect(parseRoute("/topics/-/%E0%A4%A").name).toBe("%E0%A4%A");
});

test("kinds without a view of their own have none", () => {
  expect([viewOfKind("topic"), viewOfKind("spark"), viewOfKind("client")]).toEqual(["topics", "apps", null]);
});
