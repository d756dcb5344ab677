/** Figures on the map: states, rates, lags or dead letters, as badges of nodes, and as labels and widths of edges. */

import type { GraphOverlay, OverlayNode } from "../api/shapes";
import { type MapGraph, nodeKey } from "./estate_graph";
import { bytes, count, percent } from "./format";
import type { StateName } from "./freshness";

export const OVERLAYS = ["none", "state", "rate", "lag", "letters"] as const;
export type Overlay = (typeof OVERLAYS)[number];

export const OVERLAY_WORDS: Readonly<Record<Overlay, string>> = {
  none: "no overlay",
  state: "state",
  rate: "rate",
  lag: "lag",
  letters: "dead letters",
};

export interface Badge {
  text: string;
  state: StateName | null;
  /** What the text means, for the title and for screen readers. */
  meaning: string;
  /** The colour, where the text itself has the shape. */
  tone?: StateName;
}

export interface EdgeFigure {
  text: string;
  /** From 0 to 1. */
  weight: number;
}

export interface Figures {
  nodes: ReadonlyMap<string, Badge>;
  edges: ReadonlyMap<string, EdgeFigure>;
}

export const NO_FIGURES: Figures = { nodes: new Map(), edges: new Map() };
const DAY_S = 86_400;

/** `known` is null while it is not loaded; rates are in the graph itself. */
export function figures(graph: MapGraph, overlay: Overlay, known: GraphOverlay | null): Figures {
  if (overlay === "rate") return rates(graph);
  if (overlay === "none" || known === null) return NO_FIGURES;
  const nodes = new Map(known.nodes.map((node) => [nodeKey(node.kind, node.name), node]));
  const badges = new Map<string, Badge>();
  for (const node of graph.nodes) {
    const found = nodes.get(nodeKey(node.kind, node.name ?? ""));
    const badge = found === undefined || node.name === null ? null : badgeOf(found, overlay);
    if (badge !== null) badges.set(node.key, badge);
  }
  return { nodes: badges, edges: overlay === "lag" ? lags(graph, known) : new Map() };
}

function badgeOf(node: OverlayNode, overlay: "state" | "lag" | "letters"): Badge | null {
  if (overlay === "lag") {
    if (node.lag === null) return null;
    return { text: count(node.lag), state: null, meaning: `${count(node.lag)} records behind` };
  }
  if (overlay === "letters") {
    if (node.processed === null || node.dead_lettered === null) return null;
    const share = node.processed === 0 ? "" : ` (${percent(node.dead_lettered / node.processed)})`;
    const text = node.dead_lettered === 0 ? "0" : `${count(node.dead_lettered)}${share}`;
    return { text, state: node.dead_lettered === 0 ? "good" : "attention", meaning: `${text} dead letters in the last hour` };
  }
  if (node.state === "tripped") return { text: "tripped", state: "stopped", meaning: "paused by its breaker" };
  if (node.state === "paused") return { text: "paused", state: "stopped", meaning: "paused by an operator" };
  if (node.gaps > 0) {
    const text = node.gaps === 1 ? "1 gap" : `${count(node.gaps)} gaps`;
    return { text, state: "attention", meaning: `${text} between what is declared and what was observed` };
  }
  if (node.state === "running") return { text: "running", state: "good", meaning: "not paused" };
  if (node.state === "unknown") return { text: "unknown", state: "unknown", meaning: "whether it is paused is not known" };
  return null;
}

/** Bytes a second, as an average of the last day. */
function rates(graph: MapGraph): Figures {
  const edges = new Map<string, EdgeFigure>();
  const written = new Map<string, number>();
  const most = Math.max(1, ...graph.edges.map((edge) => edge.use.bytes_day ?? 0));
  for (const edge of graph.edges) {
    const day = edge.use.bytes_day;
    if (day === null) continue;
    edges.set(edge.key, { text: `${bytes(day / DAY_S)}/s`, weight: Math.sqrt(day / most) });
    written.set(edge.to, (written.get(edge.to) ?? 0) + day);
  }
  const nodes = new Map<string, Badge>();
  for (const node of graph.nodes) {
    const day = node.kind === "topic" ? written.get(node.key) : undefined;
    if (day === undefined) continue;
    const text = `${bytes(day / DAY_S)}/s`;
    nodes.set(node.key, { text, state: null, meaning: `${text} written, on average over the last day` });
  }
  return { nodes, edges };
}

function lags(graph: MapGraph, known: GraphOverlay): Map<string, EdgeFigure> {
  const found = new Map<string, EdgeFigure>();
  const most = Math.max(1, ...known.uses.map((use) => use.lag));
  const byEdge = new Map(known.uses.map((use) => [`${nodeKey("topic", use.topic)} ${nodeKey(use.kind, use.name)}`, use.lag]));
  for (const edge of graph.edges) {
    const lag = byEdge.get(edge.key);
    if (lag !== undefined) found.set(edge.key, { text: count(lag), weight: Math.sqrt(lag / most) });
  }
  return found;
}
