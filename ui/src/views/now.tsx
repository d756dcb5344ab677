/** Now: what needs attention, worst first. */

import type { Attention, Cause, NewGap } from "../api/attention_shapes";
import type { Changes, Health, Leader } from "../api/shapes";
import { useResource } from "../api/use_resource";
import { detailText } from "../model/change_text";
import { count, exact, excerpt, percent, printable, unitsKept } from "../model/format";
import type { Loaded } from "../model/loaded";
import { thingPath } from "../model/route";
import { type NowCard, nowCards, sinceText, summaryParts, watchedText } from "../model/now_cards";
import { useGateway } from "../shell/gateway";
import { Command, Link, Message, Notice, State, ThingLink, Time, useNow } from "../shell/parts";
import { Resource } from "../shell/resource";
import { Sparkline } from "./sparkline";

export function NowView({ health }: { health: Loaded<Health> }) {
  const attention = useResource<Attention>("attention");
  const changes = useResource<Changes>("changes?limit=12");
  const leading = useResource<Leader>("health/leader");
  return (
    <div className="content">
      <div className="heading">
        <h1>Now</h1>
        {attention.state === "ready" ? <Summary attention={attention.data} /> : null}
      </div>
      <Resource of={attention} what="list of what needs attention">
        {(data) => <Cards attention={data} health={health.state === "ready" ? health.data : null} leader={leading.state === "ready" ? leading.data : null} />}
      </Resource>
      <Recent changes={changes} />
    </div>
  );
}

function Summary({ attention }: { attention: Attention }) {
  const parts = summaryParts(attention.counts);
  if (parts.length === 0) return null;
  return (
    <ul className="summary" aria-label="In short">
      {parts.map((part) => (
        <li key={part.key}>
          <Link to={part.to}>
            <State of={part.state}>{part.text}</State>
          </Link>
        </li>
      ))}
    </ul>
  );
}

function Cards({ attention, health, leader }: { attention: Attention; health: Health | null; leader: Leader | null }) {
  const cards = nowCards({ items: attention.items, health, leader, gateway: useGateway() });
  const stopped = cards.filter((card) => card.state === "stopped").length;
  return (
    <>
      {/* Only the number is read aloud when something changes; the cards are read when the reader goes to them. */}
      <p className="visually-hidden" role="status">
        {cards.length === 0 ? "Nothing needs attention" : `${stopped} stopped, ${cards.length - stopped} to look at`}
      </p>
      {cards.length === 0 ? null : (
        <div className="cards">
          {cards.map((card) => (
            <Card key={card.key} card={card} />
          ))}
        </div>
      )}
      {attention.truncated ? <p className="muted">The worst {count(attention.items.length)} are listed.</p> : null}
      {cards.length === 0 ? <Quiet attention={attention} isLed={leader?.state === "led"} /> : null}
      <NotWatched attention={attention} hasCards={cards.length > 0} />
    </>
  );
}

function Card({ card }: { card: NowCard }) {
  const now = useNow();
  return (
    <article className={`card ${card.state}`}>
      <header>
        <h2>
          <State of={card.state}>{card.subject === null ? null : <ThingLink kind={card.subject.kind} name={card.subject.name} />}</State> {card.title}
        </h2>
        {card.since === null ? null : (
          <time className="muted" dateTime={new Date(card.since).toISOString()} title={exact(card.since)}>
            {sinceText(card.since, now)}
          </time>
        )}
        <span className="actions">
          {card.action === null ? null : (
            <Link to={card.action.to} className={`button${card.state === "stopped" ? " primary" : ""}`}>
              {card.action.text}
            </Link>
          )}
          {card.letters === null ? null : (
            <Link to={card.letters} className="button">
              Dead letters
            </Link>
          )}
          {card.map === null ? null : (
            <Link to={card.map} className="button">
              Map
            </Link>
          )}
        </span>
      </header>
      <div className="figures">
        <div>
          {card.facts.map((fact) => (
            <p key={fact}>{unitsKept(printable(fact))}</p>
          ))}
          <Gaps gaps={card.gaps} />
          <Before causes={card.causes} leftOut={card.causesLeftOut} />
        </div>
        <Sparkline points={card.points} label={card.pointsOf} text={card.pointsOf.startsWith("share") ? percent : count} />
      </div>
      <Command text={card.command} />
    </article>
  );
}

const GAP_WORDS: Readonly<Record<string, string>> = {
  declared_silent: "declared, but not seen",
  used_undeclared: "used, but not declared",
};

function Gaps({ gaps }: { gaps: NewGap[] }) {
  if (gaps.length === 0) return null;
  return (
    <ul>
      {gaps.map((gap, place) => (
        <li key={`${gap.topic ?? place} ${gap.direction} ${gap.kind}`}>
          <ThingLink kind="topic" name={gap.topic} />{" "}
          <span className="muted">
            {gap.direction}: {GAP_WORDS[gap.kind] ?? words(gap.kind)}
          </span>
        </li>
      ))}
    </ul>
  );
}

