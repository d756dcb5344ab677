/** Dead letters: the episodes with their verdicts, and the letters of a group. Payloads are not shown. */

import type { DeadLetter, DeadLetters, Episode, Episodes } from "../api/dead_letter_shapes";
import { useResource } from "../api/use_resource";
import { actionText, episodeState, evidenceLines, nextCommand, replayable, verdictText } from "../model/dead_letters";
import { count, printable } from "../model/format";
import { thingPath } from "../model/route";
import { Command, Lasting, Link, Name, Notice, State, ThingLink, Time } from "../shell/parts";
import { Resource } from "../shell/resource";
import { useRoute } from "../shell/router";

const MOST_LETTERS = 200;

export function DeadLettersView() {
  const { name, query } = useRoute();
  return name === null ? <EpisodeList /> : <Letters group={name} episode={query.get("episode")} key={name} />;
}

function EpisodeList() {
  const found = useResource<Episodes>("clusters");
  return (
    <div className="content">
      <div className="heading">
        <h1>Dead letters</h1>
        {found.state === "ready" ? <span className="muted">{count(found.data.clusters.length)} episodes, the newest first</span> : null}
      </div>
      <Resource of={found} what="episodes of dead letters">
        {(data) => (
          <>
            {data.clusters.length === 0 ? <NoEpisodes /> : null}
            <div className="cards">
              {data.clusters.map((episode) => (
                <EpisodeCard key={`${episode.group} ${episode.id}`} episode={episode} />
              ))}
            </div>
            {data.truncated ? <p className="muted">There are more: open a group to see its dead letters.</p> : null}
          </>
        )}
      </Resource>
    </div>
  );
}

function NoEpisodes() {
  return (
    <Notice state="good" title="No records became dead letters">
      <p>An episode appears here one or two minutes after records of a share group became dead letters. The same on the command line:</p>
      <Command text="headgate dlq triage" />
    </Notice>
  );
}

function EpisodeCard({ episode }: { episode: Episode }) {
  const state = episodeState(episode);
  return (
    <article className={`card ${state}`}>
      <header>
        <h2>
          <State of={state}>
            <ThingLink kind="share_group" name={episode.group} />
          </State>{" "}
          {episode.verdict}
        </h2>
        <span className="muted">
          {episode.ended_at === null ? <Lasting since={episode.first_at} /> : <Time at={episode.first_at} />}
        </span>
      </header>
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
      <ul className="muted">
        {evidenceLines(episode.evidence).map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
      <p>{actionText(episode)}</p>
      <div className="actions">
        <Command text={nextCommand(episode)} />
        <Link to={thingPath("letters", null, episode.group, { episode: episode.id })} className="button">
          Show the dead letters
        </Link>
      </div>
    </article>
  );
}

function Letters({ group, episode }: { group: string; episode: string | null }) {
  const only = episode === null ? "" : `&episode=${encodeURIComponent(episode)}`;
  const found = useResource<DeadLetters>(`dead-letters?group=${encodeURIComponent(group)}${only}&limit=${MOST_LETTERS}`);
  return (
    <div className="content">
      <div className="heading">
        <h1>
          <Link to="/letters" className="crumb">
            Dead letters /
          </Link>
          <Name of={group} />
        </h1>
        {found.state === "ready" ? <span className="muted">{count(found.data.count)}{episode === null ? "" : ` of the episode ${printable(episode)}`}</span> : null}
        <span className="space" />
        <Link to={thingPath("groups", null, group)} className="button">
          Open the group
        </Link>
      </div>
      <Resource of={found} what="dead letters">
        {(data) => (data.letters.length === 0 ? <NoLetters episode={episode} /> : <LetterTable found={data} />)}
      </Resource>
    </div>
  );
}

function NoLetters({ episode }: { episode: string | null }) {
  return (
    <Notice state="unknown" title="There are no dead letters">
      <p>{episode === null ? "The group has none, or the pipeline has not read them yet." : "This episode has none any more: its records were withdrawn, or it has another id since late records came."}</p>
    </Notice>
  );
}

function LetterTable({ found }: { found: DeadLetters }) {
  return (
    <section className="panel scroll" tabIndex={0} aria-label="Dead letters">
      <table>
        <thead>
          <tr>
            <th>When</th>
            <th>Record</th>
            <th>Reason</th>
            <th className="number narrow-hide">Deliveries</th>
            <th>Can be replayed</th>
            <th className="narrow-hide">Dead letter</th>
          </tr>
        </thead>
        <tbody>
          {found.letters.map((letter) => (
            <LetterRow key={`${letter.topic_id} ${letter.partition} ${letter.offset} ${letter.dlq_offset}`} letter={letter} />
          ))}
        </tbody>
      </table>
      {found.truncated ? <p className="body muted">The newest {count(found.letters.length)} of {count(found.count)}.</p> : null}
    </section>
  );
}

function LetterRow({ letter }: { letter: DeadLetter }) {
  const { state, text } = replayable(letter);
  return (
    <tr>
      <td>
        <Time at={letter.dead_lettered_at} />
      </td>
      <td>
        <ThingLink kind="topic" name={letter.topic} />{" "}
        <span className="muted">
          partition {letter.partition}, offset {letter.offset}
        </span>
      </td>
      <td>{letter.reason === null && letter.exception === null ? <span className="muted">–</span> : printable((letter.reason ?? letter.exception ?? "").slice(0, 300))}</td>
      <td className="number narrow-hide">{count(letter.delivery_count)}</td>
      <td>
        <State of={state}>{text}</State>
      </td>
      <td className="narrow-hide">
        <ThingLink kind="topic" name={letter.dlq_topic} />{" "}
        <span className="muted">
          {letter.dlq_partition}/{letter.dlq_offset}
          {letter.copies > 1 ? `, ${count(letter.copies)} times` : ""}
        </span>
      </td>
    </tr>
  );
}
