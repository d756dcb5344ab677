/** The map: what reads and writes which topics, around a focus or as a whole. The address has all of its settings. */

import { type KeyboardEvent, useMemo, useRef, useState } from "react";
import type { Change, Changes, Graph, GraphOverlay } from "../api/shapes";
import { usePausedGroups } from "../api/use_paused_groups";
import { useLastData, useResource } from "../api/use_resource";
import { changedKeys, type ChangeMark, difference, differenceSummary } from "../model/difference";
import { isApplication, kindCounts, type MapGraph, type MapNode, mapGraph, nodeKey } from "../model/estate_graph";
import { count, kindWord, kindWords } from "../model/format";
import { expanded } from "../model/insides";
import { graphPath, layoutPath, mapPath, type MapView as Settings, MOST_EXPANDED, parseMapView, withoutFigures } from "../model/map_view";
import { figures, NO_FIGURES } from "../model/overlay";
import { type Arrow, walk } from "../model/placement";
import { thingPath, viewOfKind } from "../model/route";
import { Command, Message, Notice } from "../shell/parts";
import { Resource, Stale } from "../shell/resource";
import { go, useIsNarrow, useRoute } from "../shell/router";
import { type Acts, Canvas } from "./canvas";
import { Legend } from "./legend";
import { NeighbourList } from "./neighbour_list";
import { SidePanel } from "./side_panel";
import { TimeLine, useRange } from "./time_line";
import { Toolbar } from "./toolbar";
import { useInsides } from "./use_insides";
import { useLayout } from "./use_layout";

const PROVISIONAL = "provisional: not all of it is in the tables yet";
const NOTHING: Graph = { cluster: null, as_of: null, collapsed: true, provisional: false, nodes: [], edges: [] };
const NO_CHANGES: readonly Change[] = [];
const NO_KEYS: readonly string[] = [];
const NONE_PAUSED: ReadonlySet<string> = new Set();

export function MapView() {
  const route = useRoute();
  const view = parseMapView(route.query);
  const isNarrow = useIsNarrow();
  const path = graphPath(view);
  const found = useResource<Graph>(path);
  const former = useResource<Graph>(view.compare === null ? null : graphPath({ ...view, asOf: view.compare }));
  const shown = useLastData(found);
  const range = useRange(view.span);
  const since = Math.min(range.from, view.compare ?? range.from);
  const changes = useLastData(useResource<Changes>(isNarrow ? null : `changes?since=${since}&limit=1000`, 30_000))?.changes ?? NO_CHANGES;
  const graph = useMemo(() => (shown === null ? null : mapGraph(shown)), [shown]);
  const before = view.compare === null ? null : former.state === "ready" ? former.data : former.state === "absent" ? NOTHING : null;
  const compared = useMemo(() => {
    if (graph === null || before === null || view.compare === null) return null;
    return difference(mapGraph(before), graph, changedKeys(changes, view.compare, view.asOf ?? Infinity));
  }, [graph, before, changes, view.compare, view.asOf]);

  function change(changes: Partial<Settings>, replace = false): void {
    go(mapPath({ ...view, ...changes }), replace);
  }

  const isEmpty = found.state === "ready" && found.data.nodes.length === 0 && (compared === null || compared.graph.nodes.length === 0);
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
        <Picture
          graph={compared?.graph ?? graph}
          changes={compared?.marks ?? null}
          view={view}
          path={path}
          change={change}
          isLoading={found.state === "loading" || (view.compare !== null && compared === null)}
          isProvisional={shown?.provisional === true}
        >
          {found.state === "ready" && found.stale !== null ? (
            <div className="over">
              <Stale problem={found.stale} at={found.at} />
            </div>
          ) : null}
          {former.state === "failed" && view.compare !== null ? (
            <div className="over">
              <Notice state="stopped" title="The earlier map could not be loaded">
                <p>
                  <Message of={former.problem.message} />
                </p>
              </Notice>
            </div>
          ) : null}
        </Picture>
      )}
      {isNarrow ? null : <TimeLine view={view} change={change} range={range} changes={changes} />}
    </div>
  );
}

