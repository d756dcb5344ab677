/** The plans of replays, the newest first, with how far each of them is. */

import type { Plan, Plans } from "../api/replay_shapes";
import { count, excerpt } from "../model/format";
import { progressOf, replayMark } from "../model/replays";
import { thingPath } from "../model/route";
import { Link, Message, Name, Notice, State, ThingLink, Time } from "../shell/parts";

export function PlanTable({ plans, hasGroup = false }: { plans: Plans; hasGroup?: boolean }) {
  return (
    <>
      {plans.problem === null ? null : (
        <Notice state="unknown" title="How far replays are may be out of date">
          <p>
            <Message of={plans.problem} />
          </p>
        </Notice>
      )}
      <section className="panel">
        <header>
          <h2>Plans and replays</h2>
          <span className="muted">{plans.truncated ? `the newest ${count(plans.plans.length)}` : count(plans.plans.length)}</span>
        </header>
        <div className="scroll" tabIndex={0} role="region" aria-label="Plans and replays">
          <table>
            <thead>
              <tr>
                <th>Plan</th>
                {hasGroup ? <th>Group</th> : null}
                <th>Made</th>
                <th className="narrow-hide">Target</th>
                <th className="number">Records</th>
                <th className="number narrow-hide">Left out</th>
                <th>State</th>
                <th className="narrow-hide">By</th>
              </tr>
            </thead>
            <tbody>
              {plans.plans.map((plan) => (
                <tr key={plan.plan}>
                  <td>
                    <Link to={thingPath("letters", null, plan.group, { plan: plan.plan })}>
                      <code>{plan.plan}</code>
                    </Link>
                  </td>
                  {hasGroup ? (
                    <td>
                      <ThingLink kind="share_group" name={plan.group} />
                    </td>
                  ) : null}
                  <td>
                    <Time at={plan.at} />
                  </td>
                  <td className="narrow-hide">{plan.to === "original" ? "their own topics" : <Name of={plan.to} />}</td>
                  <td className="number">{count(plan.records + plan.to_park)}</td>
                  <td className="number narrow-hide">{count(plan.expired + plan.superseded + plan.already_replayed + plan.over_max_replays)}</td>
                  <td>
                    <PlanState plan={plan} />
                  </td>
                  <td className="narrow-hide muted">{excerpt(plan.by ?? "")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </section>
    </>
  );
}

export function PlanState({ plan }: { plan: Plan }) {
  const mark = replayMark(plan.state);
  const { share, finished } = progressOf({ ...plan, records: plan.records + plan.to_park });
  const isUnderWay = finished > 0 && plan.state !== "DONE" && share !== null;
  return (
    <State of={mark.state}>
      {mark.text}
      {isUnderWay ? ` (${Math.floor(share * 100)} %)` : ""}
    </State>
  );
}
