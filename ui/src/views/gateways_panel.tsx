/** Gateways: their workers with versions, and which of them leads. */

import type { Leader, Workers } from "../api/shapes";
import { useResource } from "../api/use_resource";
import { type GatewayRow, gatewayRows, leaderMark, versionsOf } from "../model/gateways";
import { count, printable } from "../model/format";
import { Command, Message, Name, Notice, Skeleton, State, Time } from "../shell/parts";

export function GatewaysPanel({ version }: { version: string }) {
  const leading = useResource<Leader>("health/leader");
  const reporting = useResource<Workers>("health/workers", 60_000);
  const leader = leading.state === "ready" ? leading.data : null;
  const workers = reporting.state === "ready" ? reporting.data : null;
  const rows = gatewayRows(leader, workers);
  const isLoading = leading.state === "loading" || reporting.state === "loading";
  const problem = "problem" in leading ? leading.problem.message : null;
  return (
    <>
      <Leading leader={leader} problem={problem} />
      <OtherVersions versions={versionsOf(rows)} own={version} />
      <section className="panel">
        <header>
          <h2>Gateways</h2>
          <span className="muted">workers that Kafka knows now, and those that reported the use of a topic in the last two hours</span>
        </header>
        {isLoading && rows.length === 0 ? (
          <div className="body">
            <Skeleton what="gateways" />
          </div>
        ) : rows.length === 0 ? (
          <div className="body">
            <p className="muted">None. A gateway appears when it has joined the group of the leader, or when clients use topics through it and the pipeline has read its reports.</p>
            <Command text="curl -s http://GATEWAY:METRICS-PORT/readyz" />
          </div>
        ) : (
          <WorkerTable rows={rows} />
        )}
        {leader?.truncated === true || workers?.truncated === true ? <p className="body muted">There are more than are listed.</p> : null}
        {"problem" in reporting ? (
          <p className="body muted">
            What they reported could not be read: <Message of={reporting.problem.message} />
          </p>
        ) : null}
      </section>
    </>
  );
}

function Leading({ leader, problem }: { leader: Leader | null; problem: string | null }) {
  const mark = leader === null ? null : leaderMark(leader);
  const shown = problem === null ? mark : { state: "unknown" as const, title: "It is not known which worker leads", text: problem };
  if (shown === null || shown.state === "good") return null; // the table says it
  return (
    <Notice state={shown.state} title={shown.title}>
      <p>{printable(shown.text)}</p>
      {shown.state === "attention" ? null : <Command text="headgate doctor --config FILE" />}
    </Notice>
  );
}

function OtherVersions({ versions, own }: { versions: readonly string[]; own: string }) {
  const [first, ...others] = versions;
  if (first === undefined || (others.length === 0 && first === own)) return null;
  return (
    <Notice state="attention" title={others.length === 0 ? "Gateways run another version than this process" : "Gateways run different versions"}>
      <p>
        {versions.map(printable).join(", ")}; this process runs {own}. That is so while a new version is rolled out. If it stays, restart those that have the old one.
      </p>
    </Notice>
  );
}

const ROLES = {
  leads: { state: "good", text: "leads" },
  ready: { state: "good", text: "ready to lead" },
  away: { state: "attention", text: "not connected now" },
} as const;

function WorkerTable({ rows }: { rows: readonly GatewayRow[] }) {
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="Gateways">
      <table>
        <thead>
          <tr>
            <th>Gateway and worker</th>
            <th>State</th>
            <th>Version</th>
            <th className="narrow-hide">Address</th>
            <th>Last report</th>
            <th className="number narrow-hide">Starts</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.key}>
              <td>{row.worker === null ? <span className="muted">not told by this version</span> : <Name of={row.worker} />}</td>
              <td>{row.role === null ? <span className="muted">not known</span> : <Role of={row.role} />}</td>
              <td>{row.version === null ? <span className="muted">not known</span> : printable(row.version)}</td>
              <td className="narrow-hide">{row.host === null ? <span className="muted">–</span> : <code>{printable(row.host)}</code>}</td>
              <td>{row.lastSeen === null ? <span className="muted">none yet</span> : <Time at={row.lastSeen} />}</td>
              <td className="number narrow-hide">{count(row.starts)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Role({ of }: { of: keyof typeof ROLES }) {
  const { state, text } = ROLES[of];
  return <State of={state}>{of === "leads" ? <strong>{text}</strong> : text}</State>;
}
