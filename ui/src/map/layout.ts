/** Positions by elkjs, in a worker of its own: the page stays responsive while a large map is laid out. */

import ELK, { type ElkNode } from "elkjs/lib/elk-api.js";
import workerUrl from "elkjs/lib/elk-worker.min.js?url";
import type { Point } from "../model/placement";

export interface Box {
  key: string;
  width: number;
  height: number;
  /** The box that this one stands in. */
  parent?: string;
}

export type Direction = "RIGHT" | "DOWN";

export interface Laid {
  direction: Direction;
  extent: { width: number; height: number };
  at: Map<string, Point>; // within the parent
  size: Map<string, { width: number; height: number }>; // of boxes with children
}

const OPTIONS = {
  "elk.algorithm": "layered",
  "elk.hierarchyHandling": "INCLUDE_CHILDREN",
  "elk.layered.spacing.nodeNodeBetweenLayers": "56",
  "elk.spacing.nodeNode": "20",
  "elk.spacing.componentComponent": "32",
  "elk.layered.nodePlacement.strategy": "BRANDES_KOEPF",
  "elk.layered.nodePlacement.bk.fixedAlignment": "BALANCED",
  "elk.padding": "[top=34,left=14,bottom=14,right=14]",
  "elk.aspectRatio": "1.8",
};

let elk: InstanceType<typeof ELK> | null = null;

/** The zoom at which a layout fits into a window, at most 1. */
export function shownAt(laid: Laid, size: { width: number; height: number }): number {
  return Math.min(1, size.width / Math.max(1, laid.extent.width), size.height / Math.max(1, laid.extent.height));
}

export async function layOut(boxes: readonly Box[], edges: readonly { from: string; to: string }[], direction: Direction = "RIGHT"): Promise<Laid> {
  elk ??= new ELK({ workerUrl });
  // Keys are chosen by clients and can be long: elk gets numbers.
  const number = new Map(boxes.map((box, place) => [box.key, `n${place}`]));
  const nodes = new Map<string, ElkNode>(
    boxes.map((box) => [box.key, { id: number.get(box.key) ?? "", width: box.width, height: box.height }]),
  );
  const roots: ElkNode[] = [];
  for (const box of boxes) {
    const node = nodes.get(box.key);
    const parent = box.parent === undefined ? undefined : nodes.get(box.parent);
    if (node === undefined) continue;
    if (parent === undefined) roots.push(node);
    else {
      parent.layoutOptions = { "elk.padding": OPTIONS["elk.padding"] };
      (parent.children ??= []).push(node);
    }
  }
  const links = edges.flatMap((edge, place) => {
    const [from, to] = [number.get(edge.from), number.get(edge.to)];
    return from === undefined || to === undefined ? [] : [{ id: `e${place}`, sources: [from], targets: [to] }];
  });
  const options = { ...OPTIONS, "elk.direction": direction };
  const found: ElkNode = await elk.layout({ id: "root", layoutOptions: options, children: roots, edges: links });
  take(found, nodes);
  const extent = { width: found.width ?? 0, height: found.height ?? 0 };
  const laid: Laid = { direction, extent, at: new Map(), size: new Map() };
  for (const [key, node] of nodes) {
    laid.at.set(key, { x: Math.round(node.x ?? 0), y: Math.round(node.y ?? 0) });
    if (node.children !== undefined) laid.size.set(key, { width: node.width ?? 0, height: node.height ?? 0 });
  }
  return laid;
}

function take(found: ElkNode, nodes: ReadonlyMap<string, ElkNode>): void {
  const byId = new Map([...nodes.values()].map((node) => [node.id, node]));
  const pending = [...(found.children ?? [])];
  for (let one = pending.pop(); one !== undefined; one = pending.pop()) {
    const node = byId.get(one.id);
    if (node !== undefined) Object.assign(node, { x: one.x, y: one.y, width: one.width, height: one.height });
    pending.push(...(one.children ?? []));
  }
}
