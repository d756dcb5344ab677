/** Applications that are expanded in place: the map makes room for them, and edges lead to their sources and sinks. */

import type { Description } from "../api/shapes";
import type { MapEdge, MapGraph } from "./estate_graph";
import type { Point, Positions } from "./placement";
import { type Piece, topologyGraph } from "./topology";

interface Link {
  from: string;
  to: string;
}

export interface Inside {
  /** With the sub-topologies that they stand in, and topics that only connect these. */
  pieces: Piece[];
  edges: Link[];
  /** The sources that read a topic, and the sinks that write to it. */
  reads: { topic: string; piece: string }[];
  writes: { topic: string; piece: string }[];
  /** Topics that the application writes for itself. */
  own: ReadonlySet<string>;
}

/** `hasTopics` shows the topics between sub-topologies; without it these are connected directly. */
export function insideOf(app: string, description: Description, hasTopics: boolean): Inside {
  const whole = topologyGraph(description);
  const key = (piece: string) => `${app}#${piece}`;
  const names = new Map(whole.pieces.filter((piece) => piece.type === "topic").map((piece) => [piece.key, piece.name]));
  const readers = ends(whole.edges, names, "from");
  const writers = ends(whole.edges, names, "to");
  const own = new Set([...readers.keys()].filter((topic) => writers.has(topic)));
  const isShown = (piece: Piece) => piece.type !== "topic" || (hasTopics && own.has(piece.key));
  const pieces = whole.pieces
    .filter(isShown)
    .map((piece): Piece => ({ ...piece, key: key(piece.key), ...(piece.parent === undefined ? {} : { parent: key(piece.parent) }) }));
  const shown = new Set(pieces.map((piece) => piece.key));
  const edges = whole.edges.map((edge) => ({ from: key(edge.from), to: key(edge.to) })).filter((edge) => shown.has(edge.from) && shown.has(edge.to));
  if (!hasTopics) {
    for (const topic of own) {
      for (const from of writers.get(topic) ?? []) for (const to of readers.get(topic) ?? []) edges.push({ from: key(from), to: key(to) });
    }
  }
  const listed = (found: ReadonlyMap<string, string[]>) =>
    [...found].flatMap(([topic, pieces]) => pieces.map((piece) => ({ topic: names.get(topic) ?? "", piece: key(piece) })));
  return { pieces, edges, reads: listed(readers), writes: listed(writers), own: new Set([...own].map((topic) => names.get(topic) ?? "")) };
}

function ends(edges: readonly Link[], topics: ReadonlyMap<string, string>, end: "from" | "to"): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const edge of edges) {
    if (!topics.has(edge[end])) continue;
    found.set(edge[end], [...(found.get(edge[end]) ?? []), end === "from" ? edge.to : edge.from]);
  }
  return found;
}

/** An inside with the positions of its pieces, each within its parent. */
export interface Opened {
  inside: Inside;
  extent: { width: number; height: number };
  at: Positions;
  size: ReadonlyMap<string, { width: number; height: number }>;
}

export interface ExpandedMap {
  graph: MapGraph;
  at: Map<string, Point>;
}

/** The map with these applications expanded: what is right of them and below them moves away, everything else stays. */
export function expanded(graph: MapGraph, known: Positions, opened: ReadonlyMap<string, Opened>): ExpandedMap {
  const at = new Map(known);
  if (opened.size === 0) return { graph, at };
  const gone = ownTopics(graph, opened);
  const nodes = graph.nodes.filter((node) => !gone.has(node.key)).map((node) => {
    const found = opened.get(node.key);
    const here = at.get(node.key);
    if (found === undefined || here === undefined) return node;
    const grown = { ...node, width: Math.max(node.width, Math.ceil(found.extent.width)), height: Math.max(node.height, Math.ceil(found.extent.height)) };
    for (const [key, point] of at) {
      if (key === node.key) continue;
      const x = point.x >= here.x + node.width ? point.x + grown.width - node.width : point.x;
      const y = point.y >= here.y + node.height ? point.y + grown.height - node.height : point.y;
      at.set(key, { x, y });
    }
    return grown;
  });
  const names = new Map(graph.nodes.map((node) => [node.key, node.kind === "topic" ? node.name : null]));
  const edges = graph.edges.filter((edge) => !gone.has(edge.from) && !gone.has(edge.to)).flatMap((edge) => rewired(edge, names, opened));
  return { graph: { nodes, edges }, at };
}

/** Topics that only an expanded application uses, and that are shown within it. */
function ownTopics(graph: MapGraph, opened: ReadonlyMap<string, Opened>): Set<string> {
  const users = new Map<string, Set<string>>();
  for (const edge of graph.edges) {
    for (const [topic, user] of [[edge.from, edge.to], [edge.to, edge.from]] as const) users.set(topic, (users.get(topic) ?? new Set()).add(user));
  }
  const found = new Set<string>();
  for (const node of graph.nodes) {
    const [only, ...others] = users.get(node.key) ?? [];
    if (node.kind !== "topic" || node.name === null || only === undefined || others.length > 0) continue;
    if (opened.get(only)?.inside.own.has(node.name) ?? false) found.add(node.key);
  }
  return found;
}

/** One edge for each source or sink; to the application itself where none of these has the topic. */
function rewired(edge: MapEdge, topics: ReadonlyMap<string, string | null>, opened: ReadonlyMap<string, Opened>): MapEdge[] {
  const [reader, writer] = [opened.get(edge.to), opened.get(edge.from)];
  const found: MapEdge[] = [];
  for (const one of reader?.inside.reads ?? []) {
    if (one.topic === topics.get(edge.from)) found.push({ ...edge, key: `${edge.key}#${one.piece}`, toPiece: one.piece });
  }
  for (const one of writer?.inside.writes ?? []) {
    if (one.topic === topics.get(edge.to)) found.push({ ...edge, key: `${edge.key}#${one.piece}`, fromPiece: one.piece });
  }
  return found.length === 0 ? [edge] : found;
}
