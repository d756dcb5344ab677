/** A topology as a list: what each sub-topology and global store reads, does, keeps and writes. */

import type { Description } from "../api/shapes";
import { printable } from "../model/format";
import { topologyOutline } from "../model/topology_outline";
import { Name, ThingLink } from "../shell/parts";

export function Outline({ description, cluster = null }: { description: Description; cluster?: string | null }) {
  const parts = topologyOutline(description);
  return (
    <section className="panel">
      <header>
        <h2>As a list</h2>
        <span className="muted">
          {description.subtopologies.length === 1 ? "1 sub-topology" : `${description.subtopologies.length} sub-topologies`}, {description.global_stores.length === 1 ? "1 global store" : `${description.global_stores.length} global stores`}
        </span>
      </header>
      <div className="scroll" tabIndex={0} role="region" aria-label="The topology as a list">
        <table>
          <thead>
            <tr>
              <th>Part</th>
              <th>Reads</th>
              <th className="narrow-hide">Processors</th>
              <th>Stores</th>
              <th>Writes</th>
            </tr>
          </thead>
          <tbody>
            {parts.map((part, place) => (
              <tr key={place}>
                <td>{printable(part.title)}</td>
                <td>
                  <Topics names={part.reads} cluster={cluster} />
                  {part.patterns.map((pattern) => (
                    <div key={pattern}>
                      <span className="tag">pattern</span> <Name of={pattern} />
                    </div>
                  ))}
                </td>
                <td className="narrow-hide">
                  <Names names={part.processors} />
                </td>
                <td>
                  <Names names={part.stores} />
                </td>
                <td>
                  <Topics names={part.writes} cluster={cluster} />
                  {part.dynamicSinks.map((sink) => (
                    <div key={sink}>
                      <span className="tag">chosen for each record</span> <Name of={sink} />
                    </div>
                  ))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

const MOST = 12;

function Names({ names }: { names: string[] }) {
  if (names.length === 0) return <span className="muted">–</span>;
  return (
    <>
      {names.slice(0, MOST).map((name) => (
        <div key={name}>
          <Name of={name} />
        </div>
      ))}
      {names.length > MOST ? <span className="muted">and {names.length - MOST} more</span> : null}
    </>
  );
}

function Topics({ names, cluster }: { names: string[]; cluster: string | null }) {
  return names.map((name) => (
    <div key={name}>
      <ThingLink kind="topic" name={name} cluster={cluster} />
    </div>
  ));
}
