/** What needs attention, worst first: one card for each thing, with its figures and the command that acts on it. */

import type { AttentionCounts, AttentionItem, Cause, Watched } from "../api/attention_shapes";
import type { Health, Leader } from "../api/shapes";
import { sideText } from "./change_text";
import { breakerCommand, operationCommand, tasksCommand } from "./commands";
import { lettersPath } from "./dead_letters";
import { count, duration, shellQuoted } from "./format";
import type { StateName } from "./freshness";
import { leaderMark } from "./gateways";
import { reasonText } from "./groups";
import { mapPath } from "./map_view";
import { thingPath, viewOfKind } from "./route";

export interface NowCard {
  key: string;
  state: StateName;
  title: string;
  /** The name in the title, which is shown as a name. */
  subject: { kind: string; name: string } | null;
  since: number | null;
  facts: string[];
  /** Topics of gaps, which are links. */
  gaps: AttentionItem["gaps"];
  /** By minute, oldest first; what the small picture shows, and its name. */
  points: number[];
  pointsOf: string;
  causes: Cause[];
  causesLeftOut: number;
  /** The next step, and where. */
  action: { text: string; to: string } | null;
  map: string | null;
  /** The dead letters behind it, where there are any. */
  letters: string | null;
  command: string;
}

const ORDER: readonly StateName[] = ["stopped", "attention", "unknown", "good"];

/** The server has put its items in order; what this process cannot do itself comes after those that are as bad. */
export function nowCards(known: { items: readonly AttentionItem[]; health: Health | null; leader: Leader | null; gateway: string }): NowCard[] {
  const cards = [...leaderCards(known.leader), ...known.items.map((item) => itemCard(item, known.gateway)), ...healthCards(known.health)];
  return cards
    .map((card, place) => ({ card, place }))
    .sort((a, b) => ORDER.indexOf(a.card.state) - ORDER.indexOf(b.card.state) || a.place - b.place)
    .map(({ card }) => card);
}

function itemCard(item: AttentionItem, gateway: string): NowCard {
  return {
    key: `${item.kind} ${item.subject_kind} ${item.subject}`,
    state: item.state,
    subject: { kind: item.subject_kind, name: item.subject },
    since: item.since,
    gaps: item.gaps,
    points: item.points,
    causes: item.causes,
    causesLeftOut: item.causes_left_out,
    map: mapPath({ focus: item.subject, focusKind: item.subject_kind }),
    letters: item.kind === "dead_letters" || (item.kind === "paused" && item.tripped === true) ? lettersPath(item.subject, item.since) : null,
    ...wordsOf(item, gateway),
  };
}

function wordsOf(item: AttentionItem, gateway: string): Pick<NowCard, "title" | "facts" | "pointsOf" | "action" | "command"> {
  const name = shellQuoted(item.subject);
  const view = viewOfKind(item.subject_kind);
  const open = (text: string, query: Record<string, string> = {}) => (view === null ? null : { text, to: thingPath(view, null, item.subject, query) });
  switch (item.kind) {
    case "paused":
      return {
        title: item.tripped ? "paused by its breaker" : "paused by an operator",
        facts: item.pause_reasons.map((reason) => reasonText(reason) + (reason.by === null || reason.by === "headgate" ? "" : ` (${reason.by})`)),
        pointsOf: "share of dead letters",
        action: open("Resume…", { do: "resume" }),
        command: operationCommand("resume", item.subject, gateway),
      };
    case "dead_letters":
      return {
        title: "writes more dead letters",
        facts: [`${count(item.now)} in the last hour, ${count(item.before)} in the hour before${growthText(item.now, item.before)}`],
        pointsOf: "dead letters a minute",
        action: open("Open the group"),
        command: breakerCommand(item.subject, gateway),
      };
    case "mismatch":
      return {
        title: "runs different topologies",
        facts: mismatchFacts(item),
        pointsOf: "",
        action: open("Open its members", { tab: "members" }),
        command: tasksCommand(item.subject, gateway),
      };
    case "lag":
      return {
        title: "falls behind",
        facts: [`${count(item.now)} records behind, ${count(item.before)} half an hour ago${growthText(item.now, item.before)}`],
        pointsOf: "records behind",
        action: open("Open"),
        command: `headgate tables show group_lags --config FILE --where ${shellQuoted(`group=${item.subject}`)} --columns topic,partition,lag,at`,
      };
    case "gaps":
      return {
        title: item.gap_count === 1 ? "differs from its description" : `differs from its description in ${count(item.gap_count)} uses`,
        facts: [],
        pointsOf: "",
        action: open("Open its activity", { tab: "activity" }),
        command: `headgate lineage gaps --config FILE --application ${name}`,
      };
  }
}

/** `, ↑ 38 %`; nothing where there was nothing before. */
export function growthText(now: number | null, before: number | null): string {
  const text = changeText(now, before);
  return text === null ? "" : ` (${text})`;
}

