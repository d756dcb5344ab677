/** What two versions of a topology have in common and what not: marks for both pictures, and lines for the list. */

import type { Diff } from "../api/shapes";
import { printable } from "./format";
import type { Piece, TopologyGraph } from "./topology";

export type Mark = "added" | "removed" | "changed" | "moved" | "renamed";

export const MARK_SIGNS: Readonly<Record<Mark, string>> = { added: "+", removed: "−", changed: "~", moved: "→", renamed: "↷" };

/** The graph of one side with marks: on the older one what is gone, on the newer one what is new, on both what differs. */
export function markedGraph(graph: TopologyGraph, diff: Diff, side: "from" | "to"): TopologyGraph {
  const marks = new Map<string, Mark>();
  const put = (name: string, mark: Mark) => marks.set(name, mark);
  for (const one of side === "from" ? diff.removed : diff.added) put(one.name, side === "from" ? "removed" : "added");
  for (const one of diff.changed) put(one.name, "changed");
  for (const one of diff.moved) put(one.name, "moved");
  for (const one of diff.renamed) put(one[side], "renamed");
  return {
    edges: graph.edges,
    pieces: graph.pieces.map((piece): Piece => {
      const mark = piece.type === "sub" ? undefined : marks.get(piece.name);
      return mark === undefined ? piece : { ...piece, mark };
    }),
  };
}

export interface DiffLine {
  key: string;
  mark: Mark;
  kind: string;
  name: string;
  detail: string;
}

/** One line for each difference, in reading order. */
export function diffLines(diff: Diff): DiffLine[] {
  const line = (mark: Mark, kind: string, name: string, detail = ""): DiffLine => ({ key: `${mark} ${kind} ${name} ${detail}`, mark, kind: kind.replaceAll("_", " "), name, detail });
  return [
    ...diff.removed.map((one) => line("removed", one.kind, one.name)),
    ...diff.added.map((one) => line("added", one.kind, one.name)),
    ...diff.changed.map((one) => line("changed", one.kind, one.name, changeDetail(one))),
    ...diff.moved.map((one) => line("moved", one.kind, one.name, one.from === undefined ? "" : `from sub-topology ${text(one.from)} to ${text(one.to)}`)),
    ...diff.renamed.map((one) => line("renamed", one.kind ?? "node", one.from, `to ${printable(one.to)}`)),
  ];
}

function changeDetail(one: Diff["changed"][number]): string {
  if (one.field === undefined) return "";
  return `${one.field.replaceAll("_", " ")}: ${text(one.from)} → ${text(one.to)}`;
}

function text(value: unknown): string {
  if (Array.isArray(value)) return value.length === 0 ? "none" : value.map((one) => printable(String(one))).join(", ");
  return value === undefined || value === null ? "none" : printable(String(value));
}
