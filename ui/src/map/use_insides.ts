/** The insides of expanded applications: their topologies, laid out by themselves. */

import { useEffect, useState } from "react";
import { get } from "../api/client";
import type { Topology, Versions } from "../api/shapes";
import type { MapGraph } from "../model/estate_graph";
import { insideOf, type Opened } from "../model/insides";
import { pieceSize } from "../model/topology";
import { layOut } from "./layout";

export interface Insides {
  opened: ReadonlyMap<string, Opened>;
  /** Why applications are not expanded, by key. */
  problems: ReadonlyMap<string, string>;
}

const NONE: Insides = { opened: new Map(), problems: new Map() };

/** Asked for again with each version of the graph, because an application may have another topology then. */
export function useInsides(graph: MapGraph | null, keys: readonly string[], asOf: number | null, hasTopics: boolean): Insides {
  const [insides, setInsides] = useState<Insides>(NONE);
  const wanted = keys.join(" ");
  useEffect(() => {
    if (graph === null || wanted === "") {
      setInsides((known) => (known.opened.size + known.problems.size === 0 ? known : NONE));
      return;
    }
    const stopped = new AbortController();
    const nodes = graph.nodes.filter((node) => node.name !== null && node.component === null && wanted.split(" ").includes(node.key));
    void Promise.all(nodes.map((node) => open(node.key, node.name ?? "", asOf, hasTopics, stopped.signal))).then(
      (found) => {
        if (stopped.signal.aborted) return;
        setInsides({
          opened: new Map(found.flatMap((one) => (typeof one.result === "string" ? [] : [[one.key, one.result] as const]))),
          problems: new Map(found.flatMap((one) => (typeof one.result === "string" ? [[one.key, one.result] as const] : []))),
        });
      },
      () => undefined, // stopped
    );
    return () => stopped.abort();
  }, [graph, wanted, asOf, hasTopics]);
  return insides;
}

async function open(key: string, name: string, asOf: number | null, hasTopics: boolean, stopped: AbortSignal): Promise<{ key: string; result: Opened | string }> {
  const path = `applications/${encodeURIComponent(name)}`;
  const version = asOf === null ? null : await versionAt(path, asOf, stopped);
  const { outcome } = await get<Topology>(`${path}/topology${version === null ? "" : `?version=${encodeURIComponent(version)}`}`, null, stopped);
  if (outcome.kind !== "data") return { key, result: outcome.kind === "problem" ? outcome.problem.message : "The topology could not be loaded." };
  const inside = insideOf(key, outcome.data.description, hasTopics);
  const boxes = inside.pieces.map((piece) => ({ key: piece.key, ...pieceSize(piece), ...(piece.parent === undefined ? {} : { parent: piece.parent }) }));
  try {
    const { extent, at, size } = await layOut(boxes, inside.edges);
    return { key, result: { inside, extent, at, size } };
  } catch (error) {
    return { key, result: error instanceof Error ? error.message : String(error) };
  }
}

/** The version that ran at a time; null, which is the latest, where none is known. */
async function versionAt(path: string, asOf: number, stopped: AbortSignal): Promise<string | null> {
  const { outcome } = await get<Versions>(`${path}/versions?limit=1000`, null, stopped);
  if (outcome.kind !== "data") return null;
  const ran = outcome.data.versions.find((one) => one.at <= asOf && (one.ended_at === null || one.ended_at > asOf));
  return ran?.version ?? null;
}
