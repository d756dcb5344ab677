/** Topics: the list, and one topic with who writes it, who reads it, and what depends on it. */

import { useState } from "react";
import type { Client, Owner, Topic, Topics } from "../api/shapes";
import { useLastData, useResource } from "../api/use_resource";
import { count, excerpt, kindWord, percent } from "../model/format";
import { coverageState } from "../model/impact";
import { mapPath } from "../model/map_view";
import { thingPath } from "../model/route";
import { Crumb, Link, Name, Notice, State, ThingLink } from "../shell/parts";
import { Resource } from "../shell/resource";
import { useRoute } from "../shell/router";
import { ImpactPanel } from "./impact_panel";
import { ActivityPanel } from "./topic_activity";
import { UsesPanel } from "./uses_panel";

export function TopicsView() {
  const { name, cluster } = useRoute();
  return name === null ? <TopicList /> : <OneTopic name={name} cluster={cluster} key={name} />;
}

function TopicList() {
  const [text, setText] = useState("");
  const found = useResource<Topics>(`topics?limit=200${text === "" ? "" : `&contains=${encodeURIComponent(text)}`}`);
  const shown = useLastData(found);
  const isWaiting = found.state === "loading" && shown !== null;
  return (
    <div className="content">
      <div className="heading">
        <h1>Topics</h1>
        {shown === null ? null : <span className="muted">{count(shown.count)}</span>}
        <span className="space" />
        <input type="search" aria-label="Filter by name" placeholder="Filter by name" value={text} maxLength={249} onChange={(event) => setText(event.target.value)} />
      </div>
      {isWaiting ? <TopicTable topics={shown} text={text} /> : <Resource of={found} what="topics">{(data) => <TopicTable topics={data} text={text} />}</Resource>}
    </div>
  );
}

function TopicTable({ topics, text }: { topics: Topics; text: string }) {
  if (topics.topics.length === 0) {
    return text === "" ? (
      <Notice state="unknown" title="No topic has been seen yet">
        <p>A topic appears when a client uses it through the gateway, or when an application describes its topology.</p>
      </Notice>
    ) : (
      <Notice state="unknown" title="No topic has such a name">
        <p>The filter looks for a part of the name.</p>
      </Notice>
    );
  }
  return (
    <section className="panel">
      <table>
        <thead>
          <tr>
            <th>Topic</th>
            <th className="number">Writers</th>
            <th className="number">Readers</th>
          </tr>
        </thead>
        <tbody>
          {topics.topics.map((topic) => (
            <tr key={topic.name}>
              <td>
                <Link to={thingPath("topics", null, topic.name)}>
                  <Name of={topic.name} />
                </Link>{" "}
                {topic.internal ? <span className="tag">internal</span> : null}
              </td>
              <td className="number">{count(topic.writers)}</td>
              <td className="number">{count(topic.readers)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {topics.next === null ? null : <p className="body muted">The first {topics.topics.length} of {count(topics.count)}: filter by name to see the others.</p>}
    </section>
  );
}

function OneTopic({ name, cluster }: { name: string; cluster: string | null }) {
  const inCluster = cluster === null ? "" : `?cluster=${encodeURIComponent(cluster)}`;
  const path = `topics/${encodeURIComponent(name)}`;
  const topic = useResource<Topic>(`${path}${inCluster}`);
  return (
    <div className="content">
      <div className="heading">
        <h1>
          <Crumb to="/topics">Topics</Crumb>
          <Name of={name} />
        </h1>
        <span className="space" />
        {topic.state === "absent" ? null : (
          <Link to={mapPath({ focus: name, focusKind: "topic" })} className="button">
            Show on the map
          </Link>
        )}
      </div>
      <Resource of={topic} what="topic">
        {(data) => (
          <>
            <Coverage topic={data} />
            <div className="columns">
              <Owners title="Writers" owners={data.writers} empty="Nothing is known to write this topic." cluster={cluster} />
              <Owners title="Readers" owners={data.readers} empty="Nothing is known to read this topic." cluster={cluster} />
            </div>
            {data.truncated ? <p className="muted">The lists have the largest users only.</p> : null}
            <ActivityPanel path={path} cluster={cluster} />
            <div className="columns">
              <ImpactPanel topic={name} path={`${path}/impact`} direction="down" cluster={cluster} />
              <ImpactPanel topic={name} path={`${path}/impact`} direction="up" cluster={cluster} />
            </div>
          </>
        )}
      </Resource>
    </div>
  );
}

function Coverage({ topic }: { topic: Topic }) {
  const state = coverageState(topic);
  return (
    <section className="panel">
      <header>
        <h2>Seen by the gateway</h2>
        <span className="muted">last 24 hours</span>
      </header>
      <dl className="stats body">
        <div>
        <dt>Records through the gateway</dt>
        <dd>
          <State of={state.state}>{percent(topic.coverage)}</State>
          {topic.coverage === null ? null : (
            <span className="muted">
              {" "}
              {count(topic.seen_records)} of {count(topic.all_records)}
            </span>
          )}
        </dd>
        </div>
        <div>
          <dt>Written past it</dt>
          <dd>{topic.coverage === null ? "unknown" : `${count(topic.past_gateway)} records`}</dd>
        </div>
        <div>
          <dt>Written by clients that are not known</dt>
          <dd>{topic.unattributed_share === null ? "unknown" : `${percent(topic.unattributed_share)} of the bytes`}</dd>
        </div>
      </dl>
      {state.note === null ? null : <p className="body muted">{state.note}</p>}
    </section>
  );
}

function Owners({ title, owners, empty, cluster }: { title: string; owners: Owner[]; empty: string; cluster: string | null }) {
  return (
    <UsesPanel
      title={title}
      column="Name"
      uses={owners}
      empty={empty}
      keyOf={(owner) => (owner.name === null ? null : `${owner.kind} ${owner.name}`)}
      first={(owner) => (
        <>
          <ThingLink kind={owner.kind} name={owner.name} cluster={cluster} />
          <br />
          <span className="muted">{kindWord(owner.kind)}</span>
          <Clients clients={owner.clients} />
        </>
      )}
    />
  );
}

function Clients({ clients }: { clients: Client[] }) {
  if (clients.length === 0) return null;
  return (
    <details>
      <summary className="muted">{clients.length === 1 ? "1 client" : `${clients.length} clients`}</summary>
      <ul>
        {clients.map((client) => (
          <li key={`${client.principal} ${client.client_id} ${client.host}`}>
            <Name of={client.client_id === "" ? "without a client id" : client.client_id} />
            <span className="muted">
              {" "}
              {[client.host, client.principal, client.software ?? "", client.software_version ?? ""].map((text) => excerpt(text)).join(" ")}
            </span>
          </li>
        ))}
      </ul>
    </details>
  );
}
