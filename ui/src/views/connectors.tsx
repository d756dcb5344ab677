/** Connect: connectors, their active topics beside what was seen on the wire, and what they read and write. */

import { useState } from "react";
import type { ConnectCluster, Connector, ConnectorRow, Connectors } from "../api/connector_shapes";
import { useResource } from "../api/use_resource";
import { comparedTopics, comparison, connectorKind } from "../model/connectors";
import { count, shellQuoted } from "../model/format";
import { mapPath } from "../model/map_view";
import { thingPath } from "../model/route";
import { Command, Crumb, Link, Name, Notice, ProblemList, State, ThingLink, Time } from "../shell/parts";
import { Resource } from "../shell/resource";
import { useRoute } from "../shell/router";
import { UsesPanel } from "./uses_panel";

export function ConnectorsView() {
  const { name } = useRoute();
  return name === null ? <ConnectorList /> : <OneConnector name={name} key={name} />;
}

function ConnectorList() {
  const [text, setText] = useState("");
  const found = useResource<Connectors>("connectors");
  return (
    <div className="content">
      <div className="heading">
        <h1>Connectors</h1>
        {found.state === "ready" ? <span className="muted">{count(found.data.connectors.length)}</span> : null}
        <span className="space" />
        <input type="search" aria-label="Filter by name" placeholder="Filter by name" value={text} maxLength={500} onChange={(event) => setText(event.target.value)} />
      </div>
      <Resource of={found} what="connectors">
        {(data) => (
          <>
            <Tracking clusters={data.clusters} problems={data.problems} />
            <ConnectorTable found={data} text={text} />
            {data.clusters.length === 0 && data.connectors.length > 0 ? (
              <p className="muted">
                What Connect itself records is not read here: name its status topic in <code>[connect.NAME]</code> to compare the two.
              </p>
            ) : null}
          </>
        )}
      </Resource>
    </div>
  );
}

function Tracking({ clusters, problems }: { clusters: ConnectCluster[]; problems: Record<string, string> }) {
  const off = clusters.filter((one) => !one.tracking);
  const unread = Object.entries(problems);
  return (
    <>
      {unread.length === 0 ? null : (
        <Notice state="unknown" title="Not all of it is known">
          <ProblemList problems={unread} />
          <Command text="headgate doctor --config FILE" />
        </Notice>
      )}
      {off.map((one) => (
        <Notice key={one.name} state="unknown" title={`Topic tracking of the cluster ${one.name} is disabled`}>
          <p>
            What Connect records is not read: <code>tracking_enable = true</code> in <code>[connect.{one.name}]</code> reads it.
          </p>
        </Notice>
      ))}
    </>
  );
}

