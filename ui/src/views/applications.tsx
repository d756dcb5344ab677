/** Applications: the list, and one application with its topology, members, versions, activity and text. */

import { useState } from "react";
import type { Application, Applications, Topology } from "../api/shapes";
import { useLastData, useResource } from "../api/use_resource";
import { publishCommand } from "../model/commands";
import { count, kindWord, printableLines } from "../model/format";
import { mapPath } from "../model/map_view";
import { thingPath } from "../model/route";
import { describedBy, shortVersion } from "../model/topology";
import { TopologyPicture } from "../map/topology_picture";
import { useGateway } from "../shell/gateway";
import { Command, Crumb, Link, Name, Notice, State, Time } from "../shell/parts";
import { Resource } from "../shell/resource";
import { useRoute } from "../shell/router";
import { Members } from "./application_members";
import { Activity, MismatchBanner } from "./application_tabs";
import { VersionList } from "./application_versions";
import { PasteTopology } from "./paste_topology";
import { Outline } from "./topology_outline";

const TABS = [
  ["topology", "Topology"],
  ["members", "Members"],
  ["versions", "Versions"],
  ["activity", "Activity"],
  ["text", "Text"],
] as const;

export function ApplicationsView() {
  const { name, cluster, query } = useRoute();
  if (name === null) return query.has("paste") ? <PasteTopology /> : <ApplicationList />;
  return <OneApplication name={name} cluster={cluster} query={query} key={name} />;
}

function ApplicationList() {
  const [text, setText] = useState("");
  const found = useResource<Applications>(`applications?limit=200${text === "" ? "" : `&contains=${encodeURIComponent(text)}`}`);
  const shown = useLastData(found);
  const isWaiting = found.state === "loading" && shown !== null;
  return (
    <div className="content">
      <div className="heading">
        <h1>Applications</h1>
        {shown === null ? null : <span className="muted">{count(shown.count)}</span>}
        <span className="space" />
        <Link to="/apps?paste" className="button">
          Paste a topology
        </Link>
        <input type="search" aria-label="Filter by name" placeholder="Filter by name" value={text} maxLength={500} onChange={(event) => setText(event.target.value)} />
      </div>
      {isWaiting ? (
        <ApplicationTable found={shown} text={text} />
      ) : (
        <Resource of={found} what="applications">
          {(data) => <ApplicationTable found={data} text={text} />}
        </Resource>
      )}
    </div>
  );
}

