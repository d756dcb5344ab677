/** What other settings of a breaker would have done, and the command that sets the recommended one. */

import { useState } from "react";
import type { Backtest } from "../api/shapes";
import { useResource } from "../api/use_resource";
import { backtestRows, notRecommended, settingCommand } from "../model/backtest";
import { count, duration, shellQuoted } from "../model/format";
import { useGateway } from "../shell/gateway";
import { Command, Message } from "../shell/parts";

const EVERY_MS = 300_000;

/** `isEnabled`: the breaker of the group is, so that its live setting does something. */
export function BacktestPanel({ name, cluster, isEnabled }: { name: string; cluster: string | null; isEnabled: boolean }) {
  const more = cluster === null ? "" : `?cluster=${encodeURIComponent(cluster)}`;
  const found = useResource<Backtest>(`share-groups/${encodeURIComponent(name)}/backtest${more}`, EVERY_MS);
  return (
    <section className="panel">
      <header>
        <h2>Back-test</h2>
        <span className="muted">{found.state === "ready" ? heading(found.data) : "other settings over recorded records"}</span>
      </header>
      {found.state === "ready" ? <Tested found={found.data} isEnabled={isEnabled} /> : null}
      {found.state === "loading" ? <p className="body muted">Loading the back-test…</p> : null}
      {found.state === "ready" || found.state === "loading" ? null : (
        <div className="body">
          <p className="muted">
            <Message of={found.problem.message} />
          </p>
          <Command text={`headgate share-groups --backtest --group ${shellQuoted(name)}`} />
        </div>
      )}
    </section>
  );
}

function heading(found: Backtest): string {
  const leftOut = found.left_out_s === 0 ? "" : `, without ${duration(found.left_out_s * 1000)} in which it was paused`;
  return `${count(found.configs.length)} settings over ${found.days === 1 ? "1 day" : `${count(found.days)} days`}${leftOut}`;
}

function Tested({ found, isEnabled }: { found: Backtest; isEnabled: boolean }) {
  const [isShown, setIsShown] = useState(false);
  const gateway = useGateway();
  const missing = notRecommended(found);
  const isKept = isEnabled && found.recommended === found.live;
  const recommended = found.recommended === null ? undefined : found.configs[found.recommended];
  return (
    <>
      <div className="scroll" tabIndex={0} role="region" aria-label="Settings and what they would have done">
        <table>
          <thead>
            <tr>
              <th>Setting</th>
              <th className="number">Threshold</th>
              <th className="number">Window</th>
              <th className="number">At least</th>
              <th className="number">Trips</th>
              <th className="number">Paused</th>
              <th className="number">Avoided</th>
              <th className="number">False trips</th>
            </tr>
          </thead>
          <tbody>
            {backtestRows(found).map(({ config, isLive, isRecommended }) => (
              <tr key={`${config.threshold_percent}/${config.window_ms}/${config.min_messages}`}>
                <td>
                  {isLive ? <span className="tag">live</span> : null}
                  {isRecommended ? <span className="tag">recommended</span> : null}
                </td>
                <td className="number">{config.threshold_percent} %</td>
                <td className="number">{duration(config.window_ms)}</td>
                <td className="number">{count(config.min_messages)} records</td>
                <td className="number">{count(config.trips)}</td>
                <td className="number">{duration(config.paused_s * 1000)}</td>
                <td className="number">{count(config.avoided)}</td>
                <td className="number">{count(config.false_trips)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div className="body">
        {isEnabled ? null : <p className="muted">The circuit breaker is not enabled: the live setting does nothing.</p>}
        {missing === null ? null : <p className="muted">{missing}</p>}
        {recommended !== undefined && isKept ? <p className="muted">The live setting is the recommended one.</p> : null}
        {recommended !== undefined && !isKept && !isShown ? (
          <button type="button" onClick={() => setIsShown(true)}>
            Show the command for the recommended setting
          </button>
        ) : null}
        {recommended !== undefined && isShown ? <Command text={settingCommand(found.group, recommended, gateway, isEnabled)} /> : null}
      </div>
    </>
  );
}
