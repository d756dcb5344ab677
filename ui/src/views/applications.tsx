/** Applications: the list, and one application with its topology as a picture, its versions and its text. */

import { useState } from "react";
import type { Applications, Topology, Versions } from "../api/shapes";
import { useLastData, useResource } from "../api/use_resource";
import { count, kindWord } from "../model/format";
import { mapPath } from "../model/map_view";
import { thingPath } from "../model/route";
import { shortVersion, topologyText } from "../model/topology";
import { TopologyPicture } from "../map/topology_picture";
import { Command, Link, Name, Notice, Time } from "../shell/parts";
import { Resource } from "../shell/resource";
import { useRoute } from "../shell/router";

const TABS = [
  ["topology", "Topology"],
  ["versions", "Versions"],
  ["text", "Text"],
] as const;

export function ApplicationsView() {
  const { name, cluster, query } = useRoute();
  if (name === null) return <ApplicationList />;
  return <OneApplication name={name} cluster={cluster} query={query} key={name} />;
}

function ApplicationList() {
  const [text, setText] = useState("");
  const found = useResource<Applications>(`applications?limit=200${text === "" ? "" : `&contains=${encodeURIComponent(text)}`}`);
  const shown = useLastData(found);
  return (
    <div className="content">
      <div className="heading">
        <h1>Applications</h1>
        {shown === null ? null : <span className="muted">{count(shown.count)}</span>}
        <span className="space" />
        <input type="search" aria-label="Filter by name" placeholder="Filter by name" value={text} maxLength={500} onChange={(event) => setText(event.target.value)} />
      </div>
      {found.state === "loading" && shown !== null ? <ApplicationTable found={shown} text={text} /> : <Resource of={found} what="applications">{(data) => <ApplicationTable found={data} text={text} />}</Resource>}
    </div>
  );
}

function ApplicationTable({ found, text }: { found: Applications; text: string }) {
  if (found.applications.length === 0) {
    return text === "" ? (
      <Notice state="unknown" title="No application has described itself yet">
        <p>Streams applications of Kafka 4.4 do so by themselves when they run through the gateway. A text can be published before that:</p>
        <Command text="headgate topology publish FILE --group GROUP --bootstrap-server HOST:PORT" />
      </Notice>
    ) : (
      <Notice state="unknown" title="No application has such a name" />
    );
  }
  return (
    <section className="panel scroll">
      <table>
        <thead>
          <tr>
            <th>Application</th>
            <th className="narrow-hide">Kind</th>
            <th>Version</th>
            <th className="narrow-hide">Described by</th>
            <th>Since</th>
          </tr>
        </thead>
        <tbody>
          {found.applications.map((one) => (
            <tr key={`${one.kind} ${one.name}`}>
              <td>
                <Link to={thingPath("apps", null, one.name)}>
                  <Name of={one.name} />
                </Link>
              </td>
              <td className="narrow-hide">{kindWord(one.kind)}</td>
              <td>{one.version === null ? <span className="muted">none</span> : <code title={one.version}>{shortVersion(one.version)}</code>}</td>
              <td className="narrow-hide">{one.provenance ?? "–"}</td>
              <td>
                <Time at={one.at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function OneApplication({ name, cluster, query }: { name: string; cluster: string | null; query: URLSearchParams }) {
  const tab = TABS.find(([id]) => id === query.get("tab"))?.[0] ?? "topology";
  const version = query.get("version");
  const asked = new URLSearchParams();
  if (version !== null) asked.set("version", version);
  if (cluster !== null) asked.set("cluster", cluster);
  const path = `applications/${encodeURIComponent(name)}`;
  const suffix = asked.toString() === "" ? "" : `?${asked.toString()}`;
  const topology = useResource<Topology>(`${path}/topology${suffix}`);
  const link = (id: string, of: string | null) =>
    thingPath("apps", cluster, name, { ...(id === "topology" ? {} : { tab: id }), ...(of === null ? {} : { version: of }) });
  return (
    <div className="content">
      <div className="heading">
        <h1>
          <Link to="/apps" className="crumb">
            Applications /
          </Link>
          <Name of={name} />
        </h1>
        {topology.state === "ready" ? <About topology={topology.data} /> : null}
        <span className="space" />
        <Link to={mapPath({ focus: name })} className="button">
          Show on the map
        </Link>
      </div>
      {version === null ? null : (
        <Notice state="attention" title="This is a chosen version">
          <p>
            <code>{version}</code> <Link to={link(tab, null)}>Show the current one</Link>
          </p>
        </Notice>
      )}
      <nav className="tabs" aria-label="Parts of the application">
        {TABS.map(([id, title]) => (
          <Link key={id} to={link(id, version)} aria-current={tab === id ? "page" : undefined}>
            {title}
          </Link>
        ))}
      </nav>
      {tab === "versions" ? (
        <VersionList path={path} linkTo={(of) => link("topology", of)} />
      ) : (
        <Resource of={topology} what="topology">
          {(data) => (tab === "text" ? <Text topology={data} /> : <Described topology={data} />)}
        </Resource>
      )}
    </div>
  );
}

function About({ topology }: { topology: Topology }) {
  return (
    <span className="muted">
      {topology.version === null ? null : <code title={topology.version}>{shortVersion(topology.version)}</code>} {topology.provenance}
    </span>
  );
}

function Described({ topology }: { topology: Topology }) {
  return (
    <>
      {topology.provenance === "assignment" ? (
        <Notice state="attention" title="This description is partial">
          <p>The members have pushed none. It has what they send to be assigned tasks: processors and output topics are not in it.</p>
        </Notice>
      ) : null}
      <section className="panel">
        <TopologyPicture description={topology.description} />
      </section>
    </>
  );
}

function Text({ topology }: { topology: Topology }) {
  const text = topologyText(topology.description);
  const [copied, setCopied] = useState(false);
  return (
    <section className="panel">
      <header>
        <h2>As Topology#describe() prints it</h2>
        <button type="button" onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true))}>
          {copied ? "Copied" : "Copy"}
        </button>
      </header>
      <pre className="source" tabIndex={0} aria-label="Text of the topology">
        {text}
      </pre>
    </section>
  );
}

function VersionList({ path, linkTo }: { path: string; linkTo: (version: string) => string }) {
  const found = useResource<Versions>(`${path}/versions`);
  return (
    <Resource of={found} what="versions">
      {(data) => (
        <section className="panel scroll">
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
              {data.versions.map((one) => (
                <tr key={`${one.version} ${one.provenance}`}>
                  <td>
                    <Link to={linkTo(one.version)}>
                      <code title={one.version}>{shortVersion(one.version)}</code>
                    </Link>
                  </td>
                  <td>
                    <Time at={one.at} />
                  </td>
                  <td>{one.ended_at === null ? <span className="tag">current</span> : <Time at={one.ended_at} />}</td>
                  <td className="narrow-hide">
                    {one.provenance} {one.member === null ? null : <Name of={one.member} />}
                  </td>
                  <td className="number">{count(one.nodes)}</td>
                  <td className="number narrow-hide">{count(one.subtopologies)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </Resource>
  );
}
