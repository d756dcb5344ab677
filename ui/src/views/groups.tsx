/** Share groups: the state of the breaker, the rate beside its threshold, and what pauses and resumes it. */

import { GroupActionButton } from "../actions/group_action";
import type { BreakerEvent, Changes, ShareGroup, ShareGroupRow, ShareGroups } from "../api/shapes";
import { useResource } from "../api/use_resource";
import { detailText } from "../model/change_text";
import { breakerOnCommand } from "../model/commands";
import { lettersPath } from "../model/dead_letters";
import { count, duration, exact, excerpt, percent, printable, unitsKept } from "../model/format";
import { chartMeanings, groupState, pausedSince, rateChart, reasonText } from "../model/groups";
import { BreakerWindowPanel } from "../live/breaker_window";
import { mapPath } from "../model/map_view";
import { thingPath } from "../model/route";
import { useGateway } from "../shell/gateway";
import { Command, Crumb, Lasting, Link, Message, Name, Notice, State, ThingLink, Time, useNow } from "../shell/parts";
import { Resource } from "../shell/resource";
import { useRoute } from "../shell/router";
import { BacktestPanel } from "./backtest_panel";
import { ScaledChart } from "./scaled_chart";

export function GroupsView() {
  const { name, cluster } = useRoute();
  return name === null ? <GroupList /> : <OneGroup name={name} cluster={cluster} key={name} />;
}

function GroupList() {
  const groups = useResource<ShareGroups>("share-groups?limit=1000");
  return (
    <div className="content">
      <div className="heading">
        <h1>Share groups</h1>
        {groups.state === "ready" ? <span className="muted">{count(groups.data.count)}</span> : null}
      </div>
      <Resource of={groups} what="share groups">
        {(data) => (
          <>
            <Unread problem={data.problem} />
            {data.share_groups.length === 0 ? <NoGroups /> : <GroupTable groups={data.share_groups} problem={data.problem} />}
            {data.next === null ? null : <p className="muted">The first {count(data.share_groups.length)}: press / and search for the others.</p>}
          </>
        )}
      </Resource>
    </div>
  );
}

function Unread({ problem }: { problem: string | null }) {
  if (problem === null) return null;
  return (
    <Notice state="unknown" title="The state of share groups is not up to date">
      <p>
        <Message of={problem} />
      </p>
      <Command text="headgate doctor --config FILE" />
    </Notice>
  );
}

function NoGroups() {
  return (
    <Notice state="unknown" title="There are no share groups">
      <p>A group appears when its first member joins through the gateway. Its breaker is switched on with Kafka's own tool:</p>
      <Command text={breakerOnCommand(useGateway())} />
    </Notice>
  );
}

