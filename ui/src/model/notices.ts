/** Notices of `/api/v1/events`: how the stream is cut into events, and which resources a notice makes old. */

export interface ServerEvent {
  id: string | null;
  kind: string;
  data: string;
}

/** Cuts a stream into events; what is not complete waits for the next piece. */
export class EventParser {
  private rest = "";
  private id: string | null = null;

  /** The id of the last event, also of one without data; for connecting again. */
  get lastId(): string | null {
    return this.id;
  }

  push(text: string): ServerEvent[] {
    const blocks = (this.rest + text).replaceAll("\r\n", "\n").split("\n\n");
    this.rest = blocks.pop() ?? "";
    return blocks.flatMap((block) => this.parsed(block));
  }

  private parsed(block: string): ServerEvent[] {
    let kind = "message";
    const data: string[] = [];
    for (const line of block.split("\n")) {
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") kind = value;
      else if (field === "data") data.push(value);
      else if (field === "id") this.id = value;
    }
    return data.length === 0 ? [] : [{ id: this.id, kind, data: data.join("\n") }];
  }
}

/** What an event says, as far as the page uses it. */
export type LiveNotice =
  | { kind: "share_groups"; group: string | null }
  | { kind: "tables"; tables: string[] }
  /** The stream broke off: from now on resources are asked for at intervals. */
  | { kind: "lost" };

/** The notices of one event; what is not known, or not of the expected form, is none. */
export function noticesOf(event: ServerEvent): LiveNotice[] {
  let data: unknown;
  try {
    data = JSON.parse(event.data);
  } catch {
    return [];
  }
  if (typeof data !== "object" || data === null) return [];
  switch (event.kind) {
    case "snapshot":
      return [{ kind: "share_groups", group: null }, ...tables(data)];
    case "problem":
      return [{ kind: "share_groups", group: null }];
    case "share_group":
      return [{ kind: "share_groups", group: "name" in data && typeof data.name === "string" ? data.name : null }];
    case "tables":
      return tables(data);
    default:
      return [];
  }
}

function tables(data: object): LiveNotice[] {
  if (!("tables" in data) || typeof data.tables !== "object" || data.tables === null) return [];
  const names = Object.keys(data.tables);
  return names.length === 0 ? [] : [{ kind: "tables", tables: names }];
}

const GROUP_TABLES = ["breaker_events", "dlq_rates"];
/** Tables that no map, list or search is made of; some of them change with every run of the pipeline. */
const OTHER_TABLES = [...GROUP_TABLES, "activity_intervals", "changes", "dead_letter_clusters", "dead_letters", "dispositions", "pipeline_runs", "rejected_facts"];
/** The tables that are shown by a resource of the same kind alone. */
const LETTER_TABLES: Readonly<Record<string, readonly string[]>> = { clusters: ["dead_letter_clusters", "dlq_rates"], "dead-letters": ["dead_letters"] };
const OF_TABLES = ["graph", "topics", "applications", "search"];

/** Whether the answer of a resource may be another after the notice. `path` is as the resource is asked for. */
export function concerns(path: string, notice: LiveNotice): boolean {
  const [resource = "", name] = (path.split("?")[0] ?? "").split("/");
  switch (notice.kind) {
    case "share_groups":
      if (resource === "attention" || (resource === "graph" && name === "overlay")) return true;
      return resource === "share-groups" && (name === undefined || notice.group === null || decodeURIComponent(name) === notice.group);
    case "tables":
      if (resource === "share-groups") return name !== undefined && notice.tables.some((one) => GROUP_TABLES.includes(one));
      if (resource === "changes") return notice.tables.includes("changes");
      if (resource === "attention") return true;
      if (resource in LETTER_TABLES) return notice.tables.some((one) => LETTER_TABLES[resource]?.includes(one));
      return OF_TABLES.includes(resource) && notice.tables.some((one) => !OTHER_TABLES.includes(one));
    case "lost":
      return isAnnounced(path);
  }
}

/** Whether notices tell of every change of a resource, so that it need not be asked for at short intervals. */
export function isAnnounced(path: string): boolean {
  const [resource = "", , part] = (path.split("?")[0] ?? "").split("/");
  if (resource === "share-groups" && part === "breaker") return false; // the gateway is asked for its counts
  return ["share-groups", "attention", "changes"].includes(resource) || resource in LETTER_TABLES || OF_TABLES.includes(resource);
}
