/** Versions of an application's topology, and two of them side by side: as pictures, and as a list with a verdict. */

import type { Diff, Topology, Version, Versions } from "../api/shapes";
import { useResource } from "../api/use_resource";
import { GraphPicture } from "../map/topology_picture";
import { count, exact, printable } from "../model/format";
import { describedBy, shortVersion, topologyGraph } from "../model/topology";
import { diffLines, MARK_SIGNS, markedGraph } from "../model/topology_marks";
import { Link, Name, Notice, State, Time } from "../shell/parts";
import { Resource } from "../shell/resource";
import { go } from "../shell/router";

interface VersionsProps {
  path: string;
  inCluster: string;
  query: URLSearchParams;
  linkTo: (version: string) => string;
  compareTo: (from: string, to: string) => string;
}

export function VersionList({ path, inCluster, query, linkTo, compareTo }: VersionsProps) {
  const found = useResource<Versions>(`${path}/versions${inCluster}`);
  return (
    <Resource of={found} what="versions">
      {(data) => (
        <>
          {data.versions.length === 0 ? <NoVersions /> : <VersionTable found={data} linkTo={linkTo} />}
          {data.versions.length > 1 ? <Difference path={path} inCluster={inCluster} versions={data.versions} query={query} compareTo={compareTo} /> : null}
        </>
      )}
    </Resource>
  );
}

function NoVersions() {
  return (
    <Notice state="unknown" title="No version is known">
      <p>A version appears when the application describes itself, or when a text is published for it.</p>
    </Notice>
  );
}

function VersionTable({ found, linkTo }: { found: Versions; linkTo: VersionsProps["linkTo"] }) {
  return (
    <section className="panel scroll" tabIndex={0} aria-label="Versions">
      <table>
        <thead>
          <tr>
            <th>Version</th>
            <th>Since</th>
            <th>Until</th>
            <th className="narrow-hide">Described by</th>
            <th className="number">Nodes</th>
            <th className="number narrow-hide">Sub-topologies</th>
          </tr>
        </thead>
        <tbody>
          {found.versions.map((one) => (
            <tr key={`${one.version} ${one.provenance}`}>
              <td>
                <Link to={linkTo(one.version)}>
                  <code title={one.version}>{shortVersion(one.version)}</code>
                </Link>{" "}
                {one.partial ? <span className="tag">partial</span> : null}
              </td>
              <td>
                <Time at={one.at} />
              </td>
              <td>{one.current ? <span className="tag">current</span> : <Time at={one.ended_at} />}</td>
              <td className="narrow-hide">
                {describedBy(one.provenance)} {one.member === null ? null : <Name of={one.member} />}
              </td>
              <td className="number">{count(one.nodes)}</td>
              <td className="number narrow-hide">{count(one.subtopologies)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {found.truncated ? <p className="body muted">Only the latest {count(found.versions.length)} are listed.</p> : null}
    </section>
  );
}

const VERDICTS: Readonly<Record<string, readonly ["good" | "attention" | "stopped", string]>> = {
  safe: ["good", "The newer version can take over: state and offsets stay valid."],
  reset: ["attention", "The application must be reset before the newer version runs."],
  state_lost: ["stopped", "The newer version does not find the state of the older one."],
};

function Difference({ path, inCluster, versions, query, compareTo }: { path: string; inCluster: string; versions: Version[]; query: URLSearchParams; compareTo: VersionsProps["compareTo"] }) {
  const [newest, second] = versions;
  const from = query.get("from") ?? second?.version ?? "previous";
  const to = query.get("to") ?? newest?.version ?? "latest";
  const asked = new URLSearchParams({ from, to });
  const more = inCluster === "" ? "" : `&${inCluster.slice(1)}`;
  const diff = useResource<Diff>(`${path}/diff?${asked.toString()}${more}`, 30_000);
  return (
    <section className="panel" aria-labelledby="difference">
      <header>
        <h2 id="difference">Difference</h2>
        <Choice label="Older version" versions={versions} chosen={from} onChoose={(version) => go(compareTo(version, to), true)} />
        <span aria-hidden="true">→</span>
        <Choice label="Newer version" versions={versions} chosen={to} onChoose={(version) => go(compareTo(from, version), true)} />
      </header>
      <div className="body">
        <Resource of={diff} what="difference">
          {(found) => (
            <>
              <Verdict diff={found} />
              <div className="side-by-side">
                <Side title="Before" path={path} version={from} more={more} diff={found} side="from" />
                <Side title="After" path={path} version={to} more={more} diff={found} side="to" />
              </div>
            </>
          )}
        </Resource>
      </div>
    </section>
  );
}

function Choice({ label, versions, chosen, onChoose }: { label: string; versions: Version[]; chosen: string; onChoose: (version: string) => void }) {
  const names = [...new Set(versions.map((one) => one.version))];
  return (
    <select aria-label={label} value={chosen} onChange={(event) => onChoose(event.target.value)}>
      {names.includes(chosen) ? null : <option value={chosen}>{printable(chosen)}</option>}
      {names.map((name) => (
        <option key={name} value={name}>
          {shortVersion(name)} {exact(versions.find((one) => one.version === name)?.at ?? 0)}
        </option>
      ))}
    </select>
  );
}

function Verdict({ diff }: { diff: Diff }) {
  const lines = diffLines(diff);
  const [state, text] = VERDICTS[diff.verdict] ?? (["unknown", diff.verdict] as const);
  return (
    <>
      <p className="verdict">
        <State of={state}>{text}</State>
      </p>
      {diff.reasons.map((reason) => (
        <p key={reason} className="muted">
          {printable(reason)}
        </p>
      ))}
      {lines.length === 0 ? <p className="muted">The two versions have the same nodes, topics and stores.</p> : null}
      <ul className="list diff">
        {lines.map((line) => (
          <li key={line.key} className={line.mark}>
            <code aria-hidden="true">{MARK_SIGNS[line.mark]}</code>
            <span className="mark-word">{line.mark}</span>
            <span className="muted">{line.kind}</span>
            <span className="grow">
              <Name of={line.name} /> <span className="muted">{line.detail}</span>
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

function Side({ title, path, version, more, diff, side }: { title: string; path: string; version: string; more: string; diff: Diff; side: "from" | "to" }) {
  const found = useResource<Topology>(`${path}/topology?version=${encodeURIComponent(version)}${more}`, 60_000);
  return (
    <figure>
      <figcaption>
        {title} <code title={version}>{shortVersion(version)}</code>
      </figcaption>
      <Resource of={found} what="topology">
        {(data) => <GraphPicture graph={markedGraph(topologyGraph(data.description), diff, side)} label={`${title}: topology`} className="half" />}
      </Resource>
    </figure>
  );
}