function ConnectorTable({ found, text }: { found: Connectors; text: string }) {
  if (found.connectors.length === 0) return <NoConnectors hasClusters={found.clusters.length > 0} />;
  const low = text.toLowerCase();
  const shown = found.connectors.filter((row) => row.connector.toLowerCase().includes(low));
  if (shown.length === 0) return <Notice state="unknown" title="No connector has such a name" />;
  return (
    <section className="panel scroll" tabIndex={0} aria-label="Connectors">
      <table>
        <thead>
          <tr>
            <th>Connector</th>
            <th className="narrow-hide">Cluster</th>
            <th className="narrow-hide">Kind</th>
            <th className="number">In Connect</th>
            <th className="number">On the wire</th>
            <th>Difference</th>
            <th className="narrow-hide">Last seen</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={`${row.cluster ?? ""} ${row.connector}`}>
              <td>
                <Link to={thingPath("connect", null, row.connector)}>
                  <Name of={row.connector} />
                </Link>
              </td>
              <td className="narrow-hide">{row.cluster === null ? <span className="muted">–</span> : <code>{row.cluster}</code>}</td>
              <td className="narrow-hide">{connectorKind(row) ?? <span className="muted">–</span>}</td>
              <td className="number">{count(row.connect?.length ?? null)}</td>
              <td className="number">{count(row.wire?.length ?? null)}</td>
              <td>
                <Difference row={row} />
              </td>
              <td className="narrow-hide">{row.last_seen === null ? <span className="muted">–</span> : <Time at={row.last_seen} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {found.truncated ? <p className="body muted">Only the first {count(found.connectors.length)} are listed.</p> : null}
    </section>
  );
}

function NoConnectors({ hasClusters }: { hasClusters: boolean }) {
  return (
    <Notice state="unknown" title="No connector is known yet">
      <p>
        {hasClusters ? "The status topic has no active topics, and no connector was seen on the wire." : "A connector appears when it uses a topic through the gateway. What Connect itself records is read when its status topic is configured:"}
      </p>
      {hasClusters ? null : <Command text={'[connect.NAME]\nstatus_topic = "connect-status"'} />}
    </Notice>
  );
}

function Difference({ row }: { row: ConnectorRow }) {
  const { state, text } = comparison(row);
  return <State of={state}>{text}</State>;
}

function OneConnector({ name }: { name: string }) {
  const found = useResource<Connector>(`connectors/${encodeURIComponent(name)}`);
  return (
    <div className="content">
      <div className="heading">
        <h1>
          <Crumb to="/connect">Connectors</Crumb>
          <Name of={name} />
        </h1>
        <span className="space" />
        {found.state === "absent" ? null : (
          <Link to={mapPath({ focus: name, focusKind: "connector" })} className="button">
            Show on the map
          </Link>
        )}
      </div>
      <Resource of={found} what="connector">
        {(data) => (
          <>
            <Tracking clusters={[]} problems={data.problems} />
            {data.rows.map((row) => (
              <Compared key={row.cluster ?? ""} row={row} />
            ))}
            <Uses connector={data} />
          </>
        )}
      </Resource>
    </div>
  );
}

function Compared({ row }: { row: ConnectorRow }) {
  const topics = comparedTopics(row);
  return (
    <section className="panel">
      <header>
        <h2>Active topics{row.cluster === null ? "" : ` in ${row.cluster}`}</h2>
        <Difference row={row} />
      </header>
      {topics.length === 0 ? (
        <p className="body muted">{row.connect === null && row.wire === null ? "Neither Connect's status topic nor the wire is read here." : "None: the connector has not used a topic yet, or its topics were reset."}</p>
      ) : (
        <div className="scroll" tabIndex={0} role="region" aria-label={`Active topics${row.cluster === null ? "" : ` in ${row.cluster}`}`}>
          <table>
            <thead>
              <tr>
                <th>Topic</th>
                <th>In Connect</th>
                <th>On the wire</th>
                <th className="narrow-hide">What it means</th>
              </tr>
            </thead>
            <tbody>
              {topics.map((one) => (
                <tr key={one.topic}>
                  <td>
                    <ThingLink kind="topic" name={one.topic} />
                  </td>
                  <td>{has(one.inConnect)}</td>
                  <td>{has(one.onWire)}</td>
                  <td className="narrow-hide muted">{meaning(one.inConnect, one.onWire)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {row.hidden_topics === 0 ? null : <p className="body muted">And {count(row.hidden_topics)} whose names you may not see.</p>}
      <div className="body">
        <Reset row={row} />
      </div>
    </section>
  );
}

function has(known: boolean | null): string {
  return known === null ? "not known" : known ? "yes" : "no";
}

function meaning(inConnect: boolean | null, onWire: boolean | null): string {
  if (inConnect === true && onWire === false) return "used before, or past the gateway";
  if (inConnect === false && onWire === true) return "not recorded by Connect, or reset since";
  return "";
}

function Reset({ row }: { row: ConnectorRow }) {
  const url = row.cluster === null ? window.location.origin : `${window.location.origin}/connect/${encodeURIComponent(row.cluster)}`;
  if (row.tracking === null) return <p className="muted">It is in no Connect cluster that is configured here, so there is nothing to reset.</p>;
  if (!row.tracking) return <p className="muted">Topic tracking is disabled, so there is nothing to reset.</p>;
  if (!row.reset_allowed) return <p className="muted">A reset is not allowed here: tracking_allow_reset is false.</p>;
  return (
    <>
      <p className="muted">To forget the topics that Connect recorded, so that only those in use come back:</p>
      <Command text={`headgate connectors --url ${url} reset ${shellQuoted(row.connector)} --token-file FILE`} />
    </>
  );
}

function Uses({ connector }: { connector: Connector }) {
  if (connector.reads === null || connector.writes === null) {
    return (
      <Notice state="unknown" title="How much it reads and writes is not known">
        <p>The tables of the pipeline have it, and they cannot be read here.</p>
        <Command text="headgate pipeline run --config FILE" />
      </Notice>
    );
  }
  const panel = (title: string, uses: typeof connector.reads) => (
    <UsesPanel title={title} column="Topic" uses={uses ?? []} empty="Nothing that was seen." keyOf={(use) => use.topic} first={(use) => <ThingLink kind="topic" name={use.topic} />} />
  );
  return (
    <div className="columns">
      {panel("Writes", connector.writes)}
      {panel("Reads", connector.reads)}
    </div>
  );
}
