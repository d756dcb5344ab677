import { expect, test } from "vitest";
import { graphPath, layoutPath, mapPath, mapQuery, parseMapView, WHOLE_MAP, withoutFigures } from "./map_view";

test("a link reproduces the view, also with hostile names", () => {
  const view = {
    focus: 'a/b?&=#<img src=x>"\u202e',
    focusKind: "topic",
    hops: "all",
    direction: "up",
    internal: true,
    topics: false,
    parts: true,
    asOf: 1_794_744_000_000,
    compare: 1_794_700_000_000,
    span: "1d",
    overlay: "lag",
    expanded: ["streams/a%2Fb", "streams/c"],
    selected: "topic/a%2Fb",
  } as const;
  expect(parseMapView(new URLSearchParams(mapQuery(view)))).toEqual(view);
});

test("the whole map has a plain link, and the selection is no part of the request", () => {
  expect(mapPath({})).toBe("/map");
  expect(parseMapView(new URLSearchParams(""))).toEqual(WHOLE_MAP);
  const selected = { ...WHOLE_MAP, focus: "orders", selected: "topic/orders" };
  expect(graphPath(selected)).toBe(graphPath({ ...selected, selected: null }));
});

test("what is not valid in a link is left out", () => {
  expect(parseMapView(new URLSearchParams("hops=99&direction=left&as_of=soon&internal=1"))).toEqual(WHOLE_MAP);
  expect(parseMapView(new URLSearchParams("as_of=-5")).asOf).toBeNull();
});

test("without topics all kinds of actors are asked for", () => {
  const kinds = new URLSearchParams(graphPath({ ...WHOLE_MAP, topics: false }).split("?")[1]).get("kinds");
  expect(kinds?.split(",")).toContain("share_group");
  expect(kinds?.split(",")).not.toContain("topic");
});

test("the server computes the positions of an overview, and of nothing else", () => {
  expect(layoutPath(graphPath(WHOLE_MAP))).toBe("graph/layout?internal=false");
  expect(layoutPath(graphPath({ ...WHOLE_MAP, topics: false }))).toContain("kinds=");
  expect(layoutPath(graphPath({ ...WHOLE_MAP, focus: "orders" }))).toBeNull();
});

test("figures are those of now, so a map of another time has none, and says why", () => {
  expect(withoutFigures(WHOLE_MAP)).toBeNull();
  expect(withoutFigures({ ...WHOLE_MAP, asOf: 1_794_744_000_000 })).toBe("on the live map only");
  expect(withoutFigures({ ...WHOLE_MAP, compare: 1_794_744_000_000 })).toBe("not on a difference");
});
