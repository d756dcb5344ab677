/** A topology as a list: what each sub-topology reads, does, keeps and writes. */

import type { Description, TopologyNode } from "../api/shapes";

export interface OutlinePart {
  title: string;
  reads: string[];
  patterns: string[];
  processors: string[];
  stores: string[];
  writes: string[];
  /** Sinks that choose the topic for each record. */
  dynamicSinks: string[];
  isGlobal: boolean;
}

export function topologyOutline(description: Description): OutlinePart[] {
  const parts = description.subtopologies.map((part) => outline(`Sub-topology ${part.id}`, part.nodes, false));
  return [...parts, ...description.global_stores.map((store) => outline("Global store", [store.source, store.processor], true))];
}

function outline(title: string, nodes: readonly TopologyNode[], isGlobal: boolean): OutlinePart {
  const found: OutlinePart = { title, reads: [], patterns: [], processors: [], stores: [], writes: [], dynamicSinks: [], isGlobal };
  for (const node of nodes) {
    if (node.type === "source") {
      found.reads.push(...(node.topics ?? []));
      if (node.pattern != null) found.patterns.push(node.pattern);
    } else if (node.type === "processor") {
      found.processors.push(node.name);
      found.stores.push(...(node.stores ?? []));
    } else if (node.topic == null) found.dynamicSinks.push(node.name);
    else found.writes.push(node.topic);
  }
  return { ...found, reads: unique(found.reads), stores: unique(found.stores), writes: unique(found.writes) };
}

function unique(names: readonly string[]): string[] {
  return [...new Set(names)];
}
