/** What depends on a topic, or on what it depends: as a picture, and as a list by distance. */

import type { Graph, Impact } from "../api/shapes";
import { useResource } from "../api/use_resource";
import { GraphPicture } from "../map/topology_picture";
import { type ImpactLevel, impactLevels, impactSummary } from "../model/impact";
import { impactGraph, MOST_IMPACT_NODES } from "../model/impact_graph";
import { KindTag, ThingLink } from "../shell/parts";
import { Resource } from "../shell/resource";

interface ImpactProps {
  topic: string;
  path: string;
  direction: "up" | "down";
  cluster: string | null;
}

const HOPS = 20;

export function ImpactPanel({ topic, path, direction, cluster }: ImpactProps) {
  const more = cluster === null ? "" : `&cluster=${encodeURIComponent(cluster)}`;
  const found = useResource<Impact>(`${path}?direction=${direction}&limit=200${more}`, 30_000);
  return (
    <section className="panel">
      <header>
        <h2>{direction === "down" ? "Depends on this topic" : "This topic depends on"}</h2>
        {found.state === "ready" ? <span className="muted">{impactSummary(found.data)}</span> : null}
      </header>
      <Resource of={found} what="impact">
        {(data) =>
          data.nodes.length === 0 ? (
            <p className="body muted">{direction === "down" ? "Nothing that is known." : "It comes from outside, or from what is not known."}</p>
          ) : (
            <>
              {data.nodes.length <= MOST_IMPACT_NODES ? <Picture topic={topic} impact={data} more={more} /> : null}
              <div className="body">
                {impactLevels(data.nodes).map((level) => (
                  <Level key={level.depth} level={level} cluster={cluster} />
                ))}
                {data.truncated ? <p className="muted">Only the nearest are listed; the counts are of all.</p> : null}
              </div>
            </>
          )
        }
      </Resource>
    </section>
  );
}

function Picture({ topic, impact, more }: { topic: string; impact: Impact; more: string }) {
  const asked = new URLSearchParams({ focus: topic, focus_kind: "topic", hops: String(HOPS), direction: impact.direction, internal: "false" });
  const found = useResource<Graph>(`graph?${asked.toString()}${more}`, 30_000);
  // Without a picture there is still the list.
  if (found.state !== "ready") return null;
  return <GraphPicture graph={impactGraph(found.data, topic, impact.nodes)} label={impact.direction === "down" ? "What depends on this topic" : "What this topic depends on"} className="low" />;
}

function Level({ level, cluster }: { level: ImpactLevel; cluster: string | null }) {
  return (
    <section>
      <h3 className="muted">{level.depth === 1 ? "directly" : `${level.depth} steps away`}</h3>
      <ul className="list">
        {level.nodes.map((node, place) => (
          <li key={`${node.kind} ${node.name ?? place}`}>
            <ThingLink kind={node.kind} name={node.name} cluster={cluster} />
            <KindTag kind={node.kind} />
          </li>
        ))}
      </ul>
    </section>
  );
}
