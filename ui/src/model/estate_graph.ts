/** The answer of `/graph` as things with stable keys, so that positions and the selection outlive an update. */

import type { Graph, GraphEdge, Kind } from "../api/shapes";
import { kindWord, shortened } from "./format";

export interface MapNode {
  key: string;
  kind: Kind;
  /** null where the caller may not see it. */
  name: string | null;
  component: string | null;
  internal: boolean;
  label: string;
  width: number;
  height: number;
}

export type EdgeState = "both" | "declared" | "observed";

export const USE_WORDS: Readonly<Record<EdgeState, string>> = {
  both: "declared and observed",
  declared: "declared only",
  observed: "observed only",
};

export interface MapEdge {
  key: string;
  from: string;
  to: string;
  state: EdgeState;
  use: GraphEdge;
  /** The pieces of expanded applications at its ends. */
  fromPiece?: string;
  toPiece?: string;
}

export interface MapGraph {
  nodes: MapNode[];
  edges: MapEdge[];
}

const CHARACTER_PX = 7.3; // of the monospaced face at 12 px
const MOST_CHARACTERS = 34;
const KIND_PX = 48; // the icon of a kind and the padding
const EXPANDER_PX = 18;
const TOPIC_HEIGHT = 28;
const ACTOR_HEIGHT = 46;

/** What has a topology, and can be expanded. */
export function isApplication(kind: string): boolean {
  return kind === "streams" || kind === "spark";
}

export function nodeKey(kind: string, name: string, component: string | null = null): string {
  const parts = [kind, encodeURIComponent(name)];
  if (component !== null) parts.push(encodeURIComponent(component));
  return parts.join("/");
}

/** The key of a node of an answer. A hidden one has nothing that lasts: its place in the answer has to do. */
export function answerKey(node: { kind: string; name: string | null; component: string | null }, place: number): string {
  return node.name === null ? `hidden/${place}` : nodeKey(node.kind, node.name, node.component);
}

export function edgeState(use: { declared: boolean; observed: boolean }): EdgeState {
  if (use.declared && use.observed) return "both";
  return use.declared ? "declared" : "observed";
}

export function mapGraph(graph: Graph): MapGraph {
  const keys = new Map<number, string>();
  const nodes = graph.nodes.map((node, place): MapNode => {
    const key = answerKey(node, place);
    keys.set(node.id, key);
    const label = node.name === null ? "name not visible" : shortened(node.name, MOST_CHARACTERS);
    const words = `${kindWord(node.kind)}${node.component === null ? "" : ` · part ${node.component}`}`;
    const width = Math.max(node.kind === "topic" ? 72 : KIND_PX + 6 * Math.min(words.length, MOST_CHARACTERS) + (isApplication(node.kind) ? EXPANDER_PX : 0), Math.ceil([...label].length * CHARACTER_PX) + 30);
    const height = node.kind === "topic" ? TOPIC_HEIGHT : ACTOR_HEIGHT;
    return { key, kind: node.kind, name: node.name, component: node.component, internal: node.internal, label, width, height };
  });
  const edges = graph.edges.flatMap((edge): MapEdge[] => {
    const from = keys.get(edge.from);
    const to = keys.get(edge.to);
    if (from === undefined || to === undefined) return [];
    return [{ key: `${from} ${to}`, from, to, state: edgeState(edge), use: edge }];
  });
  return { nodes, edges };
}

export interface Neighbour {
  node: MapNode;
  use: MapEdge;
}

/** What a node gets its data from, and what gets data from it, by name. */
export function neighbours(graph: MapGraph, key: string): { up: Neighbour[]; down: Neighbour[] } {
  const byKey = new Map(graph.nodes.map((node) => [node.key, node]));
  const found = { up: [] as Neighbour[], down: [] as Neighbour[] };
  for (const use of graph.edges) {
    const other = use.to === key ? byKey.get(use.from) : use.from === key ? byKey.get(use.to) : undefined;
    if (other !== undefined) (use.to === key ? found.up : found.down).push({ node: other, use });
  }
  const byLabel = (a: Neighbour, b: Neighbour) => a.node.label.localeCompare(b.node.label);
  found.up.sort(byLabel);
  found.down.sort(byLabel);
  return found;
}

/** `6 topics, 2 Streams applications`: how many nodes of which kind. */
export function kindCounts(nodes: readonly { kind: string }[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const node of nodes) counts.set(node.kind, (counts.get(node.kind) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
}
