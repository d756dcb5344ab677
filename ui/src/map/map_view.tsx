/** The map: what reads and writes which topics, around a focus or as a whole. The address has all of its settings. */

import { type KeyboardEvent, useMemo, useState } from "react";
import type { Graph } from "../api/shapes";
import { usePausedGroups } from "../api/use_paused_groups";
import { useLastData, useResource } from "../api/use_resource";
import { kindCounts, type MapGraph, type MapNode, mapGraph, nodeKey } from "../model/estate_graph";
import { count, kindWord, kindWords } from "../model/format";
import { graphPath, layoutPath, mapPath, type MapView as Settings, parseMapView } from "../model/map_view";
import { type Arrow, walk } from "../model/placement";
import { thingPath, viewOfKind } from "../model/route";
import { Command, Notice } from "../shell/parts";
import { Resource, Stale } from "../shell/resource";
import { go, useIsNarrow, useRoute } from "../shell/router";
import { Canvas, Legend } from "./canvas";
import { NeighbourList } from "./neighbour_list";
import { SidePanel } from "./side_panel";
import { Toolbar } from "./toolbar";
import { useLayout } from "./use_layout";

const PROVISIONAL = "provisional: not all of it is in the tables yet";

export function MapView() {
  const route = useRoute();
  const view = parseMapView(route.query);
  const isNarrow = useIsNarrow();
  const path = graphPath(view);
  const found = useResource<Graph>(path);
  const shown = useLastData(found);
  const graph = useMemo(() => (shown === null ? null : mapGraph(shown)), [shown]);

  function change(changes: Partial<Settings>, replace = false): void {
    go(mapPath({ ...view, ...changes }), replace);
  }

  const isEmpty = found.state === "ready" && found.data.nodes.length === 0;
  const isProblem = found.state === "forbidden" || found.state === "absent" || found.state === "failed";
  return (
    <div className="map-view">
      <Toolbar view={view} change={change} />
      {isProblem || (found.state === "loading" && graph === null) || isEmpty ? (
        <div className="content">
          <Resource of={found} what="map" absent={<Absent view={view} found={found} change={change} />}>
            {() => <Empty asOf={view.asOf} />}
          </Resource>
        </div>
      ) : graph === null ? null : isNarrow ? (
        <div className="content">
          {found.state === "ready" && found.stale !== null ? <Stale problem={found.stale} at={found.at} /> : null}
          {shown?.provisional === true ? <p role="status">{PROVISIONAL}</p> : null}
          <NeighbourList graph={graph} view={view} change={change} />
        </div>
      ) : (
        <Picture graph={graph} view={view} path={path} change={change} isLoading={found.state === "loading"} isProvisional={shown?.provisional === true}>
          {found.state === "ready" && found.stale !== null ? (
            <div className="over">
              <Stale problem={found.stale} at={found.at} />
            </div>
          ) : null}
        </Picture>
      )}
    </div>
  );
}

