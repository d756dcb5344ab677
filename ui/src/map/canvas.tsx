/** The picture of a graph: real DOM nodes, so that names can be searched, read aloud and tested. */

import { Controls, type Edge, Handle, MarkerType, type Node, type NodeProps, Position, ReactFlow, type ReactFlowInstance, ReactFlowProvider } from "@xyflow/react";
import { memo, useEffect, useMemo, useRef } from "react";
import { type Detour, detours } from "../model/back_edges";
import { type MapGraph, type MapNode, USE_WORDS } from "../model/estate_graph";
import { kindWord, printable, shortened } from "../model/format";
import type { Positions } from "../model/placement";
import { Icon } from "../shell/icons";
import { EDGE_TYPES } from "./edges";

export interface NodeMarks {
  focus: string | null;
  selected: string | null;
  fresh: ReadonlySet<string>;
  paused: ReadonlySet<string>;
}

interface NodeData extends Record<string, unknown> {
  node: MapNode;
  className: string;
}

const FIT = { padding: 0.12, maxZoom: 1, minZoom: 0.05 };
const MapNodeView = memo(function MapNodeView({ data }: NodeProps<Node<NodeData>>) {
  const { node, className } = data;
  return (
    <div className={className}>
      <Handle type="target" position={Position.Left} isConnectable={false} />
      {node.kind === "topic" ? null : (
        <span className="kind">
          <Icon of={node.kind} />
          {kindWord(node.kind)}
          {node.component === null ? "" : ` · part ${shortened(node.component, 8)}`}
        </span>
      )}
      <bdi className="name">{node.label}</bdi>
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </div>
  );
});

const NODE_TYPES = { thing: MapNodeView };

export function Canvas(props: {
  graph: MapGraph;
  at: Positions;
  marks: NodeMarks;
  /** Changes when the whole picture is another one: then it is fitted into the window. */
  layoutId: number;
  onSelect: (key: string | null) => void;
  onOpen: (node: MapNode) => void;
}) {
  return (
    <ReactFlowProvider>
      <Flow {...props} />
    </ReactFlowProvider>
  );
}

function Flow({ graph, at, marks, layoutId, onSelect, onOpen }: Parameters<typeof Canvas>[0]) {
  const flow = useRef<ReactFlowInstance<Node<NodeData>, Edge> | null>(null);
  const near = useMemo(() => nearKeys(graph, marks.selected), [graph, marks.selected]);
  const nodes = useMemo(() => graph.nodes.map((node) => flowNode(node, at, marks, near)), [graph, at, marks, near]);
  const ways = useMemo(() => detours(graph.nodes, graph.edges, at), [graph, at]);
  const edges = useMemo(() => flowEdges(graph, marks, ways), [graph, marks, ways]);

  useEffect(() => {
    const frame = requestAnimationFrame(() => void flow.current?.fitView(FIT));
    return () => cancelAnimationFrame(frame);
  }, [layoutId]);

  return (
    <ReactFlow
      nodes={nodes}
      edges={edges}
      nodeTypes={NODE_TYPES}
      edgeTypes={EDGE_TYPES}
      onInit={(made) => {
        flow.current = made;
      }}
      fitView
      fitViewOptions={FIT}
      minZoom={0.05}
      maxZoom={2}
      nodesDraggable={false}
      nodesConnectable={false}
      elementsSelectable={false}
      edgesFocusable={false}
      onlyRenderVisibleElements={graph.nodes.length > 200}
      onNodeClick={(_, node) => onSelect(node.id)}
      onNodeDoubleClick={(_, node) => onOpen(node.data.node)}
      onPaneClick={() => onSelect(null)}
      zoomOnDoubleClick={false}
      aria-label="Map of topics and their users"
    >
      <Controls showInteractive={false} position="bottom-right" />
    </ReactFlow>
  );
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

function flowNode(node: MapNode, at: Positions, marks: NodeMarks, near: ReadonlySet<string> | null): Node<NodeData> {
  const classes = ["node", node.kind];
  if (node.name === null) classes.push("is-hidden");
  if (node.internal) classes.push("internal");
  if (node.key === marks.focus) classes.push("focus");
  if (node.key === marks.selected) classes.push("selected");
  if (marks.fresh.has(node.key)) classes.push("is-new");
  if (marks.paused.has(node.key)) classes.push("paused");
  if (near !== null && !near.has(node.key)) classes.push("dim");
  const name = node.name === null ? "name not visible" : printable(node.name);
  return {
    id: node.key,
    type: "thing",
    position: at.get(node.key) ?? { x: 0, y: 0 },
    width: node.width,
    height: node.height,
    data: { node, className: classes.join(" ") },
    ariaLabel: `${kindWord(node.kind)} ${name}${marks.paused.has(node.key) ? ", paused" : ""}`,
  };
}

function flowEdges(graph: MapGraph, marks: NodeMarks, ways: ReadonlyMap<string, Detour>): Edge[] {
  const isShown = marks.selected !== null && graph.nodes.some((node) => node.key === marks.selected);
  return graph.edges.map((edge) => {
    const isNear = edge.from === marks.selected || edge.to === marks.selected;
    const isPaused = marks.paused.has(edge.to) || marks.paused.has(edge.from);
    const classes = [`edge-${edge.state}`];
    if (isPaused) classes.push("edge-paused");
    else if (isNear) classes.push("edge-near");
    if (isShown && !isNear) classes.push("edge-dim");
    const way = ways.get(edge.key);
    const color = isPaused ? "var(--stopped)" : isNear ? "var(--accent)" : "var(--edge)";
    return {
      id: edge.key,
      source: edge.from,
      target: edge.to,
      ...(way === undefined ? {} : { type: "back", data: { way } }),
      className: classes.join(" "),
      markerEnd: { type: MarkerType.ArrowClosed, width: 14, height: 14, color },
      ariaLabel: USE_WORDS[edge.state],
    };
  });
}

export function Legend({ summary, hasPaused }: { summary: string; hasPaused: boolean }) {
  return (
    <div className="legend">
      <span role="status">{summary}</span>
      <Line dash="" text="declared and observed" />
      <Line dash="7 5" text="declared only" />
      <Line dash="1.5 4" text="observed only" />
      {hasPaused ? <Line dash="" text="paused" color="var(--stopped)" /> : null}
    </div>
  );
}

function Line({ dash, text, color = "var(--edge)" }: { dash: string; text: string; color?: string }) {
  return (
    <span>
      <svg aria-hidden="true">
        <path d="M0 4h30" stroke={color} strokeWidth="1.8" strokeDasharray={dash} strokeLinecap={dash.startsWith("1") ? "round" : "butt"} />
      </svg>
      {text}
    </span>
  );
}