function Before({ causes, leftOut }: { causes: Cause[]; leftOut: number }) {
  if (causes.length === 0) return null;
  return (
    <div className="before muted">
      <span>Changed before: </span>
      <ul>
        {causes.map((cause, place) => (
          <li key={`${cause.what} ${cause.subject ?? ""} ${cause.at} ${place}`}>
            <ThingLink kind={linkKind(cause.subject_kind)} name={cause.subject} /> <Change event={cause.what} kind={cause.subject_kind} subject={cause.subject} detail={cause.detail} isLikely={cause.likelihood === "high"} between=": " />
            {cause.topic === null ? null : (
              <>
                {" "}
                (<ThingLink kind="topic" name={cause.topic} />)
              </>
            )}
            {", "}
            <Time at={cause.at} />
          </li>
        ))}
        {leftOut === 0 ? null : <li>and {count(leftOut)} more</li>}
      </ul>
    </div>
  );
}

interface ChangeProps {
  event: string;
  kind: string;
  subject: string | null;
  detail: unknown;
  /** Between what happened and what it was. */
  between: string;
  isLikely?: boolean;
}

/** What happened, and what it was. Two versions of a topology are side by side in the view of the application. */
function Change({ event, kind, subject, detail, between, isLikely = false }: ChangeProps) {
  const text = detailText(event, detail);
  const hasVersions = event === "topology_changed" && kind === "application" && subject !== null;
  return (
    <>
      <span className="what">{hasVersions ? <Link to={thingPath("apps", null, subject, { tab: "versions" })}>{words(event)}</Link> : words(event)}</span>
      {isLikely ? <span className="tag after">likely cause</span> : null}
      {text === "" ? null : (
        <span className="muted">
          {between}
          {unitsKept(text)}
        </span>
      )}
    </>
  );
}

/** Events call every application one, whatever it runs on. */
function linkKind(kind: string): string {
  return kind === "application" ? "streams" : kind;
}

export function words(event: string): string {
  return event.replaceAll("_", " ");
}

function Quiet({ attention, isLed }: { attention: Attention; isLed: boolean }) {
  const { watched } = watchedText(attention.watched, attention.problem === null);
  return (
    <Notice state="good" title="Nothing needs attention">
      <p>Watched: {[...watched, ...(isLed ? ["the worker that leads"] : []), "the pipeline and the topics that this process reads"].join(", ")}.</p>
      <p className="muted">
        A group that is paused, dead letters and lags that grow, members that run different topologies, and uses that differ from their description would be listed here.
      </p>
    </Notice>
  );
}

function NotWatched({ attention, hasCards }: { attention: Attention; hasCards: boolean }) {
  const { watched, unwatched } = watchedText(attention.watched, attention.problem === null);
  return (
    <>
      {unwatched.length === 0 ? null : (
        <Notice state="unknown" title={`Not watched: ${unwatched.join(", ")}`}>
          {attention.problem === null ? null : (
            <p>
              <Message of={attention.problem} />
            </p>
          )}
          {attention.missing.length === 0 ? null : (
            <>
              <p>
                {attention.missing.length === 1 ? "This table does not exist yet: " : "These tables do not exist yet: "}
                {attention.missing.join(", ")}. The pipeline makes them.
              </p>
              <Command text="headgate pipeline run --config FILE" />
            </>
          )}
        </Notice>
      )}
      {attention.incomplete.length === 0 ? null : (
        <Notice state="attention" title="Not all of it is watched">
          <p>These tables have too many rows to read them whole: {attention.incomplete.join(", ")}.</p>
        </Notice>
      )}
      {hasCards ? <p className="muted">Watched: {[...watched, "the pipeline"].join(", ")}{olderGaps(attention)}.</p> : null}
    </>
  );
}

function olderGaps(attention: Attention): string {
  const older = attention.counts.older_gaps ?? 0;
  return older === 0 ? "" : `; ${count(older)} ${older === 1 ? "gap is" : "gaps are"} older than a day and not listed`;
}

function Recent({ changes }: { changes: Loaded<Changes> }) {
  if (changes.state !== "ready") return null;
  return (
    <section className="panel">
      <header>
        <h2>Latest changes</h2>
      </header>
      {changes.data.changes.length === 0 ? (
        <p className="body muted">No change has been recorded in the last seven days.</p>
      ) : (
        <div className="scroll" tabIndex={0} role="region" aria-label="Latest changes">
          <table>
            <thead className="visually-hidden">
              <tr>
                <th>When</th>
                <th>What</th>
                <th>Change</th>
                <th>By</th>
              </tr>
            </thead>
            <tbody>
              {changes.data.changes.map((change) => (
                <tr key={change.event_id}>
                  <td>
                    <Time at={change.at} />
                  </td>
                  <td>
                    <ThingLink kind={linkKind(change.subject_kind)} name={change.subject} />
                  </td>
                  <td className="change">
                    <Change event={change.event} kind={change.subject_kind} subject={change.subject} detail={change.detail} between=" " />
                  </td>
                  <td className="muted narrow-hide">{excerpt(change.by ?? "", 60)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