/** `↑ 38 %`; null where a share of nothing would be needed. */
export function changeText(now: number | null, before: number | null): string | null {
  if (now === null || before === null || before === 0) return null;
  const change = Math.round(((now - before) / before) * 100);
  if (change === 0) return "unchanged";
  return `${change > 0 ? "↑" : "↓"}\u00a0${count(Math.abs(change))}\u00a0%`; // one word: a line never ends within it
}

function mismatchFacts(item: AttentionItem): string[] {
  const mismatch = item.mismatch;
  if (mismatch === null) return [];
  const kinds = mismatch.topology_count ?? mismatch.topologies.length;
  const head = kinds > 1 ? `Its members run ${count(kinds)} topologies` : "Its members run different topologies";
  const sides = mismatch.topologies.map(sideText);
  return [sides.length === 0 ? `${head}.` : `${head}: ${sides.join("; ")}.`];
}

const OF_HEALTH = {
  subject: null,
  gaps: [],
  points: [],
  pointsOf: "",
  causes: [],
  causesLeftOut: 0,
  map: null,
  letters: null,
  action: { text: "Open Health", to: "/health" },
  command: "headgate doctor --config FILE",
};

/** Without a leader no breaker trips, so that the rest of the list may look better than it is. */
function leaderCards(leader: Leader | null): NowCard[] {
  const mark = leader === null ? null : leaderMark(leader);
  if (mark === null || mark.state !== "stopped") return [];
  return [{ ...OF_HEALTH, key: "leader", state: mark.state, title: mark.title, since: null, facts: [mark.text] }];
}

function healthCards(health: Health | null): NowCard[] {
  if (health === null) return [];
  const cards = Object.entries(health.problems).map(([section, problem]): NowCard => ({
    ...OF_HEALTH,
    key: `topic ${section}`,
    state: "attention",
    title: `A topic of ${section} is not read`,
    since: null,
    facts: [problem],
  }));
  for (const run of health.pipeline) {
    if (run.state !== "failed") continue;
    cards.push({
      ...OF_HEALTH,
      key: `pipeline ${run.query}`,
      state: "stopped",
      title: `The query ${run.query} of the pipeline failed`,
      since: run.ended_at ?? run.at,
      facts: [run.problem ?? "See the log of the pipeline."],
      command: "headgate pipeline run --config FILE",
    });
  }
  return cards;
}

export interface SummaryPart {
  key: string;
  state: StateName;
  text: string;
  to: string;
}

/** The line on top: what there is of each kind; dead letters also where they do not grow. */
export function summaryParts(counts: AttentionCounts): SummaryPart[] {
  const parts: SummaryPart[] = [];
  const add = (key: string, number: number | null, state: StateName, one: string, several: string, to: string) => {
    if (number !== null && number > 0) parts.push({ key, state, text: `${count(number)} ${number === 1 ? one : several}`, to });
  };
  add("paused", counts.paused, "stopped", "group paused", "groups paused", "/groups");
  add("mismatches", counts.mismatches, "attention", "mismatch", "mismatches", "/apps");
  add("lags", counts.growing_lags, "attention", "lag grows", "lags grow", "/map");
  add("gaps", counts.new_gaps, "attention", "new gap", "new gaps", "/apps");
  if (counts.dead_letters_hour !== null) {
    const change = changeText(counts.dead_letters_hour, counts.dead_letters_before);
    const grows = counts.dead_letters_hour > (counts.dead_letters_before ?? 0);
    parts.push({
      key: "dead letters",
      state: grows ? "attention" : "good",
      text: `${count(counts.dead_letters_hour)} dead letters/h${change === null ? "" : ` ${change}`}`,
      to: "/letters",
    });
  }
  return parts;
}

/** What is being watched, for the case that nothing is wrong; and what is not. */
export function watchedText(watched: Watched, hasShares: boolean): { watched: string[]; unwatched: string[] } {
  const found: string[] = [];
  const missing: string[] = [];
  const add = (number: number | null, one: string, several: string) => {
    if (number === null) missing.push(several);
    else found.push(`${count(number)} ${number === 1 ? one : several}`);
  };
  if (hasShares) add(watched.share_groups, "share group", "share groups");
  else missing.push("share groups");
  add(watched.applications, "application", "applications");
  add(watched.topics, "topic", "topics");
  add(watched.groups_with_lags, "group's lag", "lags of groups");
  return { watched: found, unwatched: missing };
}

/** `03:12`, with the day where it is not today; in the zone of the viewer. */
export function sinceText(since: number, now: number, zone?: string): string {
  const options = zone === undefined ? {} : { timeZone: zone };
  const day = (at: number) => new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", ...options }).format(at);
  const time = new Intl.DateTimeFormat("sv-SE", { timeStyle: "short", ...options }).format(since);
  const clock = day(since) === day(now) ? time : `${day(since)} ${time}`;
  return `since ${clock} (${duration(Math.max(0, now - since))})`;
}
