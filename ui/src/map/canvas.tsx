/** The picture of a graph: real DOM nodes, so that names can be searched, read aloud and tested. */

import { Controls, type Edge, type EdgeMarker, MarkerType, type Node, ReactFlow, type ReactFlowInstance, ReactFlowProvider, ViewportPortal } from "@xyflow/react";
import { memo, type RefObject, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { type Detour, detours } from "../model/back_edges";
import { CHANGE_SIGNS, type ChangeMark } from "../model/difference";
import { isApplication, type MapEdge, type MapGraph, type MapNode, USE_WORDS } from "../model/estate_graph";
import { kindWord, printable } from "../model/format";
import type { Opened } from "../model/insides";
import type { Badge, Figures } from "../model/overlay";
import type { Positions } from "../model/placement";
import { pieceSize } from "../model/topology";
import { EDGE_TYPES } from "./edges";
import { given, groundOf, roomIn, type Size, useGiven } from "./given";
import { NODE_TYPES, type NodeData, Toggling } from "./nodes";
import { usePanning } from "./panning";

export interface NodeMarks {
  focus: string | null;
  selected: string | null;
  fresh: ReadonlySet<string>;
  paused: ReadonlySet<string>;
  /** Of nodes and edges, where two times are compared; null where they are not. */
  changes: ReadonlyMap<string, ChangeMark> | null;
  figures: Figures;
  /** Applications that can be expanded are those without parts, while times are not compared. */
  canExpand: boolean;
}

const FIT = { padding: 0.12, maxZoom: 1, minZoom: 0.05 };
/** More labels of edges cannot be read, and take long to draw. */
const MOST_LABELS = 150;
/** So few nodes are always drawn. */
const FEW = 200;
/** Names with other letters can be wider than their nodes. */
const FITS = /^[ -~\u00a0-\u024f…·]*$/;
const CHANGE_COLOURS: Readonly<Record<ChangeMark, string>> = { added: "var(--good)", removed: "var(--stopped)", changed: "var(--attention)" };
const CHANGE_STATES = { added: "good", removed: "stopped", changed: "attention" } as const;

/** What is done with nodes. */
export interface Acts {
  onSelect: (key: string | null) => void;
  onOpen: (node: MapNode) => void;
  onToggle: (key: string) => void;
}

interface Props {
  graph: MapGraph;
  at: Positions;
  marks: NodeMarks;
  opened: ReadonlyMap<string, Opened>;
  /** Changes when the whole picture is another one: then it is fitted into the window. */
  layoutId: number;
  /** What the map stands in: it has its size before the map is drawn. */
  place: RefObject<HTMLDivElement | null>;
  /** In a ref, because other ones are made each second, with the clock, and that is no reason to draw 900 nodes again. */
  acts: RefObject<Acts>;
}

export const Canvas = memo(function Canvas(props: Props) {
  const { acts } = props;
  const onToggle = useCallback((key: string) => acts.current.onToggle(key), [acts]);
  return (
    <ReactFlowProvider>
      <Toggling.Provider value={onToggle}>
        <Flow {...props} />
      </Toggling.Provider>
    </ReactFlowProvider>
  );
});

function Flow({ graph, at, marks, opened, layoutId, place, acts }: Props) {
  const flow = useRef<ReactFlowInstance<Node, Edge> | null>(null);
  const near = useMemo(() => nearKeys(graph, marks.selected), [graph, marks.selected]);
  const things = useMemo(() => graph.nodes.map((node) => flowNode(node, at, marks, opened, near)), [graph, at, marks, opened, near]);
  const pieces = useMemo(() => pieceNodes(opened, new Set(graph.nodes.map((node) => node.key))), [opened, graph]);
  const nodes = useMemo(() => [...things, ...pieces], [things, pieces]);
  const ways = useMemo(() => detours(graph.nodes, graph.edges.filter((edge) => edge.fromPiece === undefined && edge.toPiece === undefined), at), [graph, at]);
  const edges = useMemo(() => [...flowEdges(graph, marks, ways), ...pieceEdges(opened)], [graph, marks, ways, opened]);

  const ground = useMemo(() => groundOf(nodes), [nodes]);
  const first = useGiven(nodes, roomIn(place.current), FIT);
  const [isCloseUp, setIsCloseUp] = useState(false);
  const isPart = isCloseUp && nodes.length > FEW;
  const panning = usePanning(place, isPart);

  useEffect(() => {
    const frame = requestAnimationFrame(() => void flow.current?.fitView(FIT));
    return () => cancelAnimationFrame(frame);
  }, [layoutId]);
  // An application that was expanded is brought into view; when the last one is closed, the whole is.
  const shown = [...opened.keys()].join(" ");
  const shownBefore = useRef(shown);
  useEffect(() => {
    const before = shownBefore.current.split(" ");
    shownBefore.current = shown;
    const added = shown.split(" ").filter((key) => key !== "" && !before.includes(key));
    if (added.length === 0 && shown !== "") return;
    const frame = requestAnimationFrame(() => void flow.current?.fitView(added.length === 0 ? FIT : { ...FIT, nodes: added.map((id) => ({ id })) }));
    return () => cancelAnimationFrame(frame);
  }, [shown]);

  return (
    <ReactFlow
      nodes={nodes}
      edges={edges}
      nodeTypes={NODE_TYPES}
      edgeTypes={EDGE_TYPES}
      onInit={(made) => {
        flow.current = made as ReactFlowInstance<Node, Edge>;
      }}
      defaultViewport={first}
      viewport={first}
      onViewportChange={panning.onViewportChange}
      minZoom={0.05}
      maxZoom={2}
      nodesDraggable={false}
      nodesConnectable={false}
      elementsSelectable={false}
      edgesFocusable={false}
      onlyRenderVisibleElements={isPart}
      onNodeClick={(_, node) => acts.current.onSelect(ownerOf(node))}
      onNodeDoubleClick={(_, node) => {
        if (node.type === "thing") acts.current.onOpen((node.data as NodeData).node);
      }}
      onPaneClick={() => acts.current.onSelect(null)}
      onMove={panning.onMove}
      onMoveEnd={(_, { zoom }) => {
        panning.settle();
        setIsCloseUp(isCloser(ground, roomIn(place.current), zoom));
      }}
      zoomOnDoubleClick={false}
      attributionPosition="top-right"
      aria-label="Map of topics and their users"
    >
      <ViewportPortal>
        <div className="ground" aria-hidden="true" style={ground} />
      </ViewportPortal>
      <Controls showInteractive={false} position="bottom-right" />
    </ReactFlow>
  );
}

/** Whether less than half of the map is in sight: then it costs less to draw only that. */
function isCloser(whole: Size, room: Size | null, zoom: number): boolean {
  return room !== null && (room.width * room.height) / zoom ** 2 < (whole.width * whole.height) / 2;
}

/** The node of the map that a piece belongs to: a piece is a part of its application. */
function ownerOf(node: Node): string {
  return node.type === "piece" ? (node.id.split("#", 1)[0] ?? node.id) : node.id;
}

/** The selected node and its neighbours; null while nothing is selected. */
function nearKeys(graph: MapGraph, selected: string | null): ReadonlySet<string> | null {
  if (selected === null || !graph.nodes.some((node) => node.key === selected)) return null;
  const near = new Set([selected]);
  for (const edge of graph.edges) {
    if (edge.from === selected) near.add(edge.to);
    if (edge.to === selected) near.add(edge.from);
  }
  return near;
}

function flowNode(node: MapNode, at: Positions, marks: NodeMarks, opened: ReadonlyMap<string, Opened>, near: ReadonlySet<string> | null): Node<NodeData> {
  const change = marks.changes?.get(node.key);
  const isOpen = opened.has(node.key);
  const classes = ["node", node.kind];
  if (node.name === null) classes.push("is-hidden");
  if (node.internal) classes.push("internal");
  if (!FITS.test(node.label)) classes.push("is-clipped");
  if (isOpen) classes.push("frame");
  if (node.key === marks.focus) classes.push("focus");
  if (node.key === marks.selected) classes.push("selected");
  if (marks.fresh.has(node.key) && marks.changes === null) classes.push("is-new");
  if (marks.paused.has(node.key)) classes.push("paused");
  if (change !== undefined) classes.push(`is-${change}`);
  else if (marks.changes !== null) classes.push("is-same");
  if (near !== null && !near.has(node.key)) classes.push("dim");
  const badge = change === undefined ? (marks.figures.nodes.get(node.key) ?? null) : changeBadge(change);
  const name = node.name === null ? "name not visible" : printable(node.name);
  const words = [`${kindWord(node.kind)} ${name}`, ...(marks.paused.has(node.key) ? ["paused"] : []), ...(badge === null ? [] : [badge.meaning])];
  return {
    id: node.key,
    type: "thing",
    position: at.get(node.key) ?? { x: 0, y: 0 },
    ...given(node),
    data: { node, className: classes.join(" "), badge, isOpen: marks.canExpand && isApplication(node.kind) && node.name !== null && node.component === null ? isOpen : null },
    ariaLabel: words.join(", "),
  };
}

function changeBadge(change: ChangeMark): Badge {
  return { text: `${CHANGE_SIGNS[change]} ${change}`, state: null, meaning: change, tone: CHANGE_STATES[change] };
}

/** The pieces of expanded applications, each after the frame that it stands in. */
function pieceNodes(opened: ReadonlyMap<string, Opened>, shown: ReadonlySet<string>): Node[] {
  return [...opened].filter(([app]) => shown.has(app)).flatMap(([app, { inside, at, size }]) =>
    [...inside.pieces].sort((a, b) => Number(b.type === "sub") - Number(a.type === "sub")).map((piece): Node => ({
      id: piece.key,
      type: "piece",
      parentId: piece.parent ?? app,
      position: at.get(piece.key) ?? { x: 0, y: 0 },
      ...given(size.get(piece.key) ?? pieceSize(piece)),
      data: { piece },
      focusable: piece.type !== "sub",
      ariaLabel: `${piece.type} ${printable(piece.name)}${piece.note === undefined ? "" : `, ${printable(piece.note)}`}`,
    })),
  );
}

function pieceEdges(opened: ReadonlyMap<string, Opened>): Edge[] {
  return [...opened.values()].flatMap(({ inside }) =>
    inside.edges.map((edge): Edge => ({
      id: `${edge.from} ${edge.to}`,
      source: edge.from,
      target: edge.to,
      className: "edge-both",
      interactionWidth: 0,
      markerEnd: arrow("var(--edge)"),
    })),
  );
}

function flowEdges(graph: MapGraph, marks: NodeMarks, ways: ReadonlyMap<string, Detour>): Edge[] {
  const isShown = marks.selected !== null && graph.nodes.some((node) => node.key === marks.selected);
  const hasLabels = graph.edges.length <= MOST_LABELS;
  return graph.edges.map((edge): Edge => {
    const isNear = edge.from === marks.selected || edge.to === marks.selected;
    const isPaused = marks.paused.has(edge.to) || marks.paused.has(edge.from);
    const change = marks.changes?.get(edge.key);
    const figure = marks.changes === null ? marks.figures.edges.get(edge.key) : undefined;
    const way = ways.get(edge.key);
    const classes = [`edge-${edge.state}`];
    if (change !== undefined) classes.push(`edge-${change}`);
    else if (marks.changes !== null) classes.push("edge-same");
    else if (isPaused) classes.push("edge-paused");
    else if (isNear) classes.push("edge-near");
    if (isShown && !isNear) classes.push("edge-dim");
    const color = change !== undefined ? CHANGE_COLOURS[change] : isPaused ? "var(--stopped)" : isNear ? "var(--accent)" : "var(--edge)";
    const label = hasLabels ? labelOf(edge, change, figure?.text) : undefined;
    return {
      id: edge.key,
      source: edge.fromPiece ?? edge.from,
      target: edge.toPiece ?? edge.to,
      ...(way === undefined ? {} : { type: "back", data: { way } }),
      ...(figure === undefined ? {} : { style: { strokeWidth: 1 + 5 * figure.weight } }),
      ...(label === undefined ? {} : { label, labelShowBg: true, labelBgPadding: [4, 1] as [number, number] }),
      className: classes.join(" "),
      interactionWidth: 0,
      markerEnd: arrow(color),
      ariaLabel: [USE_WORDS[edge.state], ...(edge.use.filled ? ["by a pattern or a chosen topic"] : []), ...(change === undefined ? [] : [change])].join(", "),
    };
  });
}

/** As large for a wide edge as for a narrow one. */
function arrow(color: string): EdgeMarker {
  return { type: MarkerType.ArrowClosed, width: 16, height: 16, color, markerUnits: "userSpaceOnUse" };
}

function labelOf(edge: MapEdge, change: ChangeMark | undefined, figure: string | undefined): string | undefined {
  if (change !== undefined) return CHANGE_SIGNS[change];
  return figure ?? (edge.use.filled ? "by pattern" : undefined);
}
