/**
 * What React Flow would measure, given with the nodes: their sizes, where their edges begin and end, and the first
 * viewport. Nodes need no elements for the ends of edges then, and nothing is measured when nodes or the viewport change.
 */

import { getNodesBounds, getViewportForBounds, type Node, Position, useStoreApi, type Viewport } from "@xyflow/react";
import { useState } from "react";
import type { Direction } from "./layout";

const AROUND = 60; // for badges, outlines, and edges that go around the nodes

export interface Size {
  width: number;
  height: number;
}

export interface Fit {
  padding: number;
  minZoom: number;
  maxZoom: number;
}

/** Edges come in at the middle of one side and leave at the middle of the other; each end is as large as a pixel. */
export function given({ width, height }: Size, direction: Direction = "RIGHT"): Pick<Node, "width" | "height" | "measured" | "handles"> {
  const [middle, center] = [height / 2, width / 2];
  return {
    width,
    height,
    measured: { width, height },
    handles:
      direction === "RIGHT"
        ? [
            { type: "target", position: Position.Left, x: 0, y: middle },
            { type: "source", position: Position.Right, x: width - 1, y: middle },
          ]
        : [
            { type: "target", position: Position.Top, x: center, y: 0 },
            { type: "source", position: Position.Bottom, x: center, y: height - 1 },
          ],
  };
}

/**
 * Keeps React Flow from measuring, which would find no ends of edges, and returns the viewport that shows all nodes:
 * it is there with the first picture. Call it above `ReactFlow`, and give it this viewport as the default.
 */
export function useGiven(nodes: Node[], room: Size | null, fit: Fit): Viewport {
  const store = useStoreApi();
  const [first] = useState(() => {
    const bounds = getNodesBounds(nodes.filter((node) => node.parentId === undefined));
    const viewport = getViewportForBounds(bounds, room?.width ?? 1200, room?.height ?? 600, fit.minZoom, fit.maxZoom, fit.padding);
    store.setState({ transform: [viewport.x, viewport.y, viewport.zoom], updateNodeInternals: () => undefined });
    return viewport;
  });
  return first;
}

/**
 * A rectangle behind all nodes. A browser moves the map as one layer only if something reaches as far as its nodes do;
 * without that it makes hundreds of small layers of them, which take longer than to paint the map anew.
 */
export function groundOf(nodes: Node[]): { left: number; top: number; width: number; height: number } {
  const { x, y, width, height } = getNodesBounds(nodes.filter((node) => node.parentId === undefined));
  return { left: x - AROUND, top: y - AROUND, width: width + 2 * AROUND, height: height + 2 * AROUND };
}

/** The room that an element has inside. */
export function roomIn(element: HTMLElement | null): Size | null {
  return element === null ? null : { width: element.clientWidth, height: element.clientHeight };
}
