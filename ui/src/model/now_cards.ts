/** What needs attention, worst first: one card for each thing, with what happened and the command that acts on it. */

import type { Change, Health, ShareGroupRow } from "../api/shapes";
import { shellQuoted } from "./format";
import { pausedSince, reasonText } from "./groups";
import type { StateName } from "./freshness";

export interface NowCard {
  key: string;
  state: StateName;
  title: string;
  /** The name in the title, which is shown as a name. */
  subject: { kind: string; name: string } | null;
  since: number | null;
  facts: string[];
  /** What changed shortly before. */
  before: Change[];
  command: string | null;
}

const ORDER: readonly StateName[] = ["stopped", "attention", "unknown", "good"];
const BEFORE_MS = 30 * 60_000;
const MOST_CHANGES = 4;

export function nowCards(known: { groups: readonly ShareGroupRow[]; changes: readonly Change[]; health: Health | null }): NowCard[] {
  const cards = [...known.groups.flatMap((group) => groupCards(group, known.changes)), ...healthCards(known.health)];
  return cards.sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || (b.since ?? 0) - (a.since ?? 0) || a.key.localeCompare(b.key));
}

function groupCards(group: ShareGroupRow, changes: readonly Change[]): NowCard[] {
  if (group.paused !== true) return [];
  const since = pausedSince(group);
  return [
    {
      key: `paused ${group.name}`,
      state: "stopped",
      title: group.tripped === true ? "paused by its breaker" : "paused",
      subject: { kind: "share_group", name: group.name },
      since,
      facts: group.pause_reasons.map((reason) => reasonText(reason) + (reason.by === null ? "" : ` (${reason.by})`)),
      before: since === null ? [] : changesBefore(changes, since, group.name),
      command: `headgate share-groups --bootstrap-server HOST:PORT --resume --group ${shellQuoted(group.name)} --reason REASON`,
    },
  ];
}

/** The last changes of others in the half hour before; those of the group itself are its own story. */
export function changesBefore(changes: readonly Change[], at: number, group: string): Change[] {
  return changes
    .filter((one) => one.at <= at && one.at > at - BEFORE_MS && !(one.subject === group && one.event !== "config_changed"))
    .sort((a, b) => b.at - a.at)
    .slice(0, MOST_CHANGES);
}

function healthCards(health: Health | null): NowCard[] {
  if (health === null) return [];
  const cards = Object.entries(health.problems).map(([section, problem]): NowCard => ({
    key: `topic ${section}`,
    state: "attention",
    title: `A topic of ${section} is not read`,
    subject: null,
    since: null,
    facts: [problem],
    before: [],
    command: "headgate doctor --config FILE",
  }));
  for (const run of health.pipeline) {
    if (run.state !== "failed") continue;
    cards.push({
      key: `pipeline ${run.query}`,
      state: "stopped",
      title: `The query ${run.query} of the pipeline failed`,
      subject: null,
      since: run.ended_at ?? run.at,
      facts: [run.problem ?? "See the log of the pipeline."],
      before: [],
      command: "headgate pipeline run --config FILE",
    });
  }
  return cards;
}
