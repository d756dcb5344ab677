/** Verdicts, evidence and next steps of episodes of dead letters, in words. */

import type { DeadLetter, Episode, Evidence, FailureRate, LetterCounts, Verdict } from "../api/dead_letter_shapes";
import { breakerCommand, operationCommand } from "./commands";
import { count, duration, printable, relative, shellQuoted } from "./format";
import type { StateName } from "./freshness";
import { thingPath } from "./route";

const VERDICTS: Readonly<Record<Verdict, string>> = {
  outage: "What the group calls failed, for most members at once",
  content: "Some records fail, all others work",
  member: "One member fails, the others do not",
  poison: "Single records fail, whatever is tried",
  mixed: "Several causes, or none that is clear",
  insufficient: "Too few attempts for a verdict",
};

const ACTIONS: Readonly<Record<string, string>> = {
  fix_first: "Correct the producer or the consumer of these records first, then replay them.",
  quarantine: "Look at these records; do not replay them as they are.",
  replay_now: "The downstream works again: replay the records.",
  restart_member: "Restart or remove this member, then replay the records.",
  resume_and_watch: "When the downstream works, resume the group, watch it, and look here again.",
};

export function verdictText(episode: Episode): string {
  const words = VERDICTS[episode.verdict];
  const size = episode.feature === null ? null : sizeText(episode.feature);
  if (size !== null) return `${words}: those of ${size}`;
  const culprit = episode.feature ?? episode.member;
  return culprit === null ? words : `${words}: ${printable(culprit)}`;
}

/** `size_band=5`, the size as a power of two, is 32 to 63 bytes; null for any other feature. */
function sizeText(feature: string): string | null {
  const found = /^size_band=(\d{1,2})$/.exec(feature);
  if (found === null) return null;
  const band = Number(found[1]);
  if (band === 0) return "at most 1 byte";
  if (band < 10) return `${count(2 ** band)} to ${count(2 ** (band + 1) - 1)} bytes`;
  const unit = Math.min(Math.floor(band / 10), 3);
  const least = 2 ** (band - 10 * unit);
  return `${count(least)} to ${count(2 * least)} ${["", "KiB", "MiB", "GiB"][unit] ?? ""}`;
}

/** The one to act on first; null where all are over. */
export function newestOpen(episodes: readonly Episode[]): Episode | null {
  const open = episodes.filter((one) => one.ended_at === null);
  return open.reduce<Episode | null>((newest, one) => (newest === null || one.first_at > newest.first_at ? one : newest), null);
}

export function actionText(episode: Episode): string {
  return ACTIONS[episode.action] ?? episode.action.replaceAll("_", " ");
}

/** An episode that lasts needs attention; one that is over has records to put back. */
export function episodeState(episode: Episode): StateName {
  if (episode.verdict === "insufficient") return "unknown";
  return episode.ended_at === null ? "stopped" : "attention";
}

/** A group that is not paused has nothing to resume: its breaker is looked at. */
export function nextCommand(episode: Episode, gateway: string, isPaused: boolean): string {
  const group = shellQuoted(episode.group);
  switch (episode.action) {
    case "replay_now":
    case "fix_first":
    case "restart_member":
      return `headgate dlq plan --group ${group} --cluster ${episode.id} --to original --config FILE`;
    case "quarantine":
      return `headgate tables show dead_letters --where ${shellQuoted(`cluster=${episode.id}`)} --columns topic,partition,offset,reason,key_hash --config FILE`;
    default:
      return isPaused ? operationCommand("resume", episode.group, gateway) : breakerCommand(episode.group, gateway);
  }
}

/** What the page can do next; null where only the command can. */
export function nextStep(episode: Episode, mayPlan: boolean): { text: string; to: string } | null {
  switch (episode.action) {
    case "replay_now":
    case "fix_first":
    case "restart_member":
      return mayPlan ? { text: "Plan a replay…", to: planPath(episode.group, episode.id) } : null;
    case "quarantine":
      return null;
    default:
      return { text: "Open the group", to: thingPath("groups", null, episode.group) };
  }
}

/** The form for a plan, of one episode or of all dead letters of the group. */
export function planPath(group: string, episode: string | null): string {
  return thingPath("letters", null, group, { new: "plan", ...(episode === null ? {} : { episode }) });
}

