/** One application from inside: sub-topologies as frames, with sources, processors, stores and sinks. */

import { Controls, type Edge, MarkerType, type Node, type NodeProps, ReactFlow, ReactFlowProvider } from "@xyflow/react";
import { memo, type RefObject, useEffect, useMemo, useRef, useState } from "react";
import type { Description } from "../api/shapes";
import { printable, shortened } from "../model/format";
import { MOST_CHARACTERS, type Piece, pieceSize, topologyGraph, type TopologyGraph } from "../model/topology";
import { MARK_SIGNS } from "../model/topology_marks";
import { Notice } from "../shell/parts";
import { given, roomIn, useGiven } from "./given";
import { type Laid, layOut, shownAt } from "./layout";

export type PieceNode = Node<{ piece: Piece } & Record<string, unknown>>;

export const PieceView = memo(function PieceView({ data: { piece } }: NodeProps<PieceNode>) {
  if (piece.type === "sub") return <div className="sub">{printable(piece.name)}</div>;
  return (
    <div className={`node is-clipped piece-${piece.type}${piece.mark === undefined ? "" : ` mark-${piece.mark}`}`} title={printable(piece.name)}>
      {piece.type === "topic" ? null : (
        <span className="kind">
          {piece.type === "actor" ? (piece.note ?? "") : piece.type}
          {piece.note === undefined || piece.type === "actor" ? "" : ` · ${shortened(piece.note, 30)}`}
        </span>
      )}
      {piece.mark === undefined ? null : <span className="mark">{`${MARK_SIGNS[piece.mark]} ${piece.mark}`}</span>}
      <bdi className="name">{shortened(piece.name, MOST_CHARACTERS)}</bdi>
    </div>
  );
});

const NODE_TYPES = { piece: PieceView };
const FIT = { padding: 0.06, minZoom: 0.05, maxZoom: 1 };

export function TopologyPicture({ description }: { description: Description }) {
  return <GraphPicture graph={topologyGraph(description)} label="Topology" />;
}

/** Pieces and edges, laid out so that most of it can be read; `className` gives it another height. */
export function GraphPicture({ graph: wanted, label, className = "" }: { graph: TopologyGraph; label: string; className?: string }) {
  // Equal content is the same picture, whatever object it comes in.
  const text = JSON.stringify(wanted);
  const graph = useMemo(() => JSON.parse(text) as TopologyGraph, [text]);
  const place = useRef<HTMLDivElement>(null);
  const [laid, setLaid] = useState<Laid | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    let isStopped = false;
    const boxes = graph.pieces.map((piece) => ({ key: piece.key, ...pieceSize(piece), ...(piece.parent === undefined ? {} : { parent: piece.parent }) }));
    const room = { width: place.current?.clientWidth ?? 1200, height: place.current?.clientHeight ?? 600 };
    // The direction in which more of it can be read: applications are long chains or wide fans.
    Promise.all([layOut(boxes, graph.edges, "RIGHT"), layOut(boxes, graph.edges, "DOWN")]).then(
      ([right, down]) => {
        if (!isStopped) setLaid(shownAt(down, room) > shownAt(right, room) ? down : right);
      },
      (error: unknown) => {
        if (!isStopped) setProblem(error instanceof Error ? error.message : String(error));
      },
    );
    return () => {
      isStopped = true;
    };
  }, [graph]);
  if (problem !== null) {
    return (
      <Notice state="stopped" title="The topology could not be laid out">
        <p>{problem} The tab Text has its content.</p>
      </Notice>
    );
  }
  return (
    <div className={`picture ${className}`} ref={place} data-layout={laid === null ? "pending" : "done"}>
      {laid === null ? <p className="laying" role="status">Laying out {graph.pieces.length} nodes…</p> : <Drawn key={laid.at.size} graph={graph} laid={laid} label={label} place={place} />}
    </div>
  );
}

interface DrawnProps {
  graph: TopologyGraph;
  laid: Laid;
  label: string;
  place: RefObject<HTMLDivElement | null>;
}

function Drawn(props: DrawnProps) {
  return (
    <ReactFlowProvider>
      <Flow {...props} />
    </ReactFlowProvider>
  );
}

function Flow({ graph, laid, label, place }: DrawnProps) {
  const nodes = graph.pieces
    .filter((piece) => laid.at.has(piece.key))
    .map((piece): PieceNode => ({
      id: piece.key,
      type: "piece",
      position: laid.at.get(piece.key) ?? { x: 0, y: 0 },
      ...given(laid.size.get(piece.key) ?? pieceSize(piece), laid.direction),
      ...(piece.parent === undefined ? {} : { parentId: piece.parent }),
      data: { piece },
      focusable: piece.type !== "sub",
      ariaLabel: `${piece.mark === undefined ? "" : `${piece.mark}: `}${piece.type === "actor" ? (piece.note ?? "") : piece.type} ${printable(piece.name)}`,
    }));
  const edges = graph.edges.map((edge): Edge => ({
    id: `${edge.from} ${edge.to}`,
    source: edge.from,
    target: edge.to,
    zIndex: 1,
    interactionWidth: 0,
    markerEnd: { type: MarkerType.ArrowClosed, width: 14, height: 14, color: "var(--edge)" },
  }));
  const first = useGiven(nodes, roomIn(place.current), FIT);
  return (
    <ReactFlow
      nodes={nodes}
      edges={edges}
      nodeTypes={NODE_TYPES}
      defaultViewport={first}
      minZoom={FIT.minZoom}
      nodesDraggable={false}
      nodesConnectable={false}
      elementsSelectable={false}
      edgesFocusable={false}
      preventScrolling={false}
      attributionPosition="top-right"
      aria-label={label}
    >
      <Controls showInteractive={false} position="bottom-right" />
    </ReactFlow>
  );
}
