/** The facts of the selected node: how it is used, and what it reaches. */

import type { Graph, Impact, Topic } from "../api/shapes";
import { useResource } from "../api/use_resource";
import { type MapGraph, type MapNode, kindCounts, mapGraph, type Neighbour, neighbours, nodeKey, USE_WORDS } from "../model/estate_graph";
import { bytes, count, kindWord, kindWords, percent } from "../model/format";
import { impactLevels } from "../model/impact";
import { graphPath, type MapView, WHOLE_MAP } from "../model/map_view";
import { thingPath, viewOfKind } from "../model/route";
import { Icon } from "../shell/icons";
import { Link, Name, State, Time } from "../shell/parts";
import { Resource } from "../shell/resource";
import { impactSummary } from "../model/impact";

interface Props {
  node: MapNode;
  graph: MapGraph;
  view: MapView;
  change: (changes: Partial<MapView>) => void;
}

export function SidePanel({ node, graph, view, change, isPaused, onToggle }: Props & { isPaused: boolean; onToggle: (() => void) | null }) {
  const near = neighbours(graph, node.key);
  const opened = node.name === null ? null : viewOfKind(node.kind);
  return (
    <aside className="map-side" aria-label="Selected node">
      <header>
        <span className="row muted">
          <Icon of={node.kind} />
          {kindWord(node.kind)}
          {node.component === null ? null : ` · part ${node.component}`}
          {node.internal ? <span className="tag">internal</span> : null}
          <span className="space" />
          <button type="button" aria-label="Close" onClick={() => change({ selected: null })}>
            ✕
          </button>
        </span>
        <h2 className="name">
          <Name of={node.name} />
        </h2>
        {isPaused ? <State of="stopped">paused</State> : null}
      </header>
      {node.name === null ? (
        <p className="muted">Your token does not include this name. It is shown because it uses something that you may see.</p>
      ) : (
        <div className="actions">
          {opened === null ? null : (
            <Link to={thingPath(opened, null, node.name)} className="button">
              Open
            </Link>
          )}
          <button type="button" onClick={() => change({ focus: node.name, focusKind: node.kind })} disabled={view.focus === node.name}>
            Focus
          </button>
          {onToggle === null ? null : (
            <button type="button" aria-expanded={view.expanded.includes(node.key)} onClick={onToggle}>
              {view.expanded.includes(node.key) ? "Collapse" : "Expand"}
            </button>
          )}
        </div>
      )}
      {node.kind === "topic" && node.name !== null ? <TopicFacts name={node.name} asOf={view.asOf} /> : null}
      <Uses title={node.kind === "topic" ? "Written by" : "Reads"} found={near.up} asOf={view.asOf} change={change} />
      <Uses title={node.kind === "topic" ? "Read by" : "Writes"} found={near.down} asOf={view.asOf} change={change} />
      {node.name === null ? null : node.kind === "topic" ? (
        <>
          <TopicImpact name={node.name} direction="down" asOf={view.asOf} change={change} />
          <TopicImpact name={node.name} direction="up" asOf={view.asOf} change={change} />
        </>
      ) : (
        <>
          <Reached node={node} direction="down" asOf={view.asOf} change={change} />
          <Reached node={node} direction="up" asOf={view.asOf} change={change} />
        </>
      )}
    </aside>
  );
}

function TopicFacts({ name, asOf }: { name: string; asOf: number | null }) {
  const topic = useResource<Topic>(`topics/${encodeURIComponent(name)}${asOf === null ? "" : `?as_of=${asOf}`}`, 30_000);
  return (
    <Resource of={topic} what="topic" absent={<Unused asOf={asOf} />}>
      {(data) => (
        <dl className="facts">
          <dt>Through the gateway</dt>
          <dd>{percent(data.coverage)}</dd>
          <dt>Written past it</dt>
          <dd>{data.coverage === null ? "unknown" : `${count(data.past_gateway)} records`}</dd>
        </dl>
      )}
    </Resource>
  );
}

function Unused({ asOf }: { asOf: number | null }) {
  return <p className="muted">The topic {asOf === null ? "is not in use now" : "was not in use at that time"}.</p>;
}

