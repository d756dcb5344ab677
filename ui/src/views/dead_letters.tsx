/** Dead letters: the episodes with their verdicts, the letters of a group, and the plans and replays that put them back. */

import type { DeadLetters, Episode, Episodes } from "../api/dead_letter_shapes";
import type { Plans } from "../api/replay_shapes";
import { usePausedGroups } from "../api/use_paused_groups";
import { useResource } from "../api/use_resource";
import { episodeAt, newestOpen, planPath } from "../model/dead_letters";
import { nodeKey } from "../model/estate_graph";
import { count, exact, printable } from "../model/format";
import { thingPath } from "../model/route";
import { Command, Crumb, Link, Name, Notice } from "../shell/parts";
import { Resource } from "../shell/resource";
import { useRoute } from "../shell/router";
import { EpisodeCard, EpisodeTable } from "./episodes";
import { LetterTable } from "./letter_table";
import { PlanFormView } from "./plan_form";
import { PlanTable } from "./plan_table";
import { PlanView } from "./plan_view";

const MOST_LETTERS = 200;

export function DeadLettersView() {
  const { name, query } = useRoute();
  if (name === null) return <EpisodeList />;
  const plan = query.get("plan");
  if (plan !== null) return <PlanView group={name} id={plan} key={plan} />;
  if (query.has("new")) return <PlanFormView group={name} episode={query.get("episode") ?? ""} request={query.get("request")} key={name} />;
  return <Letters group={name} episode={query.get("episode")} at={timeOf(query.get("at"))} key={name} />;
}

function timeOf(text: string | null): number | null {
  const at = Number(text);
  return text !== null && Number.isSafeInteger(at) && at > 0 ? at : null;
}

function EpisodeList() {
  const found = useResource<Episodes>("clusters");
  const plans = useResource<Plans>("plans?limit=20");
  const mayPlan = plans.state === "ready";
  const paused = usePausedGroups();
  return (
    <div className="content">
      <div className="heading">
        <h1>Dead letters</h1>
        {found.state === "ready" && found.data.clusters.length > 0 ? (
          <span className="muted">
            {count(found.data.clusters.length)} {found.data.clusters.length === 1 ? "episode" : "episodes, the newest first"}
          </span>
        ) : null}
      </div>
      <Resource of={found} what="episodes of dead letters">
        {(data) => (
          <>
            {data.clusters.length === 0 ? <NoEpisodes /> : null}
            {data.clusters.length === 0 ? null : (
              <div className="cards">
                {data.clusters.map((episode) => (
                  <EpisodeCard
                    key={`${episode.group} ${episode.id}`}
                    episode={episode}
                    mayPlan={mayPlan}
                    isFirst={episode === newestOpen(data.clusters)}
                    isPaused={paused.has(nodeKey("share_group", episode.group))}
                  />
                ))}
              </div>
            )}
            {data.truncated ? <p className="muted">There are more: open a group to see its dead letters.</p> : null}
          </>
        )}
      </Resource>
      {plans.state === "ready" && plans.data.plans.length > 0 ? <PlanTable plans={plans.data} hasGroup /> : null}
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

/** `at`: a link asked for what lasted at that time, such as that of a trip. */
function Letters({ group, episode, at }: { group: string; episode: string | null; at: number | null }) {
  const name = encodeURIComponent(group);
  const episodes = useResource<Episodes>(`clusters?group=${name}&limit=50`);
  const plans = useResource<Plans>(`plans?group=${name}&limit=20`);
  const known = episodes.state === "ready" ? episodes.data.clusters : [];
  const shown = episode !== null ? (known.find((one) => one.id === episode) ?? null) : at === null ? null : episodeAt(known, at);
  const isWaiting = at !== null && episode === null && episodes.state === "loading";
  const only = episode ?? shown?.id ?? null;
  const filter = only === null ? "" : `&episode=${encodeURIComponent(only)}`;
  const found = useResource<DeadLetters>(isWaiting ? null : `dead-letters?group=${name}${filter}&limit=${MOST_LETTERS}`);
  const mayPlan = plans.state === "ready";
  const isPaused = usePausedGroups().has(nodeKey("share_group", group));
  return (
    <div className="content">
      <div className="heading">
        <h1>
          <Crumb to="/letters">Dead letters</Crumb>
          <Name of={group} />
        </h1>
        {found.state === "ready" ? <Counted number={found.data.count} episode={only} /> : null}
        <span className="space" />
        {mayPlan ? (
          <Link to={planPath(group, only)} className="button">
            Plan a replay…
          </Link>
        ) : null}
        <Link to={thingPath("groups", null, group)} className="button">
          Open the group
        </Link>
      </div>
      {at !== null && episode === null && episodes.state === "ready" && shown === null ? <NoEpisodeThen at={at} /> : null}
      {shown === null ? null : <EpisodeCard episode={shown} mayPlan={mayPlan} isFirst isPaused={isPaused} isAlone />}
      {known.length > (shown === null ? 0 : 1) ? <EpisodeTable episodes={known} shown={only} /> : null}
      {plans.state === "ready" && plans.data.plans.length > 0 ? <PlanTable plans={plans.data} /> : null}
      <Resource of={found} what="dead letters">
        {(data) => (data.letters.length === 0 ? <NoLetters episode={only} group={group} hasOthers={known.length > 0} /> : <LetterTable found={data} />)}
      </Resource>
    </div>
  );
}

function Counted({ number, episode }: { number: number; episode: Episode["id"] | null }) {
  return (
    <span className="muted">
      {number === 1 ? "1 dead letter" : `${count(number)} dead letters`}
      {episode === null ? "" : ` of the episode ${printable(episode)}`}
    </span>
  );
}

function NoEpisodeThen({ at }: { at: number }) {
  return (
    <Notice state="unknown" title={`No episode is known at ${exact(at)}`}>
      <p>The pipeline finds it one or two minutes after the records were rejected. Until then all dead letters of the group are listed.</p>
      <Command text="headgate pipeline run --config FILE" />
    </Notice>
  );
}

function NoLetters({ episode, group, hasOthers }: { episode: string | null; group: string; hasOthers: boolean }) {
  return (
    <Notice state="unknown" title="There are no dead letters">
      <p>{episode === null ? "The group has none, or the pipeline has not read them yet." : "This episode has none any more: its records were withdrawn, or it has another id since late records came."}</p>
      {episode !== null && hasOthers ? (
        <p>
          <Link to={thingPath("letters", null, group)}>All dead letters of the group</Link>
        </p>
      ) : null}
    </Notice>
  );
}
