/** How nodes are drawn: topics as pills, everything else as boxes, and applications that are expanded as frames. */

import type { Node, NodeProps } from "@xyflow/react";
import { createContext, memo, useContext } from "react";
import type { MapNode } from "../model/estate_graph";
import { kindWord, shortened } from "../model/format";
import type { Badge } from "../model/overlay";
import { Icon } from "../shell/icons";
import { SHAPES } from "../shell/parts";
import { PieceView } from "./topology_picture";

export interface NodeData extends Record<string, unknown> {
  node: MapNode;
  className: string;
  badge: Badge | null;
  /** Whether it is expanded; null where it cannot be. */
  isOpen: boolean | null;
}

export type ThingNode = Node<NodeData>;

/** Expands an application, or closes it. */
export const Toggling = createContext<(key: string) => void>(() => undefined);

const Thing = memo(function Thing({ data }: NodeProps<ThingNode>) {
  const { node, className, badge, isOpen } = data;
  return (
    <div className={className}>
      {node.kind === "topic" ? null : (
        <span className="kind">
          <Icon of={node.kind} />
          {kindWord(node.kind)}
          {node.component === null ? "" : ` · part ${shortened(node.component, 8)}`}
          {isOpen === null ? null : <Toggle node={node} isOpen={isOpen} />}
        </span>
      )}
      <bdi className="name">{node.label}</bdi>
      {badge === null ? null : <BadgeView of={badge} />}
    </div>
  );
});

function Toggle({ node, isOpen }: { node: MapNode; isOpen: boolean }) {
  const toggle = useContext(Toggling);
  return (
    <button
      type="button"
      className="expander nodrag nopan"
      aria-expanded={isOpen}
      aria-label={`${isOpen ? "Collapse" : "Expand"} ${shortened(node.name ?? "", 100)}`}
      title={isOpen ? "Collapse (e)" : "Expand (e)"}
      onClick={(event) => {
        event.stopPropagation();
        toggle(node.key);
      }}
    >
      {isOpen ? "−" : "+"}
    </button>
  );
}

function BadgeView({ of }: { of: Badge }) {
  return (
    <span className={`badge ${of.state ?? of.tone ?? "plain"}`} title={of.meaning}>
      {of.state === null ? null : <i aria-hidden="true">{SHAPES[of.state]}</i>}
      {of.text}
    </span>
  );
}

export const NODE_TYPES = { thing: Thing, piece: PieceView };
