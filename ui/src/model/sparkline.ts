/** A row of figures as a small picture: bars from left to right, the highest as high as the picture. */

export interface SparkBar {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** At most one bar for each two units of width: more points are drawn as the highest of their neighbours. */
export function sparkBars(points: readonly number[], size: { width: number; height: number }): SparkBar[] {
  const most = Math.max(1, Math.floor(size.width / 2));
  const together = Math.max(1, Math.ceil(points.length / most));
  const drawn: number[] = [];
  for (let first = 0; first < points.length; first += together) drawn.push(Math.max(...points.slice(first, first + together)));
  const highest = Math.max(...drawn, 0);
  const step = size.width / Math.max(1, drawn.length);
  return drawn.flatMap((value, place): SparkBar[] => {
    if (value <= 0 || highest === 0) return [];
    const height = Math.max(1, (value / highest) * size.height);
    return [{ x: place * step, y: size.height - height, width: Math.max(0.75, step - 0.75), height }];
  });
}
