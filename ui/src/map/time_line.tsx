/** The time line under the map: changes as ticks; one handle is the time of the map, two show the difference between. */

import { type KeyboardEvent, type PointerEvent, useEffect, useMemo, useRef, useState } from "react";
import type { Change } from "../api/shapes";
import { exact, printable } from "../model/format";
import type { MapView } from "../model/map_view";
import { moved, type Range, rangeOf, shareOf, SPAN_WORDS, SPANS, type Span, ticks as ticksOf, timeAt } from "../model/time_line";
import { useNow } from "../shell/parts";

type Handle = "asOf" | "compare";

const SETTLED_MS = 350; // a time is requested when the handle rests: each one is another graph for the server

export function useRange(span: Span): Range {
  const now = useNow();
  const range = rangeOf(span, now);
  return useMemo(() => range, [range.from, range.to]);
}

export function TimeLine({ view, change, range, changes }: { view: MapView; change: (changes: Partial<MapView>, replace?: boolean) => void; range: Range; changes: readonly Change[] }) {
  const found = useMemo(() => ticksOf(changes, range), [changes, range]);
  const track = useRef<HTMLDivElement>(null);
  const [held, setHeld] = useState<{ handle: Handle; at: number | null } | null>(null);
  const timer = useRef<number | undefined>(undefined);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  // The address has the time: what was held is over.
  useEffect(() => setHeld(null), [view.asOf, view.compare]);

  const times = { asOf: view.asOf, compare: view.compare, ...(held === null ? {} : { [held.handle]: held.at }) };
  const isCompared = view.compare !== null;

  function commit(handle: Handle, at: number | null): void {
    window.clearTimeout(timer.current);
    if (handle === "asOf") change({ asOf: at });
    else change({ compare: at ?? range.to - range.step });
    setHeld(null);
  }
  function hold(handle: Handle, at: number | null): void {
    setHeld({ handle, at });
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => commit(handle, at), SETTLED_MS);
  }
  function pointed(event: PointerEvent): number | null {
    const box = track.current?.getBoundingClientRect();
    return box === undefined ? null : timeAt(range, (event.clientX - box.left) / Math.max(1, box.width));
  }
  function nearest(at: number | null): Handle {
    if (!isCompared) return "asOf";
    const time = at ?? range.to;
    return Math.abs(time - (times.asOf ?? range.to)) <= Math.abs(time - (times.compare ?? range.from)) ? "asOf" : "compare";
  }
  function onDown(event: PointerEvent<HTMLDivElement>): void {
    if (event.button !== 0) return;
    const tick = event.target instanceof HTMLElement ? event.target.dataset["at"] : undefined;
    const at = tick === undefined ? pointed(event) : Number(tick);
    event.currentTarget.setPointerCapture(event.pointerId);
    setHeld({ handle: nearest(at), at });
  }
  function onMove(event: PointerEvent<HTMLDivElement>): void {
    if (held !== null && event.currentTarget.hasPointerCapture(event.pointerId) && event.movementX !== 0) setHeld({ handle: held.handle, at: pointed(event) });
  }
  function onUp(event: PointerEvent<HTMLDivElement>): void {
    if (held === null || !event.currentTarget.hasPointerCapture(event.pointerId)) return;
    event.currentTarget.releasePointerCapture(event.pointerId);
    commit(held.handle, held.at);
  }
  function onKey(handle: Handle, event: KeyboardEvent): void {
    const next = moved(range, found, times[handle], event.key);
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    hold(handle, next);
  }

  const [left, right] = [shareOf(range, times.compare ?? range.from), shareOf(range, times.asOf ?? range.to)].sort((a, b) => a - b) as [number, number];
  return (
    <section className="time-line" aria-label="Time line">
      <label>
        <span className="visually-hidden">Span of the time line</span>
        <select value={view.span} onChange={(event) => change({ span: event.target.value as Span })}>
          {SPANS.map((span) => (
            <option key={span} value={span}>
              {SPAN_WORDS[span]}
            </option>
          ))}
        </select>
      </label>
      <div className="time-track" ref={track} onPointerDown={onDown} onPointerMove={onMove} onPointerUp={onUp}>
        <div className="time-rail" />
        {isCompared ? <div className="time-between" style={{ left: `${left * 100}%`, width: `${(right - left) * 100}%` }} /> : null}
        {found.map((tick) => (
          <span
            key={tick.at}
            className={tick.isTrip ? "tick trip" : "tick"}
            data-at={tick.at}
            title={`${printable(tick.title)}, ${exact(tick.at)}`}
            style={{ left: `${tick.share * 100}%`, height: Math.min(22, 8 + 3 * tick.count) }}
          />
        ))}
        {isCompared ? <Slider label="Compared with" at={times.compare} range={range} onKey={(event) => onKey("compare", event)} /> : null}
        <Slider label="Time of the map" at={times.asOf} range={range} onKey={(event) => onKey("asOf", event)} />
        <span className="time-end">{exact(range.from).slice(0, 16)}</span>
        <span className="time-end right">now</span>
      </div>
      <button type="button" aria-pressed={isCompared} onClick={() => change({ compare: isCompared ? null : startOf(range, view.asOf) })}>
        Compare
      </button>
    </section>
  );
}

/** Where the second handle begins: half of the way back, at least a step before the time of the map. */
function startOf(range: Range, asOf: number | null): number {
  const to = asOf ?? range.to;
  return Math.min(to - range.step, timeAt(range, shareOf(range, to) / 2) ?? range.from);
}

function Slider({ label, at, range, onKey }: { label: string; at: number | null; range: Range; onKey: (event: KeyboardEvent) => void }) {
  const text = at === null ? "live" : exact(at);
  return (
    <span
      className={at === null ? "time-handle live" : "time-handle"}
      style={{ left: `${shareOf(range, at ?? range.to) * 100}%` }}
      role="slider"
      tabIndex={0}
      aria-label={label}
      aria-valuemin={range.from}
      aria-valuemax={range.to}
      aria-valuenow={at ?? range.to}
      aria-valuetext={text}
      onKeyDown={onKey}
    >
      <span>{text}</span>
    </span>
  );
}
