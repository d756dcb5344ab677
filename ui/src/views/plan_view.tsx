/** A plan: what it holds, what it leaves out and why, who else reads its targets, its records, and its replay. */

import { useState } from "react";
import type { PlanDetail, PlannedRecord } from "../api/replay_shapes";
import { useLastData, useResource } from "../api/use_resource";
import { count, excerpt, percent, printable } from "../model/format";
import { holdsText, leftOut, reasonBars } from "../model/plans";
import { thingPath } from "../model/route";
import { Command, Crumb, Link, Name, Notice, State, ThingLink, Time } from "../shell/parts";
import { Resource } from "../shell/resource";
import { ReplayPanel } from "./replay_panel";

const ROWS = 100;

export function PlanView({ group, id }: { group: string; id: string }) {
  const [after, setAfter] = useState(-1);
  const found = useResource<PlanDetail>(`plans/${encodeURIComponent(id)}?after=${after}&limit=${ROWS}`);
  const last = useLastData(found);
  return (
    <div className="content">
      <div className="heading">
        <h1>
          <Crumb to="/letters">Dead letters</Crumb>
          <Crumb to={thingPath("letters", null, group)}>
            <Name of={group} />
          </Crumb>
          <span>
            Plan <code>{printable(id)}</code>
          </span>
        </h1>
        <span className="space" />
        <Link to={thingPath("groups", null, group)} className="button">
          Open the group
        </Link>
      </div>
      {last !== null && found.state === "loading" ? (
        <Whole plan={last} after={after} setAfter={setAfter} />
      ) : (
        <Resource of={found} what="plan">
          {(data) => <Whole plan={data} after={after} setAfter={setAfter} />}
        </Resource>
      )}
    </div>
  );
}

function Whole({ plan, after, setAfter }: { plan: PlanDetail; after: number; setAfter: (after: number) => void }) {
  return (
    <>
      {plan.records + plan.to_park === 0 ? (
        <Notice state="attention" title="The plan holds nothing to replay">
          <p>All records that it selects are left out, for the reasons below.</p>
        </Notice>
      ) : (
        <ReplayPanel plan={plan} />
      )}
      <div className="columns">
        <Holds plan={plan} />
        <Reasons plan={plan} />
      </div>
      <Records plan={plan} after={after} setAfter={setAfter} />
    </>
  );
}

function Holds({ plan }: { plan: PlanDetail }) {
  const left = leftOut(plan);
  const selection = Object.entries(plan.selection ?? {}).filter(([, value]) => value !== null && value !== "" && value !== false);
  return (
    <section className="panel">
      <header>
        <h2>What it holds</h2>
        <span className="muted">
          made <Time at={plan.at} />
          {plan.by === null ? "" : ` by ${excerpt(plan.by)}`}
        </span>
      </header>
      <dl className="facts body">
        <dt>Records</dt>
        <dd>{holdsText(plan)}</dd>
        <dt>Left out</dt>
        <dd>
          {left.length === 0 ? "none" : null}
          <ul>
            {left.map((one) => (
              <li key={one.key}>
                {count(one.number)}: {one.what}. <span className="muted">{one.hint}</span>
              </li>
            ))}
          </ul>
        </dd>
        <dt>Target</dt>
        <dd>
          {plan.to === "original" ? "each record's own topic: " : ""}
          {plan.targets.map((topic, place) => (
            <span key={topic ?? place}>
              {place === 0 ? "" : ", "}
              <ThingLink kind="topic" name={topic} />
            </span>
          ))}
        </dd>
        <dt>Also read it</dt>
        <dd>
          {plan.readers === null ? <span className="muted">your token does not tell</span> : plan.readers.length === 0 ? "no others that are known" : null}
          {plan.readers === null || plan.readers.length === 0 ? null : (
            <State of="attention">
              {plan.readers.map(printable).join(", ")}: will get the records again
            </State>
          )}
        </dd>
        {plan.oldest_at === null ? null : (
          <>
            <dt>Oldest record</dt>
            <dd>
              <Time at={plan.oldest_at} />
            </dd>
          </>
        )}
        {selection.length === 0 ? null : (
          <>
            <dt>Selected by</dt>
            <dd>
              {selection.map(([name, value]) => (
                <div key={name}>
                  <span className="muted">{printable(name.replaceAll("_", " "))}</span> <code>{printable(typeof value === "string" ? value : JSON.stringify(value)).slice(0, 1_000)}</code>
                </div>
              ))}
            </dd>
          </>
        )}
      </dl>
    </section>
  );
}