function ApplicationTable({ found, text }: { found: Applications; text: string }) {
  const gateway = useGateway();
  if (found.applications.length === 0) {
    return text === "" ? (
      <Notice state="unknown" title="No application is known yet">
        <p>Streams applications of Kafka 4.4 describe themselves when they run through the gateway. A text can be published before that:</p>
        <Command text={publishCommand(gateway)} />
      </Notice>
    ) : (
      <Notice state="unknown" title="No application has such a name" />
    );
  }
  return (
    <section className="panel scroll" tabIndex={0} aria-label="Applications">
      <table>
        <thead>
          <tr>
            <th>Application</th>
            <th className="narrow-hide">Kind</th>
            <th className="number">Reads</th>
            <th className="number">Writes</th>
            <th className="narrow-hide">Version</th>
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
              <td className="number">{count(one.reads_count)}</td>
              <td className="number">{count(one.writes_count)}</td>
              <td className="narrow-hide">{one.version === null ? <span className="muted">not described</span> : <code title={one.version}>{shortVersion(one.version)}</code>}</td>
              <td className="narrow-hide">{one.provenance === null ? "–" : describedBy(one.provenance)}</td>
              <td>{one.since === null ? "–" : <Time at={one.since} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {found.next === null ? null : <p className="body muted">The first {found.applications.length} of {count(found.count)}: filter by name to see the others.</p>}
    </section>
  );
}

function OneApplication({ name, cluster, query }: { name: string; cluster: string | null; query: URLSearchParams }) {
  const tab = TABS.find(([id]) => id === query.get("tab"))?.[0] ?? "topology";
  const version = query.get("version");
  const path = `applications/${encodeURIComponent(name)}`;
  const asked = new URLSearchParams();
  if (version !== null) asked.set("version", version);
  if (cluster !== null) asked.set("cluster", cluster);
  const topology = useResource<Topology>(`${path}/topology?${asked.toString()}`);
  const inCluster = cluster === null ? "" : `?cluster=${encodeURIComponent(cluster)}`;
  const application = useResource<Application>(`${path}${inCluster}`, 10_000);
  const compareTo = (from: string, to: string) => thingPath("apps", cluster, name, { tab: "versions", from, to });
  const link = (id: string, of: string | null) => thingPath("apps", cluster, name, { ...(id === "topology" ? {} : { tab: id }), ...(of === null ? {} : { version: of }) });
  return (
    <div className="content">
      <div className="heading">
        <h1>
          <Crumb to="/apps">Applications</Crumb>
          <Name of={name} />
        </h1>
        {topology.state === "ready" ? (
          <span className="muted">
            <code title={topology.data.version}>{shortVersion(topology.data.version)}</code> <Provenance topology={topology.data} />
          </span>
        ) : null}
        <span className="space" />
        {application.state === "absent" ? null : (
          <Link to={mapPath({ focus: name })} className="button">
            Show on the map
          </Link>
        )}
      </div>
      {application.state === "absent" ? (
        <Resource of={application} what="application">
          {() => null}
        </Resource>
      ) : (
        <>
          <nav className="tabs" aria-label="Parts of the application">
            {TABS.map(([id, title]) => (
              <Link key={id} to={link(id, version)} aria-current={tab === id ? "page" : undefined}>
                {title}
              </Link>
            ))}
          </nav>
          {application.state === "ready" && application.data.mismatch !== null ? <MismatchBanner mismatch={application.data.mismatch} name={name} /> : null}
          {version !== null && topology.state === "ready" && !topology.data.current ? (
            <Notice state="attention" title="This version does not run any more">
              <p>
                It was replaced <Time at={topology.data.ended_at} />. <Link to={link(tab, null)}>Show the current one</Link>
              </p>
            </Notice>
          ) : null}
          {tab === "versions" ? <VersionList path={path} inCluster={inCluster} query={query} linkTo={(of) => link("topology", of)} compareTo={compareTo} /> : null}
          {tab === "members" ? <Members path={path} inCluster={inCluster} /> : null}
          {tab === "activity" ? <Activity path={path} cluster={cluster} inCluster={inCluster} /> : null}
          {tab === "text" ? <Text path={`${path}/topology?${asked.toString()}&format=text`} /> : null}
          {tab === "topology" ? (
            <Resource of={topology} what="topology" absent={<NotDescribed />}>
              {(data) => <Described topology={data} cluster={cluster} />}
            </Resource>
          ) : null}
        </>
      )}
    </div>
  );
}

function NotDescribed() {
  const gateway = useGateway();
  return (
    <Notice state="unknown" title="No topology of this application is known">
      <p>It is seen on the wire only: the tab Activity has the topics that it uses. Its text can be published:</p>
      <Command text={publishCommand(gateway)} />
    </Notice>
  );
}

/** Where the description comes from, and how far it can be trusted. */
function Provenance({ topology }: { topology: Topology }) {
  return (
    <>
      described by {describedBy(topology.provenance)}
      {topology.member === null ? "" : " "}
      {topology.member === null ? null : <Name of={topology.member} />}, <Time at={topology.at} />{" "}
      {topology.partial ? <span className="tag">partial</span> : null}
    </>
  );
}

function Described({ topology, cluster }: { topology: Topology; cluster: string | null }) {
  return (
    <>
      <section className="panel">
        {topology.partial ? (
          <header>
            <h2>
              <State of="attention">This description is partial</State>
            </h2>
            <span className="muted">The members have pushed none. It has what they send to be assigned tasks: processors and output topics are not in it.</span>
          </header>
        ) : null}
        <TopologyPicture description={topology.description} />
      </section>
      <Outline description={topology.description} cluster={cluster} />
    </>
  );
}

function Text({ path }: { path: string }) {
  const found = useResource<string>(path, 60_000);
  const [copied, setCopied] = useState(false);
  return (
    <Resource of={found} what="text" absent={<NotDescribed />}>
      {(text) => (
        <section className="panel">
          <header>
            <h2>As Kafka prints it</h2>
            <button type="button" onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true))}>
              {copied ? "Copied" : "Copy"}
            </button>
          </header>
          <pre className="text-source" tabIndex={0} aria-label="Text of the topology">
            {printableLines(text)}
          </pre>
        </section>
      )}
    </Resource>
  );
}
