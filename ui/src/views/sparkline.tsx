/** A small picture of a row of figures, with its last and its highest one as text. */

import { sparkBars } from "../model/sparkline";

const SIZE = { width: 120, height: 24 };

export function Sparkline({ points, label, text }: { points: readonly number[]; label: string; text: (value: number) => string }) {
  const last = points.at(-1);
  if (last === undefined) return null;
  return (
    <figure className="spark">
      <svg viewBox={`0 0 ${SIZE.width} ${SIZE.height}`} role="img" aria-label={`${label}: highest ${text(Math.max(...points))}, last ${text(last)}`}>
        {sparkBars(points, SIZE).map((bar) => (
          <rect key={bar.x} {...bar} />
        ))}
      </svg>
      <figcaption>{label}</figcaption>
    </figure>
  );
}
