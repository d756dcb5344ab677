/** Who uses a topic, or which topics an application uses: how each use is known, how much it is, and when it was seen. */

import type { ReactNode } from "react";
import type { Use } from "../api/shapes";
import { edgeState, USE_WORDS } from "../model/estate_graph";
import { bytes, count } from "../model/format";
import { Time } from "../shell/parts";

interface UsesPanelProps<U extends Use> {
  title: string;
  /** The heading of the first column, and what stands in it. */
  column: string;
  uses: U[];
  keyOf: (use: U) => string | null;
  first: (use: U) => ReactNode;
  empty: string;
}

export function UsesPanel<U extends Use>({ title, column, uses, keyOf, first, empty }: UsesPanelProps<U>) {
  return (
    <section className="panel">
      <header>
        <h2>{title}</h2>
        <span className="muted">{count(uses.length)}</span>
      </header>
      {uses.length === 0 ? (
        <p className="body muted">{empty}</p>
      ) : (
        <div className="scroll" tabIndex={0} role="region" aria-label={title}>
          <table>
            <thead>
              <tr>
                <th>{column}</th>
                <th>Known by</th>
                <th className="number">Bytes a day</th>
                <th>Last seen</th>
              </tr>
            </thead>
            <tbody>
              {uses.map((use, place) => (
                <tr key={keyOf(use) ?? place}>
                  <td>{first(use)}</td>
                  <td>
                    {USE_WORDS[edgeState(use)]}
                    {use.filled ? <span className="tag" title="The topic matches the pattern of the source">by pattern</span> : null}
                  </td>
                  <td className="number">{bytes(use.bytes_day)}</td>
                  <td>
                    <Time at={use.last_seen} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
