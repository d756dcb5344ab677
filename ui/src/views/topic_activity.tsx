/** How much was written to a topic and read from it over the last days, in all and by actor. */

import { useState } from "react";
import type { TopicActivity } from "../api/shapes";
import { useResource } from "../api/use_resource";
import { bytes, count, exact, kindWord } from "../model/format";
import { hourChart } from "../model/topic_hours";
import { ThingLink, Time } from "../shell/parts";
import { Resource } from "../shell/resource";
import { sparkBars } from "../model/sparkline";

const SIZE = { width: 1000, height: 96 };
const STRIP = { width: 240, height: 18 };
const DAYS = [1, 7, 31] as const;

export function ActivityPanel({ path, cluster }: { path: string; cluster: string | null }) {
  const [days, setDays] = useState<number>(7);
  const more = cluster === null ? "" : `&cluster=${encodeURIComponent(cluster)}`;
  const found = useResource<TopicActivity>(`${path}/activity?days=${days}${more}`, 60_000);
  return (
    <section className="panel" aria-labelledby="activity">
      <header>
        <h2 id="activity">Activity</h2>
        <span className="muted">bytes through the gateway by hour</span>
        <span className="space" />
        <span className="choices" role="group" aria-label="Days">
          {DAYS.map((one) => (
            <button key={one} type="button" aria-pressed={days === one} onClick={() => setDays(one)}>
              {one === 1 ? "1 day" : `${one} days`}
            </button>
          ))}
        </span>
      </header>
      <div className="body hours">
        <Resource of={found} what="activity">
          {(data) =>
            data.actors.length === 0 ? (
              <p className="muted">Nothing was seen in this time: no client used the topic through the gateway, or the pipeline has not counted it yet.</p>
            ) : (
              <>
                <Chart activity={data} />
                <Actors activity={data} cluster={cluster} />
              </>
            )
          }
        </Resource>
      </div>
    </section>
  );
}

function Chart({ activity }: { activity: TopicActivity }) {
  const chart = hourChart(activity, SIZE);
  const sum = (values: number[]) => values.reduce((a, b) => a + b, 0);
  return (
    <figure>
      <svg viewBox={`0 0 ${SIZE.width} ${SIZE.height}`} preserveAspectRatio="none" role="img" aria-label={`${bytes(sum(activity.written))} written and ${bytes(sum(activity.read))} read since ${exact(activity.since)}; at most ${bytes(chart.highest)} in an hour`}>
        {chart.days.map((day) => (
          <line key={day.at} x1={day.x} x2={day.x} y1={0} y2={SIZE.height} />
        ))}
        {chart.bars.map(({ key, ...bar }) => (
          <rect key={key} {...bar} />
        ))}
        <line x1={0} x2={SIZE.width} y1={SIZE.height / 2} y2={SIZE.height / 2} />
      </svg>
      <figcaption>
        <Time at={activity.since} />
        <span className="key">
          <svg viewBox="0 0 10 10" className="swatch" aria-hidden="true">
            <rect className="written" width="10" height="10" />
          </svg>
          written {bytes(sum(activity.written))}
        </span>
        <span className="key">
          <svg viewBox="0 0 10 10" className="swatch" aria-hidden="true">
            <rect className="read" width="10" height="10" />
          </svg>
          read {bytes(sum(activity.read))}
        </span>
        <span>at most {bytes(chart.highest)} in an hour</span>
        <span>now</span>
      </figcaption>
    </figure>
  );
}

function Actors({ activity, cluster }: { activity: TopicActivity; cluster: string | null }) {
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="Activity by actor">
      <table>
        <thead>
          <tr>
            <th>Who</th>
            <th>Direction</th>
            <th className="number">Bytes</th>
            <th className="narrow-hide">By hour</th>
            <th className="narrow-hide">First</th>
            <th>Last</th>
          </tr>
        </thead>
        <tbody>
          {activity.actors.map((actor, place) => (
            <tr key={`${actor.kind} ${actor.name ?? place} ${actor.direction}`}>
              <td>
                <ThingLink kind={actor.kind} name={actor.name} cluster={cluster} /> <span className="muted">{kindWord(actor.kind)}</span>
              </td>
              <td>{actor.direction}</td>
              <td className="number">{bytes(actor.bytes)}</td>
              <td className="narrow-hide strip">
                <svg viewBox={`0 0 ${STRIP.width} ${STRIP.height}`} preserveAspectRatio="none" aria-hidden="true">
                  {sparkBars(actor.hours, STRIP).map((bar) => (
                    <rect key={bar.x} {...bar} />
                  ))}
                </svg>
              </td>
              <td className="narrow-hide">
                <Time at={actor.first_seen} />
              </td>
              <td>
                <Time at={actor.last_seen} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {activity.truncated ? <p className="muted">The {count(activity.actors.length)} with most bytes are listed.</p> : null}
    </div>
  );
}
