/** Now: what needs attention, worst first. */

import type { Changes, Health, ShareGroups } from "../api/shapes";
import { useResource } from "../api/use_resource";
import { printable } from "../model/format";
import type { Loaded } from "../model/loaded";
import { mapPath } from "../model/map_view";
import { type NowCard, nowCards } from "../model/now_cards";
import { thingPath, viewOfKind } from "../model/route";
import { Command, Lasting, Link, Notice, Skeleton, State, ThingLink, Time } from "../shell/parts";
import { Resource } from "../shell/resource";

export function NowView({ health }: { health: Loaded<Health> }) {
  const groups = useResource<ShareGroups>("share-groups?limit=1000");
  const changes = useResource<Changes>("changes?limit=100");
  const cards = nowCards({
    groups: groups.state === "ready" ? groups.data.share_groups : [],
    changes: changes.state === "ready" ? changes.data.changes : [],
    health: health.state === "ready" ? health.data : null,
  });
  const isLoading = groups.state === "loading" || health.state === "loading";
  const stopped = cards.filter((card) => card.state === "stopped").length;
  return (
    <div className="content">
      <div className="heading">
        <h1>Now</h1>
        {cards.length === 0 ? null : (
          <span className="muted" role="status">
            {stopped} stopped, {cards.length - stopped} to look at
          </span>
        )}
      </div>
      {health.state === "forbidden" || health.state === "failed" ? (
        <Resource of={health} what="state of this process">
          {() => null}
        </Resource>
      ) : null}
      {isLoading && cards.length === 0 ? <Skeleton what="what needs attention" /> : null}
      <div className="cards" aria-live="polite">
        {cards.map((card) => (
          <Card key={card.key} card={card} />
        ))}
      </div>
      {!isLoading && cards.length === 0 && health.state === "ready" ? <Quiet groups={groups} /> : null}
      <UnknownGroups groups={groups} />
      <Recent changes={changes} />
    </div>
  );
}

function Card({ card }: { card: NowCard }) {
  const view = card.subject === null ? null : viewOfKind(card.subject.kind);
  return (
    <article className={`card ${card.state}`}>
      <header>
        <h2>
          <State of={card.state}>{card.subject === null ? null : <ThingLink kind={card.subject.kind} name={card.subject.name} />}</State> {card.title}
        </h2>
        {card.since === null ? null : (
          <span className="muted">
            <Lasting since={card.since} />
          </span>
        )}
      </header>
      {card.facts.map((fact) => (
        <p key={fact}>{printable(fact)}</p>
      ))}
      {card.before.length === 0 ? null : (
        <p className="muted">
          Changed before:{" "}
          {card.before.map((change, place) => (
            <span key={change.event_id}>
              {place === 0 ? "" : "; "}
              <ThingLink kind={change.subject_kind === "application" ? "streams" : change.subject_kind} name={change.subject} /> {words(change.event)} <Time at={change.at} />
            </span>
          ))}
        </p>
      )}
      <div className="actions">
        {card.command === null ? null : <Command text={card.command} />}
        {card.subject === null || view === null ? null : (
          <>
            <Link to={thingPath(view, null, card.subject.name)} className="button">
              Open
            </Link>
            <Link to={mapPath({ focus: card.subject.name, focusKind: card.subject.kind })} className="button">
              Map
            </Link>
          </>
        )}
      </div>
    </article>
  );
}

export function words(event: string): string {
  return event.replaceAll("_", " ");
}

function UnknownGroups({ groups }: { groups: Loaded<ShareGroups> }) {
  if (groups.state === "loading") return null;
  const text = groups.state === "ready" ? groups.data.problem : groups.problem.message;
  if (text === null) return null;
  return (
    <Notice state="unknown" title="The state of share groups is not known">
      <p>{text}</p>
    </Notice>
  );
}

function Quiet({ groups }: { groups: Loaded<ShareGroups> }) {
  const many = groups.state === "ready" ? groups.data.count : 0;
  return (
    <Notice state="good" title="Nothing needs attention">
      <p>
        Watched: {groups.state === "ready" ? (many === 1 ? "1 share group" : `${many} share groups`) : "no share groups"}, the pipeline, and the topics that this process reads.
      </p>
    </Notice>
  );
}

function Recent({ changes }: { changes: Loaded<Changes> }) {
  if (changes.state !== "ready") return null;
  return (
    <section className="panel">
      <header>
        <h2>Latest changes</h2>
      </header>
      {changes.data.changes.length === 0 ? (
        <p className="body muted">No change has been recorded yet.</p>
      ) : (
        <div className="scroll">
          <table>
            <tbody>
              {[...changes.data.changes]
                .sort((a, b) => b.at - a.at)
                .slice(0, 12)
                .map((change) => (
                  <tr key={change.event_id}>
                    <td>
                      <Time at={change.at} />
                    </td>
                    <td>
                      <ThingLink kind={change.subject_kind === "application" ? "streams" : change.subject_kind} name={change.subject} />
                    </td>
                    <td>{words(change.event)}</td>
                    <td className="muted narrow-hide">{change.by ?? ""}</td>
                  </tr>
                ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
