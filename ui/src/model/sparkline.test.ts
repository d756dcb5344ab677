import { expect, test } from "vitest";
import { sparkBars } from "./sparkline";

test("the highest figure is as high as the picture, and nothing is no bar", () => {
  const bars = sparkBars([0, 5, 10], { width: 30, height: 20 });
  expect(bars.map((bar) => [bar.x, bar.height, bar.y])).toEqual([
    [10, 10, 10],
    [20, 20, 0],
  ]);
  expect(sparkBars([0, 0], { width: 30, height: 20 })).toEqual([]);
  expect(sparkBars([], { width: 30, height: 20 })).toEqual([]);
});

test("many points are drawn as the highest of their neighbours", () => {
  const points = Array.from({ length: 1000 }, (_, place) => (place === 501 ? 9 : 1));
  const bars = sparkBars(points, { width: 100, height: 10 });
  expect(bars.length).toBe(50);
  expect(bars.filter((bar) => bar.height === 10).length).toBe(1);
});
