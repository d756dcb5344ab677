/** Share groups: the state of the breaker, the rate beside its threshold, and the commands that pause and resume. */

import type { ShareGroup, ShareGroups } from "../api/shapes";
import { useResource } from "../api/use_resource";
import { count, duration, percent, printable, shellQuoted } from "../model/format";
import { groupState, rateScale } from "../model/groups";
import { mapPath } from "../model/map_view";
import { windowText } from "../model/now_cards";
import { thingPath } from "../model/route";
import { Command, Link, Name, Notice, State, ThingLink, Time } from "../shell/parts";
import { Resource } from "../shell/resource";
import { useRoute } from "../shell/router";

export function GroupsView() {
  const { name, cluster } = useRoute();
  return name === null ? <GroupList /> : <OneGroup name={name} cluster={cluster} key={name} />;
}

function GroupList() {
  const groups = useResource<ShareGroups>("share-groups");
  return (
    <div className="content">
      <div className="heading">
        <h1>Share groups</h1>
        {groups.state === "ready" ? <span className="muted">{count(groups.data.share_groups.length)}</span> : null}
      </div>
      <Resource of={groups} what="share groups" absent={<Unavailable />}>
        {(data) => (data.share_groups.length === 0 ? <NoGroups /> : <GroupTable groups={data.share_groups} />)}
      </Resource>
    </div>
  );
}

function Unavailable() {
  return (
    <Notice state="unknown" title="This server has no states of share groups">
      <p>The command asks the gateway itself:</p>
      <Command text="headgate share-groups --bootstrap-server HOST:PORT --describe --dlq-topology" />
    </Notice>
  );
}

function NoGroups() {
  return (
    <Notice state="unknown" title="There are no share groups">
      <p>A group appears when its first member joins through the gateway. Its breaker is switched on with Kafka's own tool:</p>
      <Command text="kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type groups --entity-name GROUP --add-config share.group.dlq.circuit.breaker.enable=true" />
    </Notice>
  );
}

function GroupTable({ groups }: { groups: ShareGroup[] }) {
  const sorted = [...groups].sort((a, b) => Number(b.paused) - Number(a.paused) || a.group.localeCompare(b.group));
  return (
    <section className="panel scroll">
      <table>
        <thead>
          <tr>
            <th>Group</th>
            <th>State</th>
            <th className="number">Dead-lettered</th>
            <th className="narrow-hide">Rate and threshold</th>
            <th className="number narrow-hide">Spooled</th>
            <th className="narrow-hide">Dead-letter topic</th>
          </tr>
        </thead>
        <tbody>
          {sorted.map((group) => (
            <tr key={group.group}>
              <td>
                <Link to={thingPath("groups", null, group.group)}>
                  <Name of={group.group} />
                </Link>
              </td>
              <td>
                <State of={groupState(group).state}>{groupState(group).text}</State>
              </td>
              <td className="number">
                {percent(group.dlq_rate)} <span className="muted">of {count(group.delivered)}</span>
              </td>
              <td className="narrow-hide">
                <RateBar group={group} />
              </td>
              <td className="number narrow-hide">{count(group.spooled)}</td>
              <td className="narrow-hide">{group.dlq_topic === null ? <span className="muted">none</span> : <ThingLink kind="topic" name={group.dlq_topic} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function RateBar({ group }: { group: ShareGroup }) {
  const scale = rateScale(group);
  return (
    <div className={`bar ${scale.isOver ? "over" : ""}`} role="img" aria-label={windowText(group)} title={windowText(group)}>
      <span style={{ width: `${scale.rate}%` }} />
      {group.enabled ? <b style={{ left: `${scale.threshold}%` }} /> : null}
    </div>
  );
}

function OneGroup({ name, cluster }: { name: string; cluster: string | null }) {
  const more = cluster === null ? "" : `?cluster=${encodeURIComponent(cluster)}`;
  const group = useResource<ShareGroup>(`share-groups/${encodeURIComponent(name)}${more}`, 1_000);
  return (
    <div className="content">
      <div className="heading">
        <h1>
          <Link to="/groups" className="crumb">
            Share groups /
          </Link>
          <Name of={name} />
        </h1>
        {group.state === "ready" ? <State of={groupState(group.data).state}>{groupState(group.data).text}</State> : null}
        <span className="space" />
        <Link to={mapPath({ focus: name, focusKind: "share_group" })} className="button">
          Show on the map
        </Link>
      </div>
      <Resource of={group} what="share group">
        {(data) => <GroupFacts group={data} />}
      </Resource>
    </div>
  );
}

function GroupFacts({ group }: { group: ShareGroup }) {
  const quoted = shellQuoted(group.group);
  return (
    <>
      {group.paused ? (
        <Notice state="stopped" title="The group is paused: its members get no records">
          <ul>
            {group.pause_reasons.map((reason) => (
              <li key={reason.code}>
                {printable(reason.text)}
                <span className="muted">
                  {" "}
                  {reason.by ?? ""} since <Time at={reason.since} />
                </span>
              </li>
            ))}
          </ul>
          {group.auto_resume_at === null ? null : (
            <p>
              It resumes by itself <Time at={group.auto_resume_at} />.
            </p>
          )}
          <p className="muted">To resume it, with a reason that all will see:</p>
          <Command text={`headgate share-groups --bootstrap-server HOST:PORT --resume --group ${quoted} --reason REASON`} />
        </Notice>
      ) : null}
      <div className="columns">
        <section className="panel">
          <header>
            <h2>Rate of dead letters</h2>
            <span className="muted">last {duration(group.window_ms)}</span>
          </header>
          <div className="body" style={{ display: "grid", gap: 10 }}>
            <RateBar group={group} />
            <p>{windowText(group)}</p>
            {group.enabled ? null : <p className="muted">The breaker is off: nothing pauses this group by itself.</p>}
            {group.enabled && group.delivered < group.min_messages ? (
              <p className="muted">The breaker waits for {count(group.min_messages)} records in the window.</p>
            ) : null}
          </div>
        </section>
        <section className="panel">
          <header>
            <h2>Settings and route</h2>
          </header>
          <dl className="facts body">
            <dt>Breaker</dt>
            <dd>{group.enabled ? `on, threshold ${group.threshold_percent} %` : "off"}</dd>
            <dt>Window</dt>
            <dd>
              {duration(group.window_ms)}, at least {count(group.min_messages)} records
            </dd>
            <dt>Delivery count limit</dt>
            <dd>{count(group.limit)}</dd>
            <dt>Dead-letter topic</dt>
            <dd>{group.dlq_topic === null ? "none" : <ThingLink kind="topic" name={group.dlq_topic} />}</dd>
            <dt>Spooled dead letters</dt>
            <dd>
              {count(group.spooled)}
              {group.oldest_spooled_at === null ? null : (
                <>
                  , the oldest <Time at={group.oldest_spooled_at} />
                </>
              )}
            </dd>
            <dt>Last resume</dt>
            <dd>
              {group.last_resume === null ? (
                "never"
              ) : (
                <>
                  <Time at={group.last_resume.at} /> {group.last_resume.by ?? ""}: {printable(group.last_resume.reason)}
                </>
              )}
            </dd>
          </dl>
        </section>
      </div>
      {group.paused ? null : (
        <section className="panel">
          <header>
            <h2>Pause</h2>
            <span className="muted">members get no records until it is resumed</span>
          </header>
          <div className="body">
            <Command text={`headgate share-groups --bootstrap-server HOST:PORT --pause --group ${quoted} --reason REASON`} />
          </div>
        </section>
      )}
    </>
  );
}