const MOST_REASONS = 12;

function Reasons({ plan }: { plan: PlanDetail }) {
  const bars = reasonBars(plan);
  return (
    <section className="panel">
      <header>
        <h2>Why they were rejected</h2>
        <span className="muted">{bars.length > MOST_REASONS ? `the ${MOST_REASONS} most common of ${count(bars.length)} reasons` : "by the reason in the dead letter"}</span>
      </header>
      {bars.length === 0 ? (
        <p className="body muted">No dead letter has a reason.</p>
      ) : (
        <ul className="body bars">
          {bars.slice(0, MOST_REASONS).map((bar) => (
            <li key={bar.reason}>
              <span className="label">{bar.reason === "" ? <span className="muted">none</span> : printable(bar.reason.slice(0, 300))}</span>
              <span className="number" title={percent(bar.share)}>
                {count(bar.number)}
              </span>
              <span className="bar" aria-hidden="true">
                <i style={{ width: `${Math.max(1, bar.share * 100)}%` }} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

const ACTIONS: Readonly<Record<PlannedRecord["action"], string>> = { replay: "replay", park: "park", leave_out: "leave out" };

function Records({ plan, after, setAfter }: { plan: PlanDetail; after: number; setAfter: (after: number) => void }) {
  const first = plan.rows[0];
  const last = plan.rows.at(-1);
  return (
    <section className="panel">
      <header>
        <h2>Records, in the order of the replay</h2>
        <span className="muted">{first === undefined || last === undefined ? "none" : `positions ${count(first.position)} to ${count(last.position)}`}</span>
        <span className="space" />
        {after < 0 ? null : (
          <button type="button" onClick={() => setAfter(-1)}>
            First page
          </button>
        )}
        {plan.next === null ? null : (
          <button type="button" onClick={() => setAfter(plan.next ?? -1)}>
            Next page
          </button>
        )}
      </header>
      {plan.rows.length === 0 ? (
        <p className="body muted">The list is empty, or your token sees none of its topics.</p>
      ) : (
        <div className="scroll" tabIndex={0} role="region" aria-label="Records of the plan">
          <table>
            <thead>
              <tr>
                <th className="number">Position</th>
                <th>Record</th>
                <th>What is done</th>
                <th>Target</th>
                <th className="narrow-hide">Reason of the dead letter</th>
              </tr>
            </thead>
            <tbody>
              {plan.rows.map((row) => (
                <tr key={`${row.position} ${row.topic ?? ""} ${row.partition} ${row.offset}`}>
                  <td className="number">{count(row.position)}</td>
                  <td className="place">
                    <ThingLink kind="topic" name={row.topic} />{" "}
                    <span className="muted">
                      {row.partition}/{row.offset}
                    </span>
                  </td>
                  <td>
                    {row.action === "replay" ? ACTIONS.replay : <State of={row.action === "park" ? "attention" : "unknown"}>{ACTIONS[row.action] ?? row.action}</State>}
                    {row.why === null ? null : <span className="muted"> {printable(row.why.replaceAll("_", " "))}</span>}
                  </td>
                  <td>
                    {row.action === "leave_out" ? (
                      <span className="muted">–</span>
                    ) : (
                      <>
                        <ThingLink kind="topic" name={row.target_topic} /> <span className="muted">{row.target_partition === null ? "" : `partition ${row.target_partition}`}</span>
                      </>
                    )}
                  </td>
                  <td className="narrow-hide reason">{row.reason === null ? <span className="muted">–</span> : printable(row.reason.slice(0, 300))}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <div className="body">
        <Command text={`headgate tables show replay_plan_records --config FILE --where plan=${plan.plan}`} />
      </div>
    </section>
  );
}
