/** How edges are drawn: as a curve, or around the nodes where they run against the direction of the picture. */

import { BaseEdge, type Edge, type EdgeProps } from "@xyflow/react";
import { memo } from "react";
import { type Detour, detourPath } from "../model/back_edges";

export type BackEdge = Edge<{ way: Detour } & Record<string, unknown>, "back">;

const BackEdgeView = memo(function BackEdgeView({ id, sourceX, sourceY, targetX, targetY, data, markerEnd, label }: EdgeProps<BackEdge>) {
  if (data === undefined) return null;
  const path = detourPath({ x: sourceX, y: sourceY }, { x: targetX, y: targetY }, data.way);
  return <BaseEdge id={id} path={path} {...(markerEnd === undefined ? {} : { markerEnd })} label={label} interactionWidth={0} labelX={(data.way.left + data.way.right) / 2} labelY={data.way.lane} />;
});

export const EDGE_TYPES = { back: BackEdgeView };
