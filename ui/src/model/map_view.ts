/** What the map shows, as the query of its address: a link reproduces the view. */

import { type Overlay, OVERLAYS } from "./overlay";
import { type Span, SPANS } from "./time_line";

export type Direction = "up" | "down" | "both";
export type Hops = 1 | 2 | 3 | "all";

export interface MapView {
  focus: string | null;
  focusKind: string | null;
  hops: Hops;
  direction: Direction;
  internal: boolean;
  topics: boolean;
  parts: boolean;
  asOf: number | null;
  /** The earlier of two times, whose difference is shown; the later one is `asOf`. */
  compare: number | null;
  /** What the time line shows. */
  span: Span;
  overlay: Overlay;
  /** The keys of the applications that are expanded. */
  expanded: readonly string[];
  /** The key of the selected node. */
  selected: string | null;
}

/** Each expanded application is another request. */
export const MOST_EXPANDED = 8;

export const WHOLE_MAP: MapView = {
  focus: null,
  focusKind: null,
  hops: 2,
  direction: "both",
  internal: false,
  topics: true,
  parts: false,
  asOf: null,
  compare: null,
  span: "7d",
  overlay: "none",
  expanded: [],
  selected: null,
};

const ACTORS = "streams,spark,connector,share_group,consumer_group,client,unattributed";

export function parseMapView(query: URLSearchParams): MapView {
  const hops = query.get("hops");
  const direction = query.get("direction");
  return {
    focus: query.get("focus"),
    focusKind: query.get("focus_kind"),
    hops: hops === "all" ? "all" : hops === "1" ? 1 : hops === "3" ? 3 : 2,
    direction: direction === "up" || direction === "down" ? direction : "both",
    internal: query.get("internal") === "true",
    topics: query.get("topics") !== "false",
    parts: query.get("parts") === "true",
    asOf: time(query.get("as_of")),
    compare: time(query.get("compare")),
    span: SPANS.find((one) => one === query.get("span")) ?? WHOLE_MAP.span,
    overlay: OVERLAYS.find((one) => one === query.get("overlay")) ?? "none",
    expanded: query.getAll("open").slice(0, MOST_EXPANDED),
    selected: query.get("selected"),
  };
}

function time(text: string | null): number | null {
  const at = Number(text);
  return Number.isSafeInteger(at) && at > 0 ? at : null;
}

/** Only what differs from the whole map, in one order: equal views have equal links. */
export function mapQuery(view: MapView): string {
  const query = new URLSearchParams();
  if (view.focus !== null) {
    query.set("focus", view.focus);
    if (view.focusKind !== null) query.set("focus_kind", view.focusKind);
    if (view.hops !== WHOLE_MAP.hops) query.set("hops", String(view.hops));
    if (view.direction !== "both") query.set("direction", view.direction);
  }
  if (view.internal) query.set("internal", "true");
  if (!view.topics) query.set("topics", "false");
  if (view.parts) query.set("parts", "true");
  if (view.asOf !== null) query.set("as_of", String(view.asOf));
  if (view.compare !== null) query.set("compare", String(view.compare));
  if (view.span !== WHOLE_MAP.span) query.set("span", view.span);
  if (view.overlay !== "none") query.set("overlay", view.overlay);
  for (const key of view.expanded.slice(0, MOST_EXPANDED)) query.append("open", key);
  if (view.selected !== null) query.set("selected", view.selected);
  return query.toString();
}

export function mapPath(view: Partial<MapView>): string {
  const query = mapQuery({ ...WHOLE_MAP, ...view });
  return query === "" ? "/map" : `/map?${query}`;
}

/** Why the map has no figures here, as the end of a sentence about them; null where it can have some. */
export function withoutFigures(view: MapView): string | null {
  if (view.compare !== null) return "not on a difference";
  return view.asOf !== null ? "on the live map only" : null;
}

/** The request for this view; the selection is not a part of it. */
export function graphPath(view: MapView, format?: string): string {
  const query = new URLSearchParams();
  if (view.focus !== null) {
    query.set("focus", view.focus);
    if (view.focusKind !== null) query.set("focus_kind", view.focusKind);
    query.set("hops", String(view.hops));
    query.set("direction", view.direction);
  }
  query.set("internal", String(view.internal));
  if (!view.topics) query.set("kinds", ACTORS);
  if (view.parts) query.set("collapsed", "false");
  if (view.asOf !== null) query.set("as_of", String(view.asOf));
  if (format !== undefined) query.set("format", format);
  return `graph?${query.toString()}`;
}

/** The request for the positions of an overview, by its `graphPath`; around a focus the browser computes them. */
export function layoutPath(path: string): string | null {
  const [resource, query = ""] = path.split("?", 2);
  return new URLSearchParams(query).has("focus") ? null : `${resource}/layout?${query}`;
}
