/** The breaker's window as the gateway counts it now: the rate beside its threshold, and what waits in the spool. */

import { useEffect, useState } from "react";
import { useResource } from "../api/use_resource";
import { count, duration, excerpt, percent, printable } from "../model/format";
import { type RateSample, rateLine, withSample } from "../model/rate_samples";
import { Lasting, State, ThingLink, Time, useNow } from "../shell/parts";
import { Resource } from "../shell/resource";
import { ScaledChart } from "../views/scaled_chart";

/** The answer of `/api/v1/share-groups/NAME/breaker`. */
interface BreakerWindow {
  window_ms: number | null;
  delivered: number | null;
  dlq_written: number | null;
  dlq_rate: number | null;
  threshold_percent: number | null;
  min_messages: number | null;
  last_resume: { reason: string | null; by: string | null; at: number | null } | null;
  limit_unprotected: boolean | null;
  spooled: number | null;
  oldest_spooled_at: number | null;
  parked: { topic: string | null; reason: string; number: number }[];
  at: number;
  problem: string | null;
}

const POLL_MS = 1_000;
const SIZE = { width: 600, height: 80 };

export function BreakerWindowPanel({ name }: { name: string }) {
  const found = useResource<BreakerWindow>(`share-groups/${encodeURIComponent(name)}/breaker`, POLL_MS);
  const [samples, setSamples] = useState<RateSample[]>([]);
  const data = found.state === "ready" ? found.data : null;
  useEffect(() => {
    if (data !== null && data.problem === null) setSamples((before) => withSample(before, { at: data.at, rate: data.dlq_rate }));
  }, [data]);
  return (
    <section className="panel">
      <header>
        <h2>Now, in the window</h2>
        <span className="muted">as the gateway counts it, each second</span>
      </header>
      <div className="body">
        <Resource of={found} what="window of the breaker">
          {(shown) => (shown.problem === null ? <Counts of={shown} samples={samples} /> : <Unknown problem={shown.problem} />)}
        </Resource>
      </div>
    </section>
  );
}

function Unknown({ problem }: { problem: string }) {
  return (
    <p>
      <State of="unknown">The gateway does not tell it</State> <span className="muted">{printable(problem)}</span>
    </p>
  );
}

function Counts({ of, samples }: { of: BreakerWindow; samples: readonly RateSample[] }) {
  const now = useNow();
  const line = rateLine(samples, of.threshold_percent, Math.max(now, samples.at(-1)?.at ?? 0), SIZE);
  const all = of.delivered === null || of.dlq_written === null ? null : of.delivered + of.dlq_written;
  return (
    <>
      <ScaledChart
        size={SIZE}
        top={line.top}
        label={`Rate of dead letters in the window: ${percent(of.dlq_rate)}`}
        from="3 min ago"
        meanings={[{ shape: "line", text: "rate in the window" }, ...(of.threshold_percent === null ? [] : [{ shape: "threshold" as const, text: `threshold ${of.threshold_percent} %` }])]}
        isLow
      >
        {line.lines.map((points) => (
          <polyline key={points} points={points} />
        ))}
        {line.threshold === null ? null : <line className="threshold" x1={0} x2={SIZE.width} y1={line.threshold} y2={line.threshold} />}
      </ScaledChart>
      <dl className="facts">
        <dt>Dead letters</dt>
        <dd>
          {all === null ? "not known" : all === 0 ? "no record was counted" : `${count(of.dlq_written ?? 0)} of ${count(all)} records (${percent(of.dlq_rate)})`}
          {of.window_ms === null ? "" : ` in ${duration(of.window_ms)}`}
          {all !== null && all > 0 && of.min_messages !== null && all < of.min_messages ? <span className="muted">, fewer than the {count(of.min_messages)} that count</span> : null}
        </dd>
        <dt>In the spool</dt>
        <dd>
          {of.spooled === null ? "not known" : of.spooled === 0 ? "none" : `${count(of.spooled)} wait for their topic`}
          {of.oldest_spooled_at === null ? null : (
            <span className="muted">
              , the oldest <Lasting since={of.oldest_spooled_at} />
            </span>
          )}
        </dd>
        {of.parked.length === 0 ? null : (
          <>
            <dt>Parked</dt>
            <dd>
              {of.parked.map((one, place) => (
                <span key={`${one.topic ?? place} ${one.reason}`}>
                  {place === 0 ? "" : ", "}
                  {count(one.number)} for <ThingLink kind="topic" name={one.topic} /> <span className="muted">{printable(one.reason)}</span>
                </span>
              ))}
            </dd>
          </>
        )}
        {of.last_resume === null ? null : (
          <>
            <dt>Last resume</dt>
            <dd>
              {printable(of.last_resume.reason ?? "without a reason")} <span className="muted">{excerpt(of.last_resume.by ?? "by itself")}</span> <Time at={of.last_resume.at} />
            </dd>
          </>
        )}
        {of.limit_unprotected === true ? (
          <>
            <dt>Limit</dt>
            <dd>
              <State of="attention">The broker may archive a record before its dead letter is written</State>
            </dd>
          </>
        ) : null}
      </dl>
    </>
  );
}
