/** What needs somebody, worst first: one card for each thing, with what happened and the command that acts on it. */

import type { Change, Health, ShareGroup } from "../api/shapes";
import { count, percent, shellQuoted } from "./format";
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

export function nowCards(known: { groups: readonly ShareGroup[]; changes: readonly Change[]; health: Health | null }): NowCard[] {
  const cards = [...known.groups.flatMap((group) => groupCards(group, known.changes)), ...healthCards(known.health)];
  return cards.sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || (b.since ?? 0) - (a.since ?? 0) || a.key.localeCompare(b.key));
}

function groupCards(group: ShareGroup, changes: readonly Change[]): NowCard[] {
  const subject = { kind: "share_group", name: group.group };
  if (group.paused) {
    const since = group.pause_reasons.length === 0 ? null : Math.min(...group.pause_reasons.map((reason) => reason.since));
    return [
      {
        key: `paused ${group.group}`,
        state: "stopped",
        title: group.pause_reasons.some((reason) => reason.code.includes("TRIPPED")) ? "paused by its breaker" : "paused",
        subject,
        since,
        facts: [windowText(group), ...group.pause_reasons.map((reason) => (reason.by == null ? reason.text : `${reason.text} (${reason.by})`))],
        before: since === null ? [] : changesBefore(changes, since, group.group),
        command: `headgate share-groups --bootstrap-server HOST:PORT --resume --group ${shellQuoted(group.group)} --reason REASON`,
      },
    ];
  }
  if (group.spooled > 0) {
    return [
      {
        key: `spooled ${group.group}`,
        state: "attention",
        title: "has dead letters that are not written yet",
        subject,
        since: group.oldest_spooled_at,
        facts: [`${count(group.spooled)} dead letters wait for ${group.dlq_topic ?? "their topic"}`],
        before: [],
        command: `headgate share-groups --bootstrap-server HOST:PORT --describe --group ${shellQuoted(group.group)} --circuit-breaker`,
      },
    ];
  }
  if (group.enabled && group.dlq_rate !== null && group.delivered >= group.min_messages && group.dlq_rate * 100 >= group.threshold_percent / 2) {
    return [
      {
        key: `rate ${group.group}`,
        state: "attention",
        title: "dead-letters many records",
        subject,
        since: null,
        facts: [windowText(group)],
        before: [],
        command: `headgate share-groups --bootstrap-server HOST:PORT --describe --group ${shellQuoted(group.group)} --circuit-breaker`,
      },
    ];
  }
  return [];
}

export function windowText(group: ShareGroup): string {
  return (
    `${count(group.dlq_written)} of ${count(group.delivered)} records (${percent(group.dlq_rate)}) dead-lettered in ` +
    `${group.window_ms / 1000} s, threshold ${group.threshold_percent} %`
  );
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