function GroupTable({ groups, problem }: { groups: ShareGroupRow[]; problem: string | null }) {
  const sorted = [...groups].sort((a, b) => Number(b.paused) - Number(a.paused) || a.name.localeCompare(b.name));
  return (
    <section className="panel scroll">
      <table>
        <thead>
          <tr>
            <th>Group</th>
            <th>State</th>
            <th>Since</th>
            <th className="narrow-hide">Breaker</th>
            <th className="narrow-hide">Dead-letter topic</th>
          </tr>
        </thead>
        <tbody>
          {sorted.map((group) => (
            <tr key={group.name}>
              <td>
                <Link to={thingPath("groups", null, group.name)}>
                  <Name of={group.name} />
                </Link>
              </td>
              <td>
                <GroupMark group={group} problem={problem} />
              </td>
              <td><Lasting since={pausedSince(group)} /></td>
              <td className="narrow-hide">{group.breaker_enabled === null ? "unknown" : group.breaker_enabled ? "on" : "off"}</td>
              <td className="narrow-hide">
                <Route group={group} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function GroupMark({ group, problem }: { group: ShareGroupRow; problem: string | null }) {
  const { state, text } = groupState(group, problem);
  return <State of={state}>{text}</State>;
}

function Route({ group }: { group: ShareGroupRow }) {
  if (group.dlq_topic_hidden) return <Name of={null} />;
  return group.dlq_topic === null ? <span className="muted">none</span> : <ThingLink kind="topic" name={group.dlq_topic} />;
}

/** Enough for the marks of an hour with a trip and a resume each minute; the list shows the latest of them. */
const MOST_EVENTS = 200;
const MOST_LISTED = 20;

function OneGroup({ name, cluster }: { name: string; cluster: string | null }) {
  const more = cluster === null ? "" : `&cluster=${encodeURIComponent(cluster)}`;
  const group = useResource<ShareGroup>(`share-groups/${encodeURIComponent(name)}?events=${MOST_EVENTS}${more}`, 1_000);
  return (
    <div className="content">
      <div className="heading">
        <h1>
          <Crumb to="/groups">Share groups</Crumb>
          <Name of={name} />
        </h1>
        {group.state === "ready" ? <GroupMark group={group.data} problem={group.data.problem} /> : null}
        <span className="space" />
        {group.state === "ready" && group.data.paused === false ? <GroupActionButton action="pause" group={name} /> : null}
        {group.state === "absent" ? null : (
          <>
            <Link to={lettersPath(name, null)} className="button">
              Dead letters
            </Link>
            <Link to={mapPath({ focus: name, focusKind: "share_group" })} className="button">
              Show on the map
            </Link>
          </>
        )}
      </div>
      <Resource of={group} what="share group">
        {(data) => (
          <>
            <Unread problem={data.problem} />
            {data.paused === true ? <Paused group={data} /> : null}
            <div className="columns">
              {data.paused === null ? null : <BreakerWindowPanel name={data.name} />}
              <Rate group={data} />
            </div>
            <div className="columns">
              <Settings group={data} />
              <Events group={data.name} events={data.events} isPaused={data.paused === true} />
            </div>
            <BacktestPanel name={data.name} cluster={cluster} isEnabled={data.settings?.breaker_enable !== false} />
          </>
        )}
      </Resource>
    </div>
  );
}

function Paused({ group }: { group: ShareGroup }) {
  const { query } = useRoute();
  return (
    <Notice state="stopped" title="The group is paused: its members get no records">
      <ul>
        {group.pause_reasons.map((reason) => (
          <li key={reasonText(reason)}>
            {printable(reasonText(reason))},{" "}
            <span className="muted">
              {reason.by === null ? "" : `by ${excerpt(reason.by)} `}
              <Lasting since={reason.since} />
            </span>
          </li>
        ))}
      </ul>
      {group.auto_resume_at === null ? null : (
        <p>
          It resumes by itself <Time at={group.auto_resume_at} />.
        </p>
      )}
      <div className="actions">
        <GroupActionButton action="resume" group={group.name} isOpen={query.get("do") === "resume"} />
        {group.tripped === true ? (
          <Link to={lettersPath(group.name, pausedSince(group))} className="button">
            Show the dead letters behind it
          </Link>
        ) : null}
      </div>
    </Notice>
  );
}

const CHART = { width: 1200, height: 120 };
const MINUTES = 60;

function Rate({ group }: { group: ShareGroup }) {
  const now = useNow();
  const threshold = group.settings?.breaker_enable === true ? group.settings.threshold_percent : null;
  const chart = rateChart({ rates: group.rates, events: group.events, thresholdPercent: threshold }, now, MINUTES, CHART);
  const last = group.rates.at(-1);
  return (
    <section className="panel">
      <header>
        <h2>Rate of dead letters</h2>
        <span className="muted">share of all records, each minute of the last hour</span>
      </header>
      {group.rates.length === 0 ? (
        <p className="body muted">No record was disposed of in the last hour, or the pipeline has not counted it yet.</p>
      ) : (
        <div className="body">
          <ScaledChart
            size={CHART}
            top={chart.top}
            label={`Rate of dead letters of the last hour; last minute ${percent(last?.dlq_rate ?? null)}`}
            from="1 hour ago"
            meanings={chartMeanings(chart, threshold)}
          >
            {chart.bars.map((bar) => (
              <rect key={bar.minute} className={bar.isOver ? "over" : ""} x={bar.x} width={bar.width} y={CHART.height - bar.height} height={bar.height}>
                <title>{`${exact(bar.minute)} ${bar.title}`}</title>
              </rect>
            ))}
            {chart.threshold === null ? null : <line className="threshold" x1={0} x2={CHART.width} y1={chart.threshold} y2={chart.threshold} />}
            {chart.marks.map(({ x, event, shape }) => (
              <line key={event.event_id} className={shape} x1={x} x2={x} y1={0} y2={CHART.height}>
                <title>{`${exact(event.at)} ${event.event.replaceAll("_", " ")}`}</title>
              </line>
            ))}
          </ScaledChart>
        </div>
      )}
    </section>
  );
}

function Settings({ group }: { group: ShareGroup }) {
  const settings = group.settings;
  return (
    <section className="panel">
      <header>
        <h2>Settings and route</h2>
      </header>
      <dl className="facts body">
        {settings === null ? null : (
          <>
            <dt>Breaker</dt>
            <dd>{settings.breaker_enable ? `on, threshold ${settings.threshold_percent} %` : "off: nothing pauses this group by itself"}</dd>
            <dt>Window</dt>
            <dd>
              {duration(settings.window_ms)}, at least {count(settings.min_messages)} records
            </dd>
            <dt>Resumes by itself</dt>
            <dd>{settings.auto_resume_enable ? `after ${duration(settings.auto_resume_ms)}` : "no"}</dd>
            <dt>Delivery count limit</dt>
            <dd>{settings.limit === null ? "that of the broker" : count(settings.limit)}</dd>
          </>
        )}
        <dt>Dead-letter topic</dt>
        <dd>
          <Route group={group} />
        </dd>
        <dt>Shared with</dt>
        <dd>
          {group.dlq_topic_shared_with.length === 0 ? "no other group" : null}
          {group.dlq_topic_shared_with.map((other, place) => (
            <span key={other ?? place}>
              {place === 0 ? "" : ", "}
              <ThingLink kind="share_group" name={other} />
            </span>
          ))}
        </dd>
        <dt>Reads</dt>
        <dd>
          {group.reads.length === 0 ? "nothing that is known" : null}
          {group.reads.map((use, place) => (
            <span key={use.topic ?? place}>
              {place === 0 ? "" : ", "}
              <ThingLink kind="topic" name={use.topic} />
            </span>
          ))}
        </dd>
      </dl>
    </section>
  );
}

const EVENT_STATES: Readonly<Record<string, "stopped" | "good" | "attention">> = { tripped: "stopped", paused: "stopped", resumed: "good" };

/** The list has the reason and the figures of events; what else they have, such as changed configs, is among the changes. */
function Events({ group, events, isPaused }: { group: string; events: BreakerEvent[]; isPaused: boolean }) {
  const changes = useResource<Changes>(`changes?subject=${encodeURIComponent(group)}&limit=100`);
  const known = changes.state === "ready" ? changes.data.changes : [];
  const details = new Map(known.map((change) => [change.event_id, change.detail]));
  return (
    <section className="panel">
      <header>
        <h2>Events</h2>
        <span className="muted">{events.length > MOST_LISTED ? `the latest ${MOST_LISTED}` : "the latest first"}</span>
      </header>
      {events.length === 0 ? (
        <p className="body muted">{isPaused ? "The pipeline has not written the events of this group yet." : "No pause or resume of this group is in the tables."}</p>
      ) : (
        <ul className="list body">
          {events.slice(0, MOST_LISTED).map((event) => (
            <li key={event.event_id}>
              <State of={EVENT_STATES[event.event] ?? "unknown"}>{event.event.replaceAll("_", " ")}</State>
              <span className="grow">
                {unitsKept(detailText(event.event, details.get(event.event_id) ?? event))} <span className="muted">{excerpt(event.by ?? "", 60)}</span>
              </span>
              {event.event === "tripped" ? (
                <span>
                  <Link to={lettersPath(group, event.at)}>dead letters</Link>
                </span>
              ) : null}
              <Time at={event.at} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
