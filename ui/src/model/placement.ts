/** Where nodes stand: a layout stays as it is when data changes, and new nodes find a free place beside it. */

import type { GraphLayout } from "../api/shapes";
import { answerKey, type MapGraph, type MapNode } from "./estate_graph";

export interface Point {
  x: number;
  y: number;
}

export type Positions = ReadonlyMap<string, Point>;

const GAP_X = 70;
const GAP_Y = 14;

/**
 * The positions of all nodes of the graph. Known nodes keep theirs. A new one stands to the right of what it gets data
 * from, or to the left of what it feeds, at the first height that is free.
 */
export function placed(graph: MapGraph, known: Positions): Map<string, Point> {
  const sizes = new Map(graph.nodes.map((node) => [node.key, node]));
  const result = new Map<string, Point>();
  for (const node of graph.nodes) {
    const at = known.get(node.key);
    if (at !== undefined) result.set(node.key, at);
  }
  for (const node of graph.nodes) {
    if (!result.has(node.key)) result.set(node.key, free(node, wanted(node, graph, result, sizes), result, sizes));
  }
  return result;
}

/** The positions that the server computed, which are centres; nodes that it did not know yet find a free place. */
export function serverPositions(graph: MapGraph, layout: GraphLayout): Map<string, Point> {
  const sizes = new Map(graph.nodes.map((node) => [node.key, node]));
  const known = new Map<string, Point>();
  layout.nodes.forEach((node, place) => {
    const key = answerKey(node, place);
    const size = sizes.get(key);
    if (size !== undefined) known.set(key, { x: Math.round(node.x - size.width / 2), y: Math.round(node.y - size.height / 2) });
  });
  return placed(graph, known);
}

function wanted(node: MapNode, graph: MapGraph, at: Positions, sizes: ReadonlyMap<string, MapNode>): Point {
  const before: Point[] = [];
  const after: Point[] = [];
  for (const edge of graph.edges) {
    const from = edge.to === node.key ? at.get(edge.from) : undefined;
    if (from !== undefined) before.push({ x: from.x + (sizes.get(edge.from)?.width ?? 0) + GAP_X, y: from.y });
    const to = edge.from === node.key ? at.get(edge.to) : undefined;
    if (to !== undefined) after.push({ x: to.x - node.width - GAP_X, y: to.y });
  }
  if (before.length > 0) return { x: Math.max(...before.map((p) => p.x)), y: before[0]?.y ?? 0 };
  if (after.length > 0) return { x: Math.min(...after.map((p) => p.x)), y: after[0]?.y ?? 0 };
  let bottom = 0;
  for (const [key, point] of at) bottom = Math.max(bottom, point.y + (sizes.get(key)?.height ?? 0) + GAP_Y);
  return { x: 0, y: bottom };
}

function free(node: MapNode, from: Point, at: Positions, sizes: ReadonlyMap<string, MapNode>): Point {
  const point = { ...from };
  for (let again = true; again; ) {
    again = false;
    for (const [key, other] of at) {
      const size = sizes.get(key);
      if (size === undefined) continue;
      const apart =
        point.x + node.width <= other.x ||
        other.x + size.width <= point.x ||
        point.y + node.height + GAP_Y <= other.y ||
        other.y + size.height + GAP_Y <= point.y;
      if (!apart) {
        point.y = other.y + size.height + GAP_Y;
        again = true;
      }
    }
  }
  return point;
}

export type Arrow = "ArrowLeft" | "ArrowRight" | "ArrowUp" | "ArrowDown";

/** The node that an arrow key leads to: left and right follow the data, up and down the column. */
export function walk(graph: MapGraph, at: Positions, selected: string | null, arrow: Arrow): string | null {
  const here = selected === null ? undefined : at.get(selected);
  if (selected === null || here === undefined) return graph.nodes[0]?.key ?? null;
  if (arrow === "ArrowLeft" || arrow === "ArrowRight") {
    const linked = graph.edges
      .filter((edge) => (arrow === "ArrowRight" ? edge.from : edge.to) === selected)
      .map((edge) => (arrow === "ArrowRight" ? edge.to : edge.from));
    return nearest(linked, at, (point) => Math.abs(point.y - here.y)) ?? selected;
  }
  const sign = arrow === "ArrowDown" ? 1 : -1;
  const others = graph.nodes.map((node) => node.key).filter((key) => {
    const point = at.get(key);
    return point !== undefined && (point.y - here.y) * sign > 0;
  });
  return nearest(others, at, (point) => Math.abs(point.y - here.y) + 3 * Math.abs(point.x - here.x)) ?? selected;
}

function nearest(keys: string[], at: Positions, far: (point: Point) => number): string | null {
  let best: string | null = null;
  let least = Infinity;
  for (const key of keys) {
    const point = at.get(key);
    const distance = point === undefined ? Infinity : far(point);
    if (distance < least) [best, least] = [key, distance];
  }
  return best;
}
