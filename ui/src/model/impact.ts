/** What depends on a topic, by distance; and what the coverage of a topic means. */

import type { Impact, ImpactNode, Topic } from "../api/shapes";
import { count } from "./format";
import type { StateName } from "./freshness";

export interface ImpactLevel {
  depth: number;
  nodes: ImpactNode[];
}

export function impactLevels(nodes: readonly ImpactNode[]): ImpactLevel[] {
  const levels = new Map<number, ImpactNode[]>();
  for (const node of nodes) {
    const level = levels.get(node.depth);
    if (level === undefined) levels.set(node.depth, [node]);
    else level.push(node);
  }
  return [...levels].sort((a, b) => a[0] - b[0]).map(([depth, found]) => ({ depth, nodes: found }));
}

/** With less than this share the lists of writers cannot be trusted to be whole. */
const WHOLE = 0.95;

export function coverageState(topic: Topic): { state: StateName; note: string | null } {
  if (topic.coverage === null) {
    return { state: "unknown", note: "The records of this topic were not counted: its writers may not all be listed." };
  }
  if (topic.coverage >= WHOLE) return { state: "good", note: null };
  if (!topic.complete_hours) {
    return { state: "unknown", note: "No hour is complete yet, so the share is too low: records that the gateway has not reported yet count as written past it." };
  }
  return { state: "attention", note: "Records are written past the gateway: writers may be missing from the list." };
}

export function impactSummary(impact: Impact): string {
  const actors = impact.actors === 1 ? "1 application or client" : `${count(impact.actors)} applications and clients`;
  const topics = impact.topics === 1 ? "1 topic" : `${count(impact.topics)} topics`;
  return `${topics}, ${actors}`;
}
