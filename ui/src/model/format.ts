/** Numbers, times and names as text. Names are chosen by clients: what cannot be printed is shown as an escape. */

const UNITS: readonly [string, number][] = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1_000],
];

/** `4 min`, `2 d`; the largest unit that fits. */
export function duration(ms: number): string {
  for (const [unit, size] of UNITS) {
    if (ms >= size) return `${Math.floor(ms / size)} ${unit}`;
  }
  return "0 s";
}

/** `4 min ago`, or `in 2 min`. */
export function relative(at: number, now: number): string {
  const age = now - at;
  if (age < -1_000) return `in ${duration(-age)}`;
  return age < 1_000 ? "just now" : `${duration(age)} ago`;
}

/** The exact time in the zone of the viewer. */
export function exact(at: number, zone?: string): string {
  return new Intl.DateTimeFormat("sv-SE", {
    dateStyle: "short",
    timeStyle: "medium",
    ...(zone === undefined ? {} : { timeZone: zone }),
  }).format(at);
}

export function count(value: number | null): string {
  return value === null ? "–" : new Intl.NumberFormat("en-US").format(value);
}

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value: number | null): string {
  if (value === null) return "–";
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < BYTES.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${BYTES[unit]}`;
}

/** A share as percent; 99.96 % is not shown as 100 %. */
export function percent(share: number | null): string {
  if (share === null) return "unknown";
  const value = share * 100;
  const shown = value < 100 ? Math.min(Math.round(value * 10) / 10, 99.9) : Math.round(value * 10) / 10;
  return `${shown} %`;
}

/** Control, format and direction characters could change what the rest of the line says. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

export function printable(name: string): string {
  return name.replace(UNPRINTABLE, (one) => `\\u{${(one.codePointAt(0) ?? 0).toString(16)}}`);
}

/** The beginning of a text that others wrote: of a name, a principal, a reason. */
export function excerpt(text: string, most = 300): string {
  return text.length > most ? `${printable(text.slice(0, most))}…` : printable(text);
}

/** A text of several lines, each as `printable` makes it. */
export function printableLines(text: string): string {
  return text.split("\n").map(printable).join("\n");
}

/** The same text, in which no line ends between a number and its unit. */
export function unitsKept(text: string): string {
  return text.replace(/(\d) (?=(?:%|ms|s|min|h|d|B|[KMGTP]iB)(?![\p{L}\d]))/gu, "$1\u00a0");
}

export interface MessagePart {
  text: string;
  isCode: boolean;
}

/** The parts of a server's message: what stands between backticks is code. It ends as a sentence does. */
export function messageParts(message: string): MessagePart[] {
  const ended = /[.!?…]`?$/.test(message.trimEnd()) ? message.trimEnd() : `${message.trimEnd()}.`;
  return printable(ended)
    .split(/(`[^`]+`)/)
    .filter((text) => text !== "")
    .map((text) => (/^`[^`]+`$/.test(text) ? { text: text.slice(1, -1), isCode: true } : { text, isCode: false }));
}

/** At most `most` characters: the beginning and the end, which often tell names apart. */
export function shortened(name: string, most: number): string {
  const text = [...printable(name.length > 4 * most ? `${name.slice(0, 2 * most)}${name.slice(-2 * most)}` : name)];
  if (text.length <= most) return text.join("");
  const head = Math.ceil((most - 1) * 0.6);
  return `${text.slice(0, head).join("")}…${text.slice(text.length - (most - 1 - head)).join("")}`;
}

export const KIND_WORDS: Readonly<Record<string, string>> = {
  topic: "topic",
  streams: "Streams application",
  spark: "Spark query",
  connector: "connector",
  share_group: "share group",
  consumer_group: "consumer group",
  client: "client",
  unattributed: "unattributed clients",
};

export function kindWord(kind: string): string {
  return KIND_WORDS[kind] ?? kind;
}

export function kindWords(kind: string): string {
  const word = kindWord(kind);
  if (word.endsWith("s")) return word;
  return word.endsWith("y") ? `${word.slice(0, -1)}ies` : `${word}s`;
}

/** A shell argument that means exactly this name. No argument can have a NUL: such a name is given as it is shown. */
export function shellQuoted(name: string): string {
  if (/^[A-Za-z0-9_@%+=:,./-]+$/.test(name)) return name;
  if (name.includes("\0")) return shellQuoted(printable(name));
  if (name.search(UNPRINTABLE) >= 0) {
    return `$'${name.replace(/[\\']/g, "\\$&").replace(UNPRINTABLE, shellEscape)}'`;
  }
  return `'${name.replace(/'/g, "'\\''")}'`;
}

/** In `$'...'`: control characters by their byte, all others that cannot be seen by their number. */
function shellEscape(one: string): string {
  const point = one.codePointAt(0) ?? 0;
  if (point < 0x80) return `\\x${point.toString(16).padStart(2, "0")}`;
  return point > 0xffff ? `\\U${point.toString(16).padStart(8, "0")}` : `\\u${point.toString(16).padStart(4, "0")}`;
}