function Picture(props: {
  graph: MapGraph;
  view: Settings;
  path: string;
  change: (changes: Partial<Settings>, replace?: boolean) => void;
  isLoading: boolean;
  isProvisional: boolean;
  children: React.ReactNode;
}) {
  const { graph, view, path, change } = props;
  const [again, setAgain] = useState(0);
  // While the answer of another view is awaited, the graph is still that of the former one.
  const [shownPath, setShownPath] = useState(path);
  if (!props.isLoading && shownPath !== path) setShownPath(path);
  const { laid, problem } = useLayout(graph, shownPath, again, layoutPath(shownPath));
  const paused = usePausedGroups();
  const marks = useMemo(
    () => ({
      focus: view.focus === null ? null : focusKey(graph, view),
      selected: view.selected,
      fresh: laid?.fresh ?? new Set<string>(),
      paused,
    }),
    [graph, view.focus, view.focusKind, view.selected, laid, paused],
  );
  const selected = graph.nodes.find((node) => node.key === view.selected) ?? null;

  function onKey(event: KeyboardEvent): void {
    if (event.target instanceof HTMLElement && event.target.closest("input, select, button, a")) return;
    if (event.key === "Escape" && view.selected !== null) change({ selected: null });
    else if (event.key.startsWith("Arrow") && laid !== null) {
      const next = walk(laid.graph, laid.at, view.selected, event.key as Arrow);
      if (next !== null) change({ selected: next }, true);
    } else if (event.key === "Enter" && selected !== null && selected.name !== null) {
      change({ focus: selected.name, focusKind: selected.kind });
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function open(node: MapNode): void {
    const to = node.name === null ? null : viewOfKind(node.kind);
    if (node.name !== null && to !== null) go(thingPath(to, null, node.name));
    else if (node.name !== null) change({ focus: node.name, focusKind: node.kind });
  }

  return (
    <>
      <div className="map-canvas" onKeyDownCapture={onKey} data-layout={laid === null ? "pending" : laid.layoutId} tabIndex={-1}>
        {props.children}
        {problem === null ? null : (
          <div className="over">
            <Notice state="stopped" title="The map could not be laid out">
              <p>{problem}</p>
              <Command text={`curl -s '${window.location.origin}/api/v1/${graphPath(view, "svg")}' > map.svg`} />
            </Notice>
          </div>
        )}
        {laid === null && problem === null ? <p className="laying" role="status">Laying out {count(graph.nodes.length)} nodes…</p> : null}
        {laid === null ? null : (
          <Canvas graph={laid.graph} at={laid.at} marks={marks} layoutId={laid.layoutId} onSelect={(key) => change({ selected: key })} onOpen={open} />
        )}
        <Legend summary={props.isProvisional ? `${summary(graph)} · ${PROVISIONAL}` : summary(graph)} hasPaused={paused.size > 0} />
        {laid !== null && laid.fresh.size > 0 ? (
          <p className="laying" role="status">
            {laid.fresh.size} new{" "}
            <button type="button" onClick={() => setAgain((now) => now + 1)}>
              Lay out again
            </button>
          </p>
        ) : null}
      </div>
      {selected === null ? null : <SidePanel node={selected} graph={graph} view={view} change={change} isPaused={paused.has(selected.key)} />}
    </>
  );
}

function focusKey(graph: MapGraph, view: Settings): string | null {
  if (view.focus === null) return null;
  if (view.focusKind !== null) return nodeKey(view.focusKind, view.focus);
  return graph.nodes.find((node) => node.name === view.focus)?.key ?? null;
}

function summary(graph: MapGraph): string {
  return kindCounts(graph.nodes)
    .map(([kind, many]) => `${count(many)} ${many === 1 ? kindWord(kind) : kindWords(kind)}`)
    .join(", ");
}

function Empty({ asOf }: { asOf: number | null }) {
  if (asOf !== null) {
    return (
      <Notice state="unknown" title="Nothing was known at that time">
        <p>Choose a later time, or go back to live.</p>
      </Notice>
    );
  }
  return (
    <Notice state="unknown" title="The map is empty">
      <p>It fills when clients use topics through the gateway, and when applications describe their topologies. The pipeline writes both to the tables.</p>
      <Command text="headgate pipeline run --config FILE" />
    </Notice>
  );
}

function Absent({ view, found, change }: { view: Settings; found: { state: string; problem?: { message: string } }; change: (changes: Partial<Settings>) => void }) {
  return (
    <Notice state="unknown" title={view.focus === null ? "There is no map" : "The focus is not on the map"}>
      <p>{found.problem?.message}</p>
      {view.focus === null ? null : (
        <p>
          <button type="button" onClick={() => change({ focus: null, focusKind: null, selected: null })}>
            Show the whole map
          </button>
        </p>
      )}
    </Notice>
  );
}