/** The bytes of a day are those of now. */
function Uses({ title, found, asOf, change }: { title: string; found: Neighbour[]; asOf: number | null; change: Props["change"] }) {
  if (found.length === 0) return null;
  return (
    <section>
      <h2>
        {title} <span className="muted">{found.length}</span>
      </h2>
      <ul className="list">
        {found.map(({ node, use }) => (
          <li key={node.key}>
            <span className="name">
              <Pick node={node} change={change} />
              <br />
              <span className="muted" style={{ font: "11px/16px system-ui" }}>
                {USE_WORDS[use.state]}
                {use.use.filled ? " · by a pattern or a chosen topic" : ""}
                {use.use.bytes_day === null || asOf !== null ? "" : ` · ${bytes(use.use.bytes_day)} a day`}
                {use.use.last_seen === null || asOf !== null ? null : (
                  <>
                    {" · "}
                    <Time at={use.use.last_seen} />
                  </>
                )}
              </span>
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Pick({ node, change }: { node: MapNode; change: Props["change"] }) {
  if (node.name === null) return <Name of={null} />;
  return (
    <a
      href="#selected"
      onClick={(event) => {
        event.preventDefault();
        change({ selected: node.key });
      }}
    >
      <Name of={node.name} />
    </a>
  );
}

function TopicImpact({ name, direction, asOf, change }: { name: string; direction: "up" | "down"; asOf: number | null; change: Props["change"] }) {
  const at = asOf === null ? "" : `&as_of=${asOf}`;
  const impact = useResource<Impact>(`topics/${encodeURIComponent(name)}/impact?direction=${direction}&limit=100${at}`, 30_000);
  return (
    <section>
      <h2>{direction === "down" ? "Depends on it" : "It depends on"}</h2>
      <Resource of={impact} what="impact" absent={<Unused asOf={asOf} />}>
        {(data) => (
          <>
            <p className="muted">{data.nodes.length === 0 ? "nothing that is known" : impactSummary(data)}</p>
            {data.nodes.length === 0 ? null : (
              <details>
                <summary>List</summary>
                <ul className="list">
                  {impactLevels(data.nodes).flatMap((level) =>
                    level.nodes.map((node, place) => (
                      <li key={`${level.depth} ${node.kind} ${node.name ?? place}`}>
                        <span className="muted number">{level.depth}</span>
                        <span className="name">
                          {node.name === null ? (
                            <Name of={null} />
                          ) : (
                            <a
                              href="#focus"
                              onClick={(event) => {
                                event.preventDefault();
                                change({ focus: node.name, focusKind: node.kind, selected: nodeKey(node.kind, node.name ?? "") });
                              }}
                            >
                              <Name of={node.name} />
                            </a>
                          )}
                        </span>
                      </li>
                    )),
                  )}
                </ul>
              </details>
            )}
          </>
        )}
      </Resource>
    </section>
  );
}

/** Of an application or client: what its data can reach, along all uses of topics. */
function Reached({ node, direction, asOf, change }: { node: MapNode; direction: "up" | "down"; asOf: number | null; change: Props["change"] }) {
  const path = graphPath({ ...WHOLE_MAP, asOf, focus: node.name, focusKind: node.kind, hops: "all", direction });
  const found = useResource<Graph>(path, 30_000);
  return (
    <section>
      <h2>{direction === "down" ? "Downstream" : "Upstream"}</h2>
      <Resource of={found} what="reach">
        {(data) => {
          const others = mapGraph(data).nodes.filter((one) => one.key !== nodeKey(node.kind, node.name ?? ""));
          if (others.length === 0) return <p className="muted">nothing that is known</p>;
          return (
            <p>
              {kindCounts(others)
                .map(([kind, many]) => `${count(many)} ${many === 1 ? kindWord(kind) : kindWords(kind)}`)
                .join(", ")}{" "}
              <a
                href="#focus"
                onClick={(event) => {
                  event.preventDefault();
                  change({ focus: node.name, focusKind: node.kind, hops: "all", direction });
                }}
              >
                Show
              </a>
            </p>
          );
        }}
      </Resource>
    </section>
  );
}
