import { expect, test } from "vitest";
import { type Detour, detourPath, detours, type Rect } from "./back_edges";

function box(key: string, x: number, y: number, width = 100, height = 30): Rect & { key: string } {
  return { key, x, y, width, height };
}

function found(boxes: (Rect & { key: string })[], links: [string, string][]): Map<string, Detour> {
  const at = new Map(boxes.map((one) => [one.key, { x: one.x, y: one.y }]));
  return detours(boxes, links.map(([from, to]) => ({ key: `${from} ${to}`, from, to })), at);
}

function crosses(way: Detour, from: Rect, to: Rect, one: Rect): boolean {
  const parts: Rect[] = [
    { x: way.left, y: way.lane, width: way.right - way.left, height: 0 },
    { x: way.right, y: Math.min(from.y + from.height / 2, way.lane), width: 0, height: Math.abs(way.lane - from.y - from.height / 2) },
    { x: way.left, y: Math.min(to.y + to.height / 2, way.lane), width: 0, height: Math.abs(way.lane - to.y - to.height / 2) },
  ];
  return parts.some((part) => part.x <= one.x + one.width && one.x <= part.x + part.width && part.y <= one.y + one.height && one.y <= part.y + part.height);
}

test("only edges against the direction of the picture go around", () => {
  const boxes = [box("app", 0, 0), box("topic", 200, 0)];
  const ways = found(boxes, [["app", "topic"], ["topic", "app"]]);
  expect([...ways.keys()]).toEqual(["topic app"]);
});

test("the way touches no node, whatever stands between and beside the two", () => {
  const boxes = [
    box("app", 0, 0),
    box("topic", 400, 10),
    box("between", 180, 30, 140),
    box("below", -30, 45, 200),
    box("beside", 380, 60, 180, 60),
    box("above", 200, -30),
  ];
  const way = found(boxes, [["topic", "app"]]).get("topic app");
  expect(way).toBeDefined();
  const [from, to] = [boxes[1], boxes[0]];
  for (const one of boxes) expect(way !== undefined && from !== undefined && to !== undefined && crosses(way, from, to, one)).toBe(false);
});

test("two edges between the same columns have lanes of their own", () => {
  const boxes = [box("app", 0, 0), box("one", 200, -20), box("two", 200, 20)];
  const ways = [...found(boxes, [["one", "app"], ["two", "app"]]).values()];
  expect(new Set(ways.map((way) => way.lane)).size).toBe(2);
});

test("the path begins at the source and ends at the target", () => {
  const path = detourPath({ x: 300, y: 15 }, { x: 0, y: 15 }, { left: -14, right: 314, lane: 60 });
  expect(path.startsWith("M300 15L")).toBe(true);
  expect(path.endsWith("L0 15")).toBe(true);
  expect(path).not.toContain("NaN");
});
