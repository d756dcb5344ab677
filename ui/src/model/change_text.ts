/**
 * What a change was, in one short line: the figures of a trip, the reason of a pause, a config before and after.
 *
 * `detail` is whatever the writer of the event put there, also one of another release: what is not as expected is left
 * out, and every name in it is printable and short.
 */

import { count, duration, percent, shortened } from "./format";

const LONGEST_NAME = 60;
const LONGEST_TEXT = 200;
const MOST_LISTED = 3;

type Detail = Readonly<Record<string, unknown>>;

/** Empty where the detail says nothing that is known. */
export function detailText(event: string, detail: unknown): string {
  if (!isObject(detail)) return "";
  const text = textOf(event, detail);
  const letters = [...text];
  return letters.length > LONGEST_TEXT ? `${letters.slice(0, LONGEST_TEXT - 1).join("")}…` : text;
}

function textOf(event: string, detail: Detail): string {
  switch (event) {
    case "tripped":
      return tripText(detail);
    case "paused":
      return sentence(detail["reason"]);
    case "resumed":
      return detail["reason"] === "auto-resume" ? "by itself, after the time that is set" : sentence(detail["reason"]);
    case "config_changed":
      return configText(detail);
    case "topology_added":
      return usesText(detail);
    case "topology_changed":
      return elementsText(detail);
    case "topology_removed":
      return "its description was deleted";
    case "topology_mismatch":
      return mismatchText(detail);
    case "write_timeout":
    case "late_write":
    case "dead_letter_withdrawn":
      return recordsText(event, detail);
    case "isolation_conflict":
      return joined(" is the topic of ", [name(detail["dlq_topic"]), name(detail["registered_by"])], 2);
    case "operation":
      return operationText(detail);
    case "joined":
    case "left":
    case "started":
    case "started_again":
      return joined(", ", [prefixed("as ", name(detail["principal"])), prefixed("on ", name(detail["host"]))]);
    case "grew":
      return isNumber(detail["lag_before"]) && isNumber(detail["lag"]) ? `${count(detail["lag_before"])} → ${count(detail["lag"])} records behind` : "";
    default:
      return "";
  }
}

function tripText(detail: Detail): string {
  const { delivered, dlq_written: dead, threshold_percent: threshold, window_ms: window } = detail;
  if (!isNumber(delivered) || !isNumber(dead)) return "";
  const all = delivered + dead;
  const during = isNumber(window) ? ` in ${duration(window)}` : "";
  return `${count(dead)} of ${count(all)} records (${percent(all === 0 ? 0 : dead / all)})${during}${isNumber(threshold) ? `, threshold ${threshold} %` : ""}`;
}

const BREAKER = "share.group.dlq.circuit.breaker";
const onOrOff = (value: string) => (value === "true" ? "on" : value === "false" ? "off" : value);
const ofMs = (value: string) => (/^\d{1,15}$/.test(value) ? secondsText(Number(value)) : value);
const plain = (value: string) => value;
/** The words that the page has for configs, and for one that is not set; others are named as they are. */
const CONFIGS: ReadonlyMap<string, { word: string; text: (value: string) => string; unset?: string }> = new Map([
  [`${BREAKER}.enable`, { word: "breaker", text: onOrOff }],
  [`${BREAKER}.threshold.percent`, { word: "threshold", text: (value: string) => `${value} %` }],
  [`${BREAKER}.window.ms`, { word: "window", text: ofMs }],
  [`${BREAKER}.min.messages`, { word: "least records", text: plain }],
  [`${BREAKER}.auto.resume.enable`, { word: "resumes by itself", text: onOrOff }],
  [`${BREAKER}.auto.resume.ms`, { word: "resumes after", text: ofMs }],
  ["errors.deadletterqueue.topic.name", { word: "dead-letter topic", text: plain, unset: "none" }],
]);

function configText(detail: Detail): string {
  const before = isObject(detail["before"]) ? detail["before"] : {};
  const changes = isObject(detail["changes"]) ? Object.entries(detail["changes"]) : [];
  return listed(
    changes.map(([config, value]) => {
      const { word, text, unset = "default" } = CONFIGS.get(config) ?? { word: shortened(config, LONGEST_NAME), text: plain };
      const shown = (one: unknown) => (typeof one === "string" ? shortened(text(one), LONGEST_NAME) : unset);
      const old = Object.hasOwn(before, config) ? ` ${shown(before[config])}` : "";
      return `${word}${old} → ${shown(value)}`;
    }),
    changes.length,
  );
}

function secondsText(ms: number): string {
  return ms % 1_000 === 0 && ms < 120_000 ? `${ms / 1_000} s` : ms % 60_000 === 0 ? duration(ms) : `${count(ms)} ms`;
}

interface Element {
  element: string;
  name: string;
  change: string;
}

function elementsOf(detail: Detail): Element[] {
  return objects(detail["changes"]).flatMap(({ element, name: named, change }) =>
    typeof element === "string" && typeof named === "string" && typeof change === "string" ? [{ element, name: named, change }] : [],
  );
}

