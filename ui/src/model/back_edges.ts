/**
 * Edges against the direction of the picture, such as those of an application that reads what it wrote: they go around
 * the nodes in a lane of their own, because a curve between the two ends would run behind them.
 */

import type { Positions } from "./placement";

export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** The way around: down or up at `right`, along `lane`, and back at `left`. */
export interface Detour {
  left: number;
  right: number;
  lane: number;
}

const CLEAR = 7; // between an edge and whatever it passes
const LEAD = 14; // from a node to the first corner
const TRIES = 8;

interface Ends {
  key: string;
  from: string;
  to: string;
}

/** The edges that need a way around, by key. */
export function detours(nodes: readonly { key: string; width: number; height: number }[], edges: readonly Ends[], at: Positions): Map<string, Detour> {
  const rects = new Map<string, Rect>();
  for (const node of nodes) {
    const point = at.get(node.key);
    if (point !== undefined) rects.set(node.key, { ...point, width: node.width, height: node.height });
  }
  const obstacles = [...rects.values()];
  const found = new Map<string, Detour>();
  for (const edge of edges) {
    const from = rects.get(edge.from);
    const to = rects.get(edge.to);
    if (from === undefined || to === undefined || to.x >= from.x + from.width) continue;
    const way = around(from, to, obstacles);
    found.set(edge.key, way);
    // The next edge keeps clear of this one.
    obstacles.push({ x: way.left, y: way.lane - 1, width: way.right - way.left, height: 2 });
  }
  return found;
}

function around(from: Rect, to: Rect, obstacles: readonly Rect[]): Detour {
  const below = through(from, to, obstacles, 1);
  const above = through(from, to, obstacles, -1);
  return length(below, from, to) <= length(above, from, to) ? below : above;
}

/** The nearest free way below the two nodes (`side` 1), or above them (-1). */
function through(from: Rect, to: Rect, obstacles: readonly Rect[], side: 1 | -1): Detour {
  const [start, end] = [middle(from), middle(to)];
  let lane = side === 1 ? Math.max(bottom(from), bottom(to)) + LEAD : Math.min(from.y, to.y) - LEAD;
  let way: Detour = { left: to.x - LEAD, right: from.x + from.width + LEAD, lane };
  for (let tries = 0; tries < TRIES; tries += 1) {
    lane = freeLane(way, lane, obstacles, side);
    const right = freeColumn(from.x + from.width + LEAD, start, lane, obstacles, 1);
    const left = freeColumn(to.x - LEAD, end, lane, obstacles, -1);
    const isSettled = right === way.right && left === way.left && lane === way.lane;
    way = { left, right, lane };
    if (isSettled) break;
  }
  return way;
}

function freeLane(way: Detour, from: number, obstacles: readonly Rect[], side: 1 | -1): number {
  let lane = from;
  for (let again = true; again; ) {
    again = false;
    for (const one of obstacles) {
      if (one.x > way.right || one.x + one.width < way.left) continue;
      if (lane < one.y - CLEAR || lane > bottom(one) + CLEAR) continue;
      lane = side === 1 ? bottom(one) + CLEAR + 1 : one.y - CLEAR - 1;
      again = true;
    }
  }
  return lane;
}

function freeColumn(from: number, y: number, lane: number, obstacles: readonly Rect[], side: 1 | -1): number {
  const [top, low] = [Math.min(y, lane), Math.max(y, lane)];
  let column = from;
  for (let again = true; again; ) {
    again = false;
    for (const one of obstacles) {
      if (one.height <= 2 || one.y > low || bottom(one) < top) continue;
      if (column < one.x - CLEAR || column > one.x + one.width + CLEAR) continue;
      column = side === 1 ? one.x + one.width + CLEAR + 1 : one.x - CLEAR - 1;
      again = true;
    }
  }
  return column;
}

function length(way: Detour, from: Rect, to: Rect): number {
  return Math.abs(way.lane - middle(from)) + Math.abs(way.lane - middle(to)) + (way.right - way.left);
}

function middle(one: Rect): number {
  return one.y + one.height / 2;
}

function bottom(one: Rect): number {
  return one.y + one.height;
}

/** The path of an edge from its source around to its target, with round corners. */
export function detourPath(source: { x: number; y: number }, target: { x: number; y: number }, way: Detour): string {
  const points = [source, { x: way.right, y: source.y }, { x: way.right, y: way.lane }, { x: way.left, y: way.lane }, { x: way.left, y: target.y }, target];
  const [first, ...rest] = points;
  if (first === undefined) return "";
  let path = `M${first.x} ${first.y}`;
  let before = first;
  rest.forEach((corner, place) => {
    const after = rest[place + 1];
    if (after === undefined) {
      path += `L${corner.x} ${corner.y}`;
      return;
    }
    const [enter, leave] = [toward(corner, before), toward(corner, after)];
    path += `L${enter.x} ${enter.y}Q${corner.x} ${corner.y} ${leave.x} ${leave.y}`;
    before = corner;
  });
  return path;
}

function toward(corner: { x: number; y: number }, other: { x: number; y: number }): { x: number; y: number } {
  const far = Math.hypot(other.x - corner.x, other.y - corner.y);
  const part = far === 0 ? 0 : Math.min(8, far / 2) / far;
  return { x: corner.x + (other.x - corner.x) * part, y: corner.y + (other.y - corner.y) * part };
}
