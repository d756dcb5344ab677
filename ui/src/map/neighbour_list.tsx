/** The map on a narrow screen: the neighbours of one node as lists that lead on. */

import { useState } from "react";
import { type MapGraph, type MapNode, type Neighbour, neighbours, nodeKey } from "../model/estate_graph";
import { bytes, kindWord } from "../model/format";
import type { MapView } from "../model/map_view";
import { thingPath, viewOfKind } from "../model/route";
import { Icon } from "../shell/icons";
import { Link, Name } from "../shell/parts";

type Change = (changes: Partial<MapView>) => void;
const MOST = 200;

export function NeighbourList({ graph, view, change }: { graph: MapGraph; view: MapView; change: Change }) {
  const [text, setText] = useState("");
  const focused =
    graph.nodes.find((node) => node.key === view.selected) ??
    graph.nodes.find((node) => node.name === view.focus && (view.focusKind === null || node.kind === view.focusKind));
  if (focused === undefined) {
    const fitting = graph.nodes.filter((node) => (node.name ?? "").toLowerCase().includes(text.toLowerCase()));
    return (
      <>
        <input type="search" aria-label="Filter by name" placeholder="Filter by name" value={text} onChange={(event) => setText(event.target.value)} />
        <section className="panel">
          <ul className="list body">
            {fitting.slice(0, MOST).map((node) => (
              <Row key={node.key} node={node} change={change} />
            ))}
          </ul>
        </section>
        {fitting.length > MOST ? <p className="muted">The first {MOST} of {fitting.length}.</p> : null}
      </>
    );
  }
  const near = neighbours(graph, nodeKey(focused.kind, focused.name ?? "", focused.component));
  const opened = focused.name === null ? null : viewOfKind(focused.kind);
  return (
    <>
      <Part title="Gets data from" found={near.up} asOf={view.asOf} change={change} />
      <section className="panel">
        <header>
          <Icon of={focused.kind} />
          <h2>
            <Name of={focused.name} />
          </h2>
          <span className="muted">{kindWord(focused.kind)}</span>
        </header>
        <p className="body heading">
          {opened === null || focused.name === null ? null : (
            <Link to={thingPath(opened, null, focused.name)} className="button">
              Open
            </Link>
          )}
          <button type="button" onClick={() => change({ focus: null, focusKind: null, selected: null })}>
            All
          </button>
        </p>
      </section>
      <Part title="Gives data to" found={near.down} asOf={view.asOf} change={change} />
    </>
  );
}

/** The bytes of a day are those of now. */
function Part({ title, found, asOf, change }: { title: string; found: Neighbour[]; asOf: number | null; change: Change }) {
  return (
    <section className="panel">
      <header>
        <h2>{title}</h2>
        <span className="muted">{found.length}</span>
      </header>
      <ul className="list body">
        {found.length === 0 ? <li className="muted">nothing that is known</li> : null}
        {found.map(({ node, use }) => (
          <Row key={node.key} node={node} change={change} more={`${use.state === "both" ? "" : `${use.state} only`}${use.use.bytes_day === null || asOf !== null ? "" : ` ${bytes(use.use.bytes_day)}/d`}`} />
        ))}
      </ul>
    </section>
  );
}

function Row({ node, change, more }: { node: MapNode; change: Change; more?: string }) {
  return (
    <li>
      <Icon of={node.kind} />
      <span className="name">
        {node.name === null ? (
          <Name of={null} />
        ) : (
          <a
            href="#focus"
            onClick={(event) => {
              event.preventDefault();
              change({ focus: node.name, focusKind: node.kind, selected: null });
            }}
          >
            <Name of={node.name} />
          </a>
        )}
      </span>
      <span className="muted">{more ?? kindWord(node.kind)}</span>
    </li>
  );
}