/** What is read and written comes first, as the server sorts by kind. */
function elementsText(detail: Detail): string {
  const elements = elementsOf(detail);
  if (elements.length === 0) return countsText(detail);
  const all = countsOf(detail).reduce((sum, [, number]) => sum + number, 0);
  return listed(
    elements.map((one) => `${shortened(one.change, 20)} ${shortened(one.element, 20)} ${shortened(one.name, LONGEST_NAME)}`),
    Math.max(all, elements.length),
  );
}

function countsOf(detail: Detail): [string, number][] {
  if (!isObject(detail["counts"])) return [];
  return Object.entries(detail["counts"]).filter((entry): entry is [string, number] => isNumber(entry[1]));
}

/** `2 added, 1 removed`. */
function countsText(detail: Detail): string {
  return countsOf(detail)
    .slice(0, MOST_LISTED)
    .map(([change, number]) => `${count(number)} ${shortened(change, 20)}`)
    .join(", ");
}

function usesText(detail: Detail): string {
  const elements = elementsOf(detail);
  const names = (element: string) => {
    const found = elements.filter((one) => one.element === element).map((one) => shortened(one.name, LONGEST_NAME));
    return found.length === 0 ? "" : listed(found, found.length);
  };
  return joined("; ", [prefixed("reads ", names("input")), prefixed("writes ", names("output"))]) || countsText(detail);
}

/** `1 member on 10.0.0.21; 2 members, refused by the broker, on 10.0.0.22, 10.0.0.23`. */
function mismatchText(detail: Detail): string {
  if (detail["state"] === "ended") return "all members run the same again";
  const sides = objects(detail["topologies"]).map((side) => ({
    member_count: isNumber(side["member_count"]) ? side["member_count"] : 0,
    refused: side["refused"] === true,
    members: objects(side["members"]).map((one) => ({ host: typeof one["host"] === "string" ? shortened(one["host"], LONGEST_NAME) : null })),
  }));
  return sides.map(sideText).join("; ");
}

export interface Side {
  member_count: number;
  refused: boolean;
  members: readonly { host: string | null }[];
}

/** Who runs one of several topologies, and where. */
export function sideText(side: Side): string {
  const members = side.member_count === 1 ? "1 member" : `${count(side.member_count)} members`;
  return `${members}${side.refused ? ", refused by the broker," : ""} on ${hostsOf(side.members)}`;
}

export function hostsOf(found: readonly { host: string | null }[]): string {
  const hosts = [...new Set(found.flatMap((one) => (one.host === null ? [] : [one.host])))];
  if (hosts.length === 0) return "unknown hosts";
  return hosts.length <= MOST_LISTED ? hosts.join(", ") : `${hosts.slice(0, MOST_LISTED).join(", ")} and ${hosts.length - MOST_LISTED} more`;
}

function recordsText(event: string, detail: Detail): string {
  const ranges = Array.isArray(detail["offsets"]) ? (detail["offsets"] as unknown[]) : [];
  let records = 0;
  for (const range of ranges) {
    const [first, last] = Array.isArray(range) ? (range as unknown[]) : [];
    if (isNumber(first) && isNumber(last) && last >= first) records += last - first + 1;
  }
  if (records === 0) return "";
  const noun = `${event === "write_timeout" ? "record" : "dead letter"}${records === 1 ? "" : "s"}`;
  const place = joined(", ", [name(detail["topic"]), isNumber(detail["partition"]) ? `partition ${detail["partition"]}` : ""]);
  const text = `${count(records)} ${noun}${prefixed(" of ", place)}`;
  if (event !== "write_timeout") return text;
  const end = detail["spooled"] === true ? "wait in the spool" : "archived without a dead letter";
  return joined(": ", [`${text}, ${end}`, sentence(detail["reason"])]);
}

function operationText(detail: Detail): string {
  const operation = name(detail["operation"]).replaceAll("_", " ");
  if (operation === "") return "";
  const outcome = detail["outcome"] === "done" ? "" : name(detail["outcome"]);
  const what = joined(", ", [operation, prefixed("plan ", name(detail["plan"])), outcome]);
  return joined(": ", [what, sentence(detail["error"]) || sentence(detail["reason"])]);
}

/** The first of them, and how many more there are. */
function listed(texts: readonly string[], all: number): string {
  const rest = all - Math.min(texts.length, MOST_LISTED);
  return texts.slice(0, MOST_LISTED).join(", ") + (rest > 0 && texts.length > 0 ? `, and ${count(rest)} more` : "");
}

/** Those that are not empty; nothing if there are fewer than `least`. */
function joined(between: string, texts: readonly string[], least = 1): string {
  const found = texts.filter((text) => text !== "");
  return found.length < least ? "" : found.join(between);
}

function prefixed(prefix: string, text: string): string {
  return text === "" ? "" : prefix + text;
}

function name(value: unknown): string {
  return typeof value === "string" ? shortened(value, LONGEST_NAME) : "";
}

/** A text that people wrote: its beginning says more than its end. */
function sentence(value: unknown): string {
  return typeof value === "string" ? shortened(value.slice(0, 4 * LONGEST_TEXT), LONGEST_TEXT) : "";
}

function objects(value: unknown): Detail[] {
  return Array.isArray(value) ? (value as unknown[]).filter(isObject) : [];
}

function isObject(value: unknown): value is Detail {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}
