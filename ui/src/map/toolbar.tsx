/** The settings of the map. */

import { useState } from "react";
import { save, token } from "../api/client";
import { exact, kindWord } from "../model/format";
import { graphPath, type Hops, type MapView, withoutFigures } from "../model/map_view";
import { type Overlay, OVERLAY_WORDS, OVERLAYS } from "../model/overlay";
import { Name } from "../shell/parts";

const HOPS: readonly Hops[] = [1, 2, 3, "all"];
const DIRECTIONS = [
  ["up", "Up"],
  ["down", "Down"],
  ["both", "Both"],
] as const;
const FORMATS = ["svg", "png", "json", "dot", "mermaid", "csv"] as const;

export function Toolbar({ view, change }: { view: MapView; change: (changes: Partial<MapView>) => void }) {
  return (
    <div className="map-bar" role="toolbar" aria-label="Map settings">
      <h1 className="visually-hidden">Map</h1>
      {view.focus === null ? (
        <span className="group">
          <span>Whole estate</span>
        </span>
      ) : (
        <>
          <span className="focus-tag">
            {view.focusKind === null ? null : <span>{kindWord(view.focusKind)}</span>}
            <Name of={view.focus} />
            <button type="button" aria-label="Show the whole map" onClick={() => change({ focus: null, focusKind: null })}>
              ✕
            </button>
          </span>
          <Segments label="Hops" values={HOPS.map((hops) => [hops, String(hops)] as const)} value={view.hops} onChange={(hops) => change({ hops })} />
          <Segments label="Direction" values={DIRECTIONS} value={view.direction} onChange={(direction) => change({ direction })} />
        </>
      )}
      <span className="group">
        <Toggle text="Internal topics" isOn={view.internal} onChange={(internal) => change({ internal })} />
        <Toggle text="Without topics" isOn={!view.topics} onChange={(isOn) => change({ topics: !isOn })} />
        <Toggle text="Parts" isOn={view.parts} onChange={(parts) => change({ parts })} />
      </span>
      <OverlayChoice view={view} change={change} />
      <AsOf view={view} change={change} />
      <span className="space" style={{ flex: 1 }} />
      <Export view={view} />
    </div>
  );
}

function OverlayChoice({ view, change }: { view: MapView; change: (changes: Partial<MapView>) => void }) {
  const reason = withoutFigures(view);
  return (
    <label className="narrow-hide">
      <span className="visually-hidden">Overlay</span>
      {reason === null ? (
        <select value={view.overlay} onChange={(event) => change({ overlay: event.target.value as Overlay })}>
          {OVERLAYS.map((overlay) => (
            <option key={overlay} value={overlay}>
              {overlay === "none" ? "No overlay" : `Overlay: ${OVERLAY_WORDS[overlay]}`}
            </option>
          ))}
        </select>
      ) : (
        <select disabled>
          <option>Overlay: {reason}</option>
        </select>
      )}
    </label>
  );
}

function Segments<T extends string | number>(props: { label: string; values: readonly (readonly [T, string])[]; value: T; onChange: (value: T) => void }) {
  return (
    <span className="group narrow-hide">
      <span>{props.label}</span>
      <span className="segments" role="radiogroup" aria-label={props.label}>
        {props.values.map(([value, text]) => (
          <button key={value} type="button" role="radio" aria-checked={value === props.value} onClick={() => props.onChange(value)}>
            {text}
          </button>
        ))}
      </span>
    </span>
  );
}

function Toggle({ text, isOn, onChange }: { text: string; isOn: boolean; onChange: (isOn: boolean) => void }) {
  return (
    <button type="button" aria-pressed={isOn} onClick={() => onChange(!isOn)}>
      {text}
    </button>
  );
}

function AsOf({ view, change }: { view: MapView; change: (changes: Partial<MapView>) => void }) {
  const [isOpen, setIsOpen] = useState(false);
  const [typed, setTyped] = useState("");
  if (view.asOf !== null) {
    return (
      <span className="focus-tag">
        as of {exact(view.asOf)}
        <button type="button" onClick={() => change({ asOf: null })}>
          Live
        </button>
      </span>
    );
  }
  if (!isOpen) {
    return (
      <button type="button" onClick={() => setIsOpen(true)}>
        As of: live
      </button>
    );
  }
  return (
    <form
      className="group"
      onSubmit={(event) => {
        event.preventDefault();
        const at = new Date(typed).getTime();
        setIsOpen(false);
        if (Number.isFinite(at)) change({ asOf: at });
      }}
    >
      <label>
        <span className="visually-hidden">Time</span>
        <input type="datetime-local" value={typed} onChange={(event) => setTyped(event.target.value)} required />
      </label>
      <button type="submit">Show</button>
      <button type="button" onClick={() => setIsOpen(false)}>
        Cancel
      </button>
    </form>
  );
}

function Export({ view }: { view: MapView }) {
  const [copied, setCopied] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);

  function open(format: string): void {
    const path = graphPath(view, format);
    setProblem(null);
    if (token() === "") window.open(`/api/v1/${path}`, "_blank", "noopener");
    else void save(path, `map.${format === "mermaid" ? "mmd" : format}`).then(setProblem);
  }

  return (
    <span className="group narrow-hide">
      <select
        aria-label="Export"
        value=""
        onChange={(event) => {
          if (event.target.value === "link") {
            void navigator.clipboard.writeText(window.location.href).then(() => setCopied(true));
          } else open(event.target.value);
        }}
      >
        <option value="" disabled>
          {copied ? "Link copied" : "Export"}
        </option>
        <option value="link">Copy link</option>
        {FORMATS.map((format) => (
          <option key={format} value={format}>
            {format.toUpperCase()}
          </option>
        ))}
      </select>
      {problem === null ? null : <span role="alert">{problem}</span>}
    </span>
  );
}
