/**
 * Dragging the map without React Flow's store, which tells each of its nodes and edges of every step.
 *
 * React Flow leaves the viewport in its store to the page when it is given a `viewport`. It stays the first one: later
 * ones are written into the store here, and not through React. While all nodes are in the document, a step of a drag
 * moves their element only, and the store gets the viewport when the drag ends.
 */

import { useStoreApi, type Viewport } from "@xyflow/react";
import { type RefObject, useCallback, useRef } from "react";

type Move = (event: MouseEvent | TouchEvent | null) => void;

interface Panning {
  /** For the properties of React Flow with these names. */
  onViewportChange: (viewport: Viewport) => void;
  onMove: Move;
  /** Call it when a movement has ended. */
  settle: () => void;
}

/** `place` has `data-moving` during a drag. With `isPart`, what is in sight is known from the store, at each step. */
export function usePanning(place: RefObject<HTMLElement | null>, isPart: boolean): Panning {
  const store = useStoreApi();
  const moved = useRef<HTMLElement | null>(null);
  const latest = useRef<Viewport | null>(null);

  const commit = useCallback(() => {
    const viewport = latest.current;
    latest.current = null;
    if (viewport !== null) store.setState({ transform: [viewport.x, viewport.y, viewport.zoom] });
  }, [store]);

  const onViewportChange = useCallback(
    (viewport: Viewport) => {
      latest.current = viewport;
      if (moved.current === null || isPart) commit();
      else moved.current.style.transform = `translate(${viewport.x}px,${viewport.y}px) scale(${viewport.zoom})`;
    },
    [commit, isPart],
  );

  const follow = useCallback(
    (isMoving: boolean) => {
      if (isMoving === (moved.current !== null)) return;
      moved.current = isMoving ? (store.getState().domNode?.querySelector<HTMLElement>(".react-flow__viewport") ?? null) : null;
      place.current?.toggleAttribute("data-moving", isMoving);
      if (!isMoving) commit();
    },
    [place, store, commit],
  );

  const onMove = useCallback<Move>((event) => follow(isDrag(event)), [follow]);
  const settle = useCallback(() => follow(false), [follow]);
  return { onViewportChange, onMove, settle };
}

/** A mouse or one finger; two of them zoom. */
function isDrag(event: MouseEvent | TouchEvent | null): boolean {
  return event !== null && ("touches" in event ? event.touches.length === 1 : event.type === "mousemove");
}