const AROUND_MS = 10 * 60_000;

/** The episode that lasted at a time, such as that of a trip: the one that began last before it. */
export function episodeAt(episodes: readonly Episode[], at: number): Episode | null {
  const lasted = episodes.filter((one) => one.first_at - AROUND_MS <= at && at <= (one.ended_at ?? one.last_at) + AROUND_MS);
  return lasted.sort((a, b) => Math.abs(a.first_at - at) - Math.abs(b.first_at - at))[0] ?? null;
}

/** The dead letters behind a trip or a pause of a group. */
export function lettersPath(group: string, at: number | null): string {
  return thingPath("letters", null, group, at === null ? {} : { at: String(at) });
}

export function letterPointsText(episode: Episode): string {
  const step = episode.points_ms ?? 60_000;
  return step <= 60_000 ? "dead letters a minute" : `dead letters in ${duration(step)}`;
}

export function rateText(rate: FailureRate): string {
  const bound = (share: number) => Math.round(share * 100);
  return `${count(rate.failed)} of ${count(rate.attempts)} (${bound(rate.lower)} to ${bound(rate.upper)} %)`;
}

/** 0.1, 1.5, 100, and 0 without decimals. */
const TWO_DIGITS = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 2 });

export function evidenceLines(evidence: Evidence | null): string[] {
  if (evidence === null) return [];
  const lines: string[] = [];
  if (evidence.attempts !== undefined) {
    const usual = evidence.base_rate === undefined ? "" : `, usually ${TWO_DIGITS.format(evidence.base_rate * 100)} %`;
    lines.push(`${rateText(evidence.attempts)} attempts failed${usual}`);
  }
  if (evidence.worst_bucket !== undefined) lines.push(`the worst five seconds: ${rateText(evidence.worst_bucket)}`);
  const member = evidence.worst_members?.[0];
  if (member !== undefined) {
    const head = evidence.members === 1 ? "the only member" : `worst of ${count(evidence.members ?? null)} members`;
    lines.push(`${head} ${printable(member.member)}: ${rateText(member)}${othersText(evidence.other_members)}`);
  }
  const feature = evidence.worst_features?.[0];
  if (feature !== undefined) {
    lines.push(`most failures with ${sizeText(feature.feature) ?? printable(feature.feature)}: ${rateText(feature)}${othersText(evidence.other_records)}`);
  }
  if (evidence.paused_ms) lines.push(`paused for ${duration(evidence.paused_ms)} of it, which is no sign of recovery`);
  return lines;
}

/** Empty where there are no others: their share of failures would be between 0 and 100 %. */
function othersText(others: FailureRate | undefined): string {
  return others === undefined || others.attempts === 0 ? "" : `; all others ${rateText(others)}`;
}

const EXPIRES_SOON_MS = 24 * 3_600_000;

/** Whether the record can still be had: from its topic, or from the copy in the dead letter; and until when, if that is soon. */
export function replayable(letter: DeadLetter, now: number): { state: StateName; text: string } {
  const isFound = letter.source_state === "found";
  if (!isFound && !letter.copied) {
    return letter.source_state === "unknown" || letter.source_state === "unreadable"
      ? { state: "unknown", text: letter.source_state }
      : { state: "attention", text: `gone: ${letter.source_state}` };
  }
  const place = isFound ? "at its source" : "copy in the dead letter";
  const ends = [isFound ? letter.source_expires_at : 0, letter.copied ? letter.letter_expires_at : 0];
  const last = ends.includes(null) ? Infinity : Math.max(...ends.map(Number));
  if (last <= now) return { state: "attention", text: "gone: expired" };
  if (last <= now + EXPIRES_SOON_MS) return { state: "attention", text: `${place}, expires ${relative(last, now)}` };
  return { state: "good", text: place };
}

/** The warning before records expire; null where none does within a day. */
export function expiryText(records: LetterCounts, now: number): string | null {
  if (records.expire_soon === 0 || records.next_expiry === null) return null;
  const first = relative(records.next_expiry, now);
  return records.expire_soon === 1
    ? `1 record expires within 24 hours, ${first}`
    : `${count(records.expire_soon)} records expire within 24 hours, the first ${first}`;
}
