/** What the lines and marks of the map mean. */

import { CHANGE_SIGNS, type ChangeMark } from "../model/difference";

const CHANGE_COLOURS: Readonly<Record<ChangeMark, string>> = { added: "var(--good)", removed: "var(--stopped)", changed: "var(--attention)" };

export function Legend({ summary, hasPaused, changes }: { summary: string; hasPaused: boolean; changes: string | null }) {
  return (
    <div className="legend">
      <span role="status">{changes ?? summary}</span>
      {changes === null ? null : (Object.keys(CHANGE_COLOURS) as ChangeMark[]).map((mark) => <Line key={mark} dash="" text={`${CHANGE_SIGNS[mark]} ${mark}`} color={CHANGE_COLOURS[mark]} />)}
      <Line dash="" text="declared and observed" />
      <Line dash="7 5" text="declared only" />
      <Line dash="1.5 4" text="observed only" />
      {hasPaused ? <Line dash="" text="paused" color="var(--stopped)" /> : null}
    </div>
  );
}

function Line({ dash, text, color = "var(--edge)" }: { dash: string; text: string; color?: string }) {
  return (
    <span>
      <svg aria-hidden="true">
        <path d="M0 4h30" stroke={color} strokeWidth="1.8" strokeDasharray={dash} strokeLinecap={dash.startsWith("1") ? "round" : "butt"} />
      </svg>
      {text}
    </span>
  );
}
