/** A description of a topology as a graph with its sub-topologies, and the short names of its versions. */

import type { Description, TopologyNode } from "../api/shapes";
import { shortened } from "./format";
import type { Mark } from "./topology_marks";

export interface Piece {
  key: string;
  type: "source" | "processor" | "sink" | "store" | "topic" | "sub" | "actor";
  name: string;
  /** The key of the sub-topology that it stands in. */
  parent?: string;
  /** How it differs from another version. */
  mark?: Mark;
  /** Further words: the pattern of a source, or that a sink chooses its topic for each record. */
  note?: string;
}

export interface TopologyGraph {
  pieces: Piece[];
  edges: { from: string; to: string }[];
}

export function topologyGraph(description: Description): TopologyGraph {
  const pieces = new Map<string, Piece>();
  const edges = new Map<string, { from: string; to: string }>();
  const add = (piece: Piece): string => {
    if (!pieces.has(piece.key)) pieces.set(piece.key, piece);
    return piece.key;
  };
  const link = (from: string, to: string): void => {
    edges.set(`${from} ${to}`, { from, to });
  };
  const topic = (name: string): string => add({ key: key("topic", name), type: "topic", name });

  const addNode = (node: TopologyNode, parent: string): void => {
    const own = key(parent, node.type, node.name);
    const note = noteOf(node);
    add({ key: own, type: node.type, name: node.name, parent, ...(note === null ? {} : { note }) });
    for (const next of node.successors ?? []) link(own, successorKey(parent, next, description));
    if (node.type === "source") for (const one of node.topics ?? []) link(topic(one), own);
    if (node.type === "sink" && node.topic != null) link(own, topic(node.topic));
    if (node.type === "processor") {
      for (const store of node.stores ?? []) {
        link(own, add({ key: key(parent, "store", store), type: "store", name: store, parent }));
      }
    }
  };

  for (const sub of description.subtopologies) {
    const parent = add({ key: key("sub", sub.id), type: "sub", name: `Sub-topology ${sub.id}` });
    for (const node of sub.nodes) addNode(node, parent);
  }
  description.global_stores.forEach((store, place) => {
    const parent = add({ key: key("sub", `global ${place}`), type: "sub", name: "Global store" });
    addNode(store.source, parent);
    addNode(store.processor, parent);
  });
  const known = [...edges.values()].filter((edge) => pieces.has(edge.from) && pieces.has(edge.to));
  return { pieces: [...pieces.values()], edges: known };
}

function key(...parts: string[]): string {
  return parts.map(encodeURIComponent).join("/");
}

function successorKey(parent: string, name: string, description: Description): string {
  const nodes = [
    ...description.subtopologies.flatMap((sub) => sub.nodes),
    ...description.global_stores.flatMap((store) => [store.source, store.processor]),
  ];
  return key(parent, nodes.find((node) => node.name === name)?.type ?? "processor", name);
}

function noteOf(node: TopologyNode): string | null {
  if (node.type === "source" && node.pattern != null) return `pattern ${node.pattern}`;
  if (node.type === "sink" && node.topic == null) return "topic chosen for each record";
  return null;
}

export const MOST_CHARACTERS = 36; // of the name of a piece

/** The size of a box that its name and its note fit into. */
export function pieceSize(piece: Piece): { width: number; height: number } {
  const note = piece.note === undefined ? 0 : piece.note.length + piece.type.length;
  const longest = Math.max([...shortened(piece.name, MOST_CHARACTERS)].length * 7.3, Math.min(note, 44) * 6);
  return { width: Math.max(90, Math.ceil(longest) + 30), height: piece.type === "topic" ? 28 : 44 };
}

const SHORT_HASH = 12;

const DESCRIBED_BY: Readonly<Record<string, string>> = {
  pushed: "a member",
  assignment: "task assignment",
  pasted: "a published text",
  spark: "a Spark query",
};

/** Where a description comes from. */
export function describedBy(provenance: string): string {
  return DESCRIBED_BY[provenance] ?? provenance;
}

/** `9f2c/0/ab12…`: a version as the commands name it. */
export function shortVersion(version: string): string {
  const [incarnation = "", epoch = "", hash = ""] = version.split("/");
  return hash === "" ? version : `${incarnation.slice(0, SHORT_HASH)}/${epoch}/${hash.replace("sha256:", "").slice(0, SHORT_HASH)}`;
}