function Picture(props: {
  graph: MapGraph;
  changes: ReadonlyMap<string, ChangeMark> | null;
  view: Settings;
  path: string;
  change: (changes: Partial<Settings>, replace?: boolean) => void;
  isLoading: boolean;
  isProvisional: boolean;
  children: React.ReactNode;
}) {
  const { graph, changes, view, path, change } = props;
  const place = useRef<HTMLDivElement>(null);
  const [again, setAgain] = useState(0);
  // While the answer of another view is awaited, the graph is still that of the former one.
  const [shownPath, setShownPath] = useState(path);
  if (!props.isLoading && shownPath !== path) setShownPath(path);
  const { laid, problem } = useLayout(graph, `${shownPath} ${changes === null}`, again, layoutPath(shownPath));
  const paused = usePausedGroups();
  const overlay = withoutFigures(view) === null ? view.overlay : "none";
  const known = useLastData(useResource<GraphOverlay>(overlay === "none" || overlay === "rate" ? null : "graph/overlay"));
  const insides = useInsides(laid?.graph ?? null, changes === null ? view.expanded : NO_KEYS, view.asOf, view.internal);
  const drawn = useMemo(() => (laid === null ? null : expanded(laid.graph, laid.at, insides.opened)), [laid, insides]);
  const shownFigures = useMemo(() => (drawn === null ? NO_FIGURES : figures(drawn.graph, overlay, known)), [drawn, overlay, known]);
  const marks = useMemo(
    () => ({
      focus: view.focus === null ? null : focusKey(graph, view),
      selected: view.selected,
      fresh: laid?.fresh ?? new Set<string>(),
      paused: view.asOf === null && changes === null ? paused : NONE_PAUSED,
      changes,
      figures: shownFigures,
      canExpand: changes === null,
    }),
    [graph, view.focus, view.focusKind, view.selected, view.asOf, laid, paused, changes, shownFigures],
  );
  const selected = view.selected === null ? null : (graph.nodes.find((node) => node.key === view.selected) ?? null);

  function toggle(key: string): void {
    const others = view.expanded.filter((one) => one !== key);
    change({ expanded: others.length < view.expanded.length ? others : [...others.slice(1 - MOST_EXPANDED), key] });
  }

  function onKey(event: KeyboardEvent): void {
    if (event.target instanceof HTMLElement && event.target.closest("input, select, button, a")) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && view.selected !== null) change({ selected: null });
    else if (event.key.startsWith("Arrow") && drawn !== null) {
      const next = walk(drawn.graph, drawn.at, view.selected ?? focusedKey(event), event.key as Arrow);
      if (next !== null) change({ selected: next }, true);
    } else if (event.key === "Enter" && selected !== null && selected.name !== null) {
      change({ focus: selected.name, focusKind: selected.kind });
    } else if (event.key === "e" && selected !== null && isExpandable(selected, view)) toggle(selected.key);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function open(node: MapNode): void {
    const to = node.name === null ? null : viewOfKind(node.kind);
    if (node.name !== null && to !== null) go(thingPath(to, null, node.name));
    else if (node.name !== null) change({ focus: node.name, focusKind: node.kind });
  }

  const newest: Acts = { onSelect: (key) => change({ selected: key }), onOpen: open, onToggle: toggle };
  const acts = useRef(newest);
  acts.current = newest;

  return (
    <>
      <div className="map-canvas" ref={place} onKeyDownCapture={onKey} data-layout={laid === null ? "pending" : laid.layoutId} data-expanded={insides.opened.size} tabIndex={-1}>
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
        {drawn === null || laid === null ? null : (
          <Canvas
            graph={drawn.graph}
            at={drawn.at}
            marks={marks}
            opened={insides.opened}
            layoutId={laid.layoutId}
            place={place}
            acts={acts}
          />
        )}
        <Legend summary={props.isProvisional ? `${summary(graph)} · ${PROVISIONAL}` : summary(graph)} hasPaused={marks.paused.size > 0} changes={changes === null ? null : differenceSummary(changes)} />
        {[...insides.problems].map(([key, text]) => (
          <p key={key} className="laying" role="status">
            {text}
          </p>
        ))}
        {laid !== null && laid.fresh.size > 0 && changes === null ? (
          <p className="laying" role="status">
            {laid.fresh.size} new{" "}
            <button type="button" onClick={() => setAgain((now) => now + 1)}>
              Lay out again
            </button>
          </p>
        ) : null}
      </div>
      {selected === null ? null : (
        <SidePanel
          node={selected}
          graph={graph}
          view={view}
          change={change}
          isPaused={marks.paused.has(selected.key)}
          onToggle={changes === null && isExpandable(selected, view) ? () => toggle(selected.key) : null}
        />
      )}
    </>
  );
}

/** The node that has the focus of the keyboard: where nothing is selected, the walk begins there. */
function focusedKey(event: KeyboardEvent): string | null {
  const node = event.target instanceof HTMLElement ? event.target.closest<HTMLElement>(".react-flow__node-thing") : null;
  return node?.dataset["id"] ?? null;
}

function isExpandable(node: MapNode, view: Settings): boolean {
  return view.compare === null && node.name !== null && node.component === null && isApplication(node.kind);
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
      {found.problem === undefined ? null : (
        <p>
          <Message of={found.problem.message} />
        </p>
      )}
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
