/** The difference of the map between two times: one graph with all that was there at either, and what became of it. */

import type { Change } from "../api/shapes";
import type { MapEdge, MapGraph } from "./estate_graph";
import { nodeKey } from "./estate_graph";

export type ChangeMark = "added" | "removed" | "changed";

export interface Difference {
  graph: MapGraph;
  /** By the key of a node or an edge; what is the same at both times is absent. */
  marks: ReadonlyMap<string, ChangeMark>;
}

/** `changed` are the keys of nodes that a change between the two times was about. */
export function difference(before: MapGraph, after: MapGraph, changed: ReadonlySet<string>): Difference {
  const marks = new Map<string, ChangeMark>();
  const [nodesBefore, nodesAfter] = [byKey(before.nodes), byKey(after.nodes)];
  for (const node of after.nodes) {
    // A node without a name cannot be found again: nothing is said about it.
    if (node.name === null) continue;
    if (!nodesBefore.has(node.key)) marks.set(node.key, "added");
    else if (changed.has(node.key)) marks.set(node.key, "changed");
  }
  const gone = before.nodes.filter((node) => node.name !== null && !nodesAfter.has(node.key));
  for (const node of gone) marks.set(node.key, "removed");

  const known = byKey([...after.nodes, ...gone]);
  const edgesAfter = byKey(after.edges);
  const edgesBefore = new Map(before.edges.filter((edge) => isNamed(edge, nodesBefore)).map((edge) => [edge.key, edge]));
  for (const edge of after.edges) {
    const former = edgesBefore.get(edge.key);
    if (!isNamed(edge, nodesAfter)) continue;
    if (former === undefined) marks.set(edge.key, "added");
    else if (former.state !== edge.state || former.use.filled !== edge.use.filled) marks.set(edge.key, "changed");
  }
  const goneEdges = [...edgesBefore.values()].filter((edge) => !edgesAfter.has(edge.key) && known.has(edge.from) && known.has(edge.to));
  for (const edge of goneEdges) marks.set(edge.key, "removed");
  return { graph: { nodes: [...after.nodes, ...gone], edges: [...after.edges, ...goneEdges] }, marks };
}

function byKey<T extends { key: string }>(things: readonly T[]): Map<string, T> {
  return new Map(things.map((one) => [one.key, one]));
}

function isNamed(edge: MapEdge, nodes: ReadonlyMap<string, { name: string | null }>): boolean {
  return nodes.get(edge.from)?.name != null && nodes.get(edge.to)?.name != null;
}

/** The nodes that changes between two times were about. */
export function changedKeys(changes: readonly Change[], from: number, to: number): Set<string> {
  const found = new Set<string>();
  for (const one of changes) {
    if (one.at <= from || one.at > to) continue;
    const kinds = one.subject_kind === "application" ? ["streams", "spark"] : [one.subject_kind];
    for (const kind of kinds) found.add(nodeKey(kind, one.subject));
  }
  return found;
}

export const CHANGE_SIGNS: Readonly<Record<ChangeMark, string>> = { added: "+", removed: "−", changed: "~" };

/** `+3 −1 ~2`, with words: how many nodes and edges are new, gone and different. */
export function differenceSummary(marks: ReadonlyMap<string, ChangeMark>): string {
  const counts = { added: 0, removed: 0, changed: 0 };
  for (const mark of marks.values()) counts[mark] += 1;
  if (marks.size === 0) return "no difference";
  return (["added", "removed", "changed"] as const)
    .filter((mark) => counts[mark] > 0)
    .map((mark) => `${CHANGE_SIGNS[mark]} ${counts[mark]} ${mark}`)
    .join(", ");
}
