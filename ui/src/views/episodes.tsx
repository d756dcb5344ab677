/** Episodes of dead letters: what happened, with the numbers behind it, and the next step. */

import type { Episode } from "../api/dead_letter_shapes";
import { actionText, episodeState, evidenceLines, letterPointsText, nextCommand, nextStep, verdictText } from "../model/dead_letters";
import { count, unitsKept } from "../model/format";
import { thingPath } from "../model/route";
import { useGateway } from "../shell/gateway";
import { Command, Lasting, Link, State, ThingLink, Time } from "../shell/parts";
import { Sparkline } from "./sparkline";

/** `isAlone`: on the page of its group and its dead letters, which it need not lead to. `isFirst`: the one to act on. */
interface EpisodeCardProps {
  episode: Episode;
  mayPlan: boolean;
  isFirst: boolean;
  isPaused: boolean;
  isAlone?: boolean;
}

export function EpisodeCard({ episode, mayPlan, isFirst, isPaused, isAlone = false }: EpisodeCardProps) {
  const gateway = useGateway();
  const state = episodeState(episode);
  const step = nextStep(episode, mayPlan);
  return (
    <article className={`card ${state}`} aria-label={`Episode ${episode.id}`}>
      <header>
        <h2>
          <State of={state}>
            <ThingLink kind="share_group" name={episode.group} />
          </State>{" "}
          {episode.verdict}
        </h2>
        <span className="muted">{episode.ended_at === null ? <Lasting since={episode.first_at} /> : <Time at={episode.first_at} />}</span>
      </header>
      <div className="figures">
        <div>
          <p>
            {verdictText(episode)}. {count(episode.count)} {episode.count === 1 ? "dead letter" : "dead letters"} of{" "}
            {episode.topics.length === 0 ? "topics that are not visible" : null}
            {episode.topics.map((topic, place) => (
              <span key={topic}>
                {place === 0 ? "" : ", "}
                <ThingLink kind="topic" name={topic} />
              </span>
            ))}
            .
          </p>
          <ul className="muted evidence">
            {evidenceLines(episode.evidence).map((line) => (
              <li key={line}>{unitsKept(line)}</li>
            ))}
          </ul>
          <p>{actionText(episode)}</p>
        </div>
        <Sparkline points={episode.points} label={letterPointsText(episode)} text={count} />
      </div>
      <div className="actions">
        {step === null ? null : (
          <Link to={step.to} className={isFirst ? "button primary" : "button"}>
            {step.text}
          </Link>
        )}
        {isAlone ? null : (
          <Link to={thingPath("letters", null, episode.group, { episode: episode.id })} className="button">
            Show the dead letters
          </Link>
        )}
        <Command text={nextCommand(episode, gateway, isPaused)} />
      </div>
    </article>
  );
}

/** All episodes of a group as rows; the one that is shown is marked. */
export function EpisodeTable({ episodes, shown }: { episodes: readonly Episode[]; shown: string | null }) {
  return (
    <section className="panel">
      <header>
        <h2>Episodes</h2>
        <span className="muted">{episodes.length === 1 ? "1" : `${count(episodes.length)}, the newest first`}</span>
      </header>
      <div className="scroll" tabIndex={0} role="region" aria-label="Episodes">
        <table>
          <thead>
            <tr>
              <th>Began</th>
              <th>Verdict</th>
              <th className="number">Dead letters</th>
              <th className="narrow-hide">By time</th>
              <th>State</th>
            </tr>
          </thead>
          <tbody>
            {episodes.map((episode) => (
              <tr key={episode.id} aria-current={episode.id === shown ? "true" : undefined}>
                <td>
                  <Link to={thingPath("letters", null, episode.group, { episode: episode.id })}>
                    <Time at={episode.first_at} />
                  </Link>
                </td>
                <td>
                  <State of={episodeState(episode)}>{episode.verdict}</State>
                </td>
                <td className="number">{count(episode.count)}</td>
                <td className="narrow-hide strip">
                  {episode.points.length === 0 ? <span className="muted">not counted</span> : <Sparkline points={episode.points} label={letterPointsText(episode)} text={count} />}
                </td>
                <td>{episode.ended_at === null ? <Lasting since={episode.first_at} /> : <span className="muted">over</span>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
