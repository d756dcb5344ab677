/** Health: whether the page can be trusted, and what keeps data from it. */

import type { Health, PipelineRun, RejectedFacts } from "../api/shapes";
import type { Loaded } from "../model/loaded";
import { bytes, count, printable } from "../model/format";
import { freshness } from "../model/freshness";
import { Command, Notice, ProblemList, State, Time, useNow } from "../shell/parts";
import { Resource } from "../shell/resource";
import { GatewaysPanel } from "./gateways_panel";

export function HealthView({ health }: { health: Loaded<Health> }) {
  const found = freshness(health, useNow());
  return (
    <div className="content">
      <div className="heading">
        <h1>Health</h1>
        <State of={found.state} title={found.detail}>
          {found.text}
        </State>
      </div>
      <Resource of={health} what="state of this process">
        {(data) => (
          <>
            <Topics health={data} />
            <GatewaysPanel version={data.version} />
            <Pipeline runs={data.pipeline} hasTables={data.tables.length > 0} />
            <Rejected rejected={data.rejected} />
            <Tables health={data} />
          </>
        )}
      </Resource>
    </div>
  );
}

function Topics({ health }: { health: Health }) {
  const problems = Object.entries(health.problems);
  if (problems.length === 0) {
    return (
      <Notice state="good" title="This process reads all topics that it needs">
        <p className="muted">Breaker states, connectors and events come from Headgate's own topics.</p>
      </Notice>
    );
  }
  return (
    <Notice state="stopped" title={`${problems.length} ${problems.length === 1 ? "topic is" : "topics are"} not read`}>
      <ProblemList problems={problems} />
      <Command text="headgate doctor --config FILE" />
    </Notice>
  );
}

const RUN_STATES: Readonly<Record<string, "good" | "attention" | "stopped" | "unknown">> = {
  running: "good",
  done: "good",
  stopped: "attention",
  failed: "stopped",
};

function Pipeline({ runs, hasTables }: { runs: PipelineRun[]; hasTables: boolean }) {
  if (runs.length === 0) {
    return (
      <Notice state="unknown" title="No run of the pipeline is recorded">
        <p>{hasTables ? "The tables are there, but not who writes them." : "Without it there are no tables, and the map is empty."}</p>
        <Command text="headgate pipeline run --config FILE" />
      </Notice>
    );
  }
  return (
    <section className="panel">
      <header>
        <h2>Pipeline</h2>
        <span className="muted">the last run of each query</span>
      </header>
      <div className="scroll" tabIndex={0} role="region" aria-label="Pipeline">
        <table>
          <thead>
            <tr>
              <th>Query</th>
              <th>State</th>
              <th className="number">Unread facts</th>
              <th className="number">Rejected</th>
              <th className="narrow-hide">Started</th>
              <th>Last written</th>
              <th>Problem</th>
            </tr>
          </thead>
          <tbody>
            {runs.map((run) => (
              <tr key={run.query}>
                <td>
                  <code>{run.query}</code>
                </td>
                <td>
                  <State of={RUN_STATES[run.state] ?? "unknown"}>{run.state}</State>
                </td>
                <td className="number">{count(run.lag)}</td>
                <td className="number">{count(run.rejected)}</td>
                <td className="narrow-hide">
                  <Time at={run.started_at} />
                </td>
                <td>
                  <Time at={run.at} />
                </td>
                <td>
                  {run.table === null ? null : <code>{run.table}: </code>}
                  {run.problem ?? ""}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Rejected({ rejected }: { rejected: RejectedFacts | null }) {
  if (rejected === null || rejected.count === 0) return null;
  return (
    <section className="panel">
      <header>
        <h2>
          <State of="attention">Rejected facts</State>
        </h2>
        <span className="muted">
          {rejected.more ? "more than " : ""}
          {count(rejected.count)} records of Headgate's topics that this release does not understand; the newest first
        </span>
      </header>
      <div className="scroll" tabIndex={0} role="region" aria-label="Rejected facts">
        <table>
          <thead>
            <tr>
              <th>Record</th>
              <th>Reason</th>
              <th>When</th>
            </tr>
          </thead>
          <tbody>
            {rejected.facts.map((one) => (
              <tr key={`${one.topic} ${one.partition} ${one.offset}`}>
                <td>
                  <code>
                    {printable(one.topic)}/{one.partition}/{one.offset}
                  </code>
                </td>
                <td>{printable(one.reason)}</td>
                <td>
                  <Time at={one.at} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div className="body">
        <Command text="headgate tables show rejected_facts --config FILE" />
      </div>
    </section>
  );
}

function Tables({ health }: { health: Health }) {
  if (health.tables.length === 0) return null;
  return (
    <section className="panel">
      <header>
        <h2>Tables</h2>
        <span className="muted">what the pipeline has written{health.tables_path === null ? "" : ", in "}</span>
        {health.tables_path === null ? null : <code>{printable(health.tables_path)}</code>}
      </header>
      <div className="scroll" tabIndex={0} role="region" aria-label="Tables">
        <table>
          <thead>
            <tr>
              <th>Table</th>
              <th className="number">Rows</th>
              <th className="number">Size</th>
              <th className="number narrow-hide">Version</th>
              <th>Last change</th>
            </tr>
          </thead>
          <tbody>
            {health.tables.map((table) => (
              <tr key={table.name}>
                <td>
                  <code>{table.name}</code>
                </td>
                <td className="number">{count(table.rows)}</td>
                <td className="number">{bytes(table.bytes)}</td>
                <td className="number narrow-hide">{count(table.version)}</td>
                <td>
                  <Time at={table.updated} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
