/** Plans of replays in words: what they hold, what they leave out and why, and what a form asks for. */

import type { Plan, PlanRequest } from "../api/replay_shapes";
import { count, shellQuoted } from "./format";

/** What a form for a plan has; texts that are empty are not sent. */
export interface PlanForm {
  /** `group` or `topic`: which of both the name is. */
  by: "group" | "topic";
  name: string;
  to: "original" | "topic";
  target: string;
  where: string;
  /** As fields for a date and a time have them, in the zone of the viewer. */
  since: string;
  until: string;
  episode: string;
  acceptFanout: boolean;
  includeSuperseded: boolean;
}

export function emptyForm(group: string, episode: string): PlanForm {
  return { by: "group", name: group, to: "original", target: "", where: "", since: "", until: "", episode, acceptFanout: false, includeSuperseded: false };
}

/** What is missing or wrong in the form; null where it can be sent. */
export function formProblem(form: PlanForm): string | null {
  if (form.name.trim() === "") return form.by === "group" ? "Name the group." : "Name the dead-letter topic.";
  if (form.to === "topic" && form.target.trim() === "") return "Name the topic to write to.";
  const [since, until] = [timeOf(form.since), timeOf(form.until)];
  if (since !== null && until !== null && since >= until) return "The end must be after the beginning.";
  return null;
}

/** Epoch milliseconds; null for an empty field. */
export function timeOf(field: string): number | null {
  const at = field === "" ? NaN : new Date(field).getTime();
  return Number.isFinite(at) ? at : null;
}

export function planBody(form: PlanForm): Record<string, unknown> {
  const [since, until] = [timeOf(form.since), timeOf(form.until)];
  return {
    [form.by]: form.name.trim(),
    to: form.to === "original" ? "original" : form.target.trim(),
    ...(form.where.trim() === "" ? {} : { where: form.where.trim() }),
    ...(since === null ? {} : { since }),
    ...(until === null ? {} : { until }),
    ...(form.episode.trim() === "" ? {} : { cluster: form.episode.trim() }),
    accept_fanout: form.acceptFanout,
    include_superseded: form.includeSuperseded,
  };
}

export function planCommand(form: PlanForm): string {
  const time = (field: string) => {
    const at = timeOf(field);
    return at === null ? null : new Date(at).toISOString().replace(".000Z", "Z");
  };
  const options: [string, string | null][] = [
    [`--${form.by}`, form.name.trim() === "" ? form.by.toUpperCase() : form.name.trim()],
    ["--where", form.where.trim() || null],
    ["--since", time(form.since)],
    ["--until", time(form.until)],
    ["--cluster", form.episode.trim() || null],
    ["--to", form.to === "original" ? "original" : form.target.trim() || "TOPIC"],
  ];
  const given = options.flatMap(([option, value]) => (value === null ? [] : [`${option} ${shellQuoted(value)}`]));
  if (form.acceptFanout) given.push("--accept-fanout");
  if (form.includeSuperseded) given.push("--include-superseded");
  return `headgate dlq plan ${given.join(" ")} --config FILE`;
}

/** Whether the readers of the target are the reason of a refusal: then they can be accepted. */
export function isFanout(request: PlanRequest): boolean {
  return request.state === "REFUSED" && /--accept-fanout|^others read /m.test(request.text ?? "");
}

/** A text of the command line, without the options that a form has as fields. */
export function requestLines(text: string): string[] {
  return text.split("\n").map((line) => line.replace(/\s+$/, ""));
}

export interface LeftOut {
  key: string;
  number: number;
  what: string;
  hint: string;
}

/** What a plan leaves out, with the reason and with what can be done; only what there is. */
export function leftOut(plan: Plan): LeftOut[] {
  const all: LeftOut[] = [
    { key: "expired", number: plan.expired, what: "the source is gone, and the dead letter has no copy", hint: "Set errors.deadletterqueue.copy.record.enable for the next time." },
    { key: "superseded", number: plan.superseded, what: "the partition has a later record of the same key", hint: "Make a plan with superseded records where every record counts, such as payments." },
    { key: "already_replayed", number: plan.already_replayed, what: "an earlier plan wrote or parked it", hint: "Nothing is to be done." },
    { key: "over_max_replays", number: plan.over_max_replays, what: "replayed too often already", hint: "Repair the record; with [replay] parking_topic it is parked." },
  ];
  return all.filter((one) => one.number > 0);
}

/** The reasons of the dead letters, the most common first, with their shares of all. */
export function reasonBars(plan: Plan): { reason: string; number: number; share: number }[] {
  const rows = Object.entries(plan.reasons).sort(([a, many], [b, more]) => more - many || a.localeCompare(b));
  const all = rows.reduce((sum, [, number]) => sum + number, 0);
  return rows.map(([reason, number]) => ({ reason, number, share: all === 0 ? 0 : number / all }));
}

export function holdsText(plan: Plan): string {
  const records = `${count(plan.records)} ${plan.records === 1 ? "record" : "records"} to be replayed`;
  return plan.to_park === 0 ? records : `${records}, ${count(plan.to_park)} to be parked`;
}

export function replayCommand(plan: string, rate: number | null, timestamp: "original" | "now", isDryRun: boolean): string {
  const options = [
    ...(rate === null ? [] : [`--rate ${rate}`]),
    ...(timestamp === "now" ? ["--timestamp now"] : []),
    ...(isDryRun ? ["--dry-run"] : []),
    "--config FILE --command-config OPERATOR.properties",
  ];
  return `headgate dlq replay ${shellQuoted(plan)} ${options.join(" ")}`;
}
