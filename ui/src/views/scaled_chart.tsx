/** A picture of a rate over time with its scale at the left, its times below, and what its shapes mean. */

import type { ReactNode } from "react";
import { percent } from "../model/format";

/** What a shape in the picture is: each differs by more than its colour. */
export type ChartShape = "bar" | "over" | "line" | "threshold" | "stop" | "resumed" | "other";

export interface Meaning {
  shape: ChartShape;
  text: string;
}

interface ScaledChartProps {
  size: { width: number; height: number };
  /** Percent at the top of the picture; its bottom is 0. */
  top: number;
  label: string;
  from: string;
  meanings: readonly Meaning[];
  isLow?: boolean;
  children: ReactNode;
}

export function ScaledChart({ size, top, label, from, meanings, isLow = false, children }: ScaledChartProps) {
  return (
    <figure className={isLow ? "chart low" : "chart"}>
      <div className="scale" aria-hidden="true">
        <span>{percent(top / 100)}</span>
        <span>0 %</span>
      </div>
      <svg viewBox={`0 0 ${size.width} ${size.height}`} preserveAspectRatio="none" role="img" aria-label={label}>
        {children}
      </svg>
      <div className="span">
        <span>{from}</span>
        <span>now</span>
      </div>
      <figcaption>
        {meanings.map((one) => (
          <span key={one.shape} className="key">
            <Swatch shape={one.shape} />
            {one.text}
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

/** Half a pixel keeps a line of one pixel from being blurred. */
function Swatch({ shape }: { shape: ChartShape }) {
  const width = shape === "bar" ? 6 : shape === "stop" || shape === "resumed" || shape === "other" ? 4 : 18;
  return (
    <svg className="swatch" viewBox={`0 0 ${width} 12`} style={{ width }} aria-hidden="true">
      {shape === "bar" ? <rect x="0" y="6" width="6" height="6" /> : null}
      {shape === "over" ? <rect className="over" x="6" y="0" width="6" height="12" /> : null}
      {shape === "line" ? <polyline points="0,10 6,4 12,7 18,2" /> : null}
      {shape === "threshold" || shape === "over" ? <line className="threshold" x1="0" x2="18" y1="6.5" y2="6.5" /> : null}
      {shape === "stop" || shape === "resumed" ? <line className={shape} x1="2" x2="2" y1="0" y2="12" /> : null}
      {shape === "other" ? <line className={shape} x1="1.5" x2="1.5" y1="0" y2="12" /> : null}
    </svg>
  );
}
