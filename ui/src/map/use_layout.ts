/** Positions of a graph: laid out anew for another view, kept for another version of the same one. */

import { useEffect, useRef, useState } from "react";
import type { MapGraph } from "../model/estate_graph";
import { placed, type Point, type Positions } from "../model/placement";
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

/** `view` names what is shown: while it stays, positions stay. `again` counts the wishes to lay out anew. */
export function useLayout(graph: MapGraph | null, view: string, again: number): { laid: LaidOut | null; problem: string | null } {
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
    let isStopped = false;
    layOut(graph.nodes, graph.edges).then(
      (found) => {
        if (isStopped) return;
        layouts.current += 1;
        held.current = { view: id, at: found.at, first: new Set(graph.nodes.map((node) => node.key)) };
        setProblem(null);
        setLaid({ graph, at: found.at, layoutId: layouts.current, fresh: new Set() });
      },
      (error: unknown) => {
        if (!isStopped) setProblem(error instanceof Error ? error.message : String(error));
      },
    );
    return () => {
      isStopped = true;
    };
  }, [graph, view, again]);
  return { laid, problem };
}
