/** Positions of a graph: laid out anew for another view, kept for another version of the same one.
 *
 * The server computes those of an overview with Graphviz, where it has it; everything else, elkjs does in a worker. */

import { useEffect, useRef, useState } from "react";
import { get } from "../api/client";
import type { GraphLayout } from "../api/shapes";
import type { MapGraph } from "../model/estate_graph";
import { placed, type Point, type Positions, serverPositions } from "../model/placement";
import { layOut } from "./layout";

export interface LaidOut {
  graph: MapGraph;
  at: Positions;
  /** Counts the layouts, so that each of them is fitted into the window once. */
  layoutId: number;
  /** Nodes that came after the layout. */
  fresh: ReadonlySet<string>;
}

interface Held {
  view: string;
  at: Map<string, Point>;
  first: ReadonlySet<string>;
}

/**
 * `view` names what is shown: while it stays, positions stay. `again` counts the wishes to lay out anew. `layoutPath` is
 * the request for positions to the server, null where the browser computes them.
 */
export function useLayout(graph: MapGraph | null, view: string, again: number, layoutPath: string | null): { laid: LaidOut | null; problem: string | null } {
  const held = useRef<Held | null>(null);
  const layouts = useRef(0);
  const [laid, setLaid] = useState<LaidOut | null>(null);
  const [problem, setProblem] = useState<string | null>(null);

  useEffect(() => {
    if (graph === null) return;
    const id = `${view} ${again}`;
    const known = held.current;
    if (known !== null && known.view === id) {
      known.at = placed(graph, known.at);
      const fresh = new Set(graph.nodes.map((node) => node.key).filter((key) => !known.first.has(key)));
      setLaid({ graph, at: known.at, layoutId: layouts.current, fresh });
      return;
    }
    const stopped = new AbortController();
    positions(graph, layoutPath, stopped.signal).then(
      (at) => {
        if (stopped.signal.aborted) return;
        layouts.current += 1;
        held.current = { view: id, at, first: new Set(graph.nodes.map((node) => node.key)) };
        setProblem(null);
        setLaid({ graph, at, layoutId: layouts.current, fresh: new Set() });
      },
      (error: unknown) => {
        if (!stopped.signal.aborted) setProblem(error instanceof Error ? error.message : String(error));
      },
    );
    return () => stopped.abort();
  }, [graph, view, again, layoutPath]);
  return { laid, problem };
}

async function positions(graph: MapGraph, layoutPath: string | null, stopped: AbortSignal): Promise<Map<string, Point>> {
  if (layoutPath !== null) {
    const { outcome } = await get<GraphLayout>(layoutPath, null, stopped);
    if (outcome.kind === "data") return serverPositions(graph, outcome.data);
    // Without Graphviz, or while it is busy, the browser does it.
  }
  return (await layOut(graph.nodes, graph.edges)).at;
}
