/** The impact of a topic as a picture: the nodes of its list, and the edges of the map between them. */

import type { Graph, ImpactNode } from "../api/shapes";
import { kindWord } from "./format";
import type { Piece, TopologyGraph } from "./topology";

/** More nodes are a list: as a picture they could not be read. */
export const MOST_IMPACT_NODES = 80;

export function impactGraph(graph: Graph, root: string, nodes: readonly ImpactNode[]): TopologyGraph {
  const wanted = new Set([key("topic", root), ...nodes.flatMap((node) => (node.name === null ? [] : [key(node.kind, node.name)]))]);
  const pieces = new Map<number, Piece>();
  for (const node of graph.nodes) {
    if (node.name === null || !wanted.has(key(node.kind, node.name))) continue;
    const own = { key: key(node.kind, node.name), name: node.name };
    pieces.set(node.id, node.kind === "topic" ? { ...own, type: "topic" } : { ...own, type: "actor", note: kindWord(node.kind) });
  }
  const edges = graph.edges.flatMap((edge) => {
    const [from, to] = [pieces.get(edge.from), pieces.get(edge.to)];
    return from === undefined || to === undefined ? [] : [{ from: from.key, to: to.key }];
  });
  return { pieces: [...pieces.values()], edges };
}

function key(kind: string, name: string): string {
  return `${kind}/${encodeURIComponent(name)}`;
}
