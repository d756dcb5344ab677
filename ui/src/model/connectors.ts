/** What Connect records of a connector's topics, beside what was seen on the wire. */

import type { ConnectorRow } from "../api/connector_shapes";
import type { StateName } from "./freshness";

export interface ComparedTopic {
  topic: string;
  inConnect: boolean | null; // null: not known
  onWire: boolean | null;
}

/** All topics of both sides, by name. */
export function comparedTopics(row: ConnectorRow): ComparedTopic[] {
  const names = [...new Set([...(row.connect ?? []), ...(row.wire ?? [])])].sort();
  return names.map((topic) => ({
    topic,
    inConnect: row.connect === null ? null : row.connect.includes(topic),
    onWire: row.wire === null ? null : row.wire.includes(topic),
  }));
}

export function comparison(row: ConnectorRow): { state: StateName; text: string } {
  if (row.connect === null && row.wire === null) return { state: "unknown", text: "not known" };
  if (row.connect === null) return { state: "unknown", text: row.tracking === false ? "tracking is off" : "seen on the wire only" };
  if (row.wire === null) return { state: "unknown", text: "the wire is not watched" };
  const found = comparedTopics(row);
  const onlyConnect = found.filter((one) => !one.onWire).length;
  const onlyWire = found.filter((one) => !one.inConnect).length;
  if (onlyConnect === 0 && onlyWire === 0) return { state: "good", text: found.length === 0 ? "no topics yet" : "the same" };
  const parts = [onlyConnect > 0 ? `${onlyConnect} only in Connect` : "", onlyWire > 0 ? `${onlyWire} only on the wire` : ""];
  return { state: "attention", text: parts.filter((part) => part !== "").join(", ") };
}

/** `source`, `sink` or both, by what is seen; null before anything is. */
export function connectorKind(row: Pick<ConnectorRow, "reads_count" | "writes_count">): string | null {
  const [reads, writes] = [(row.reads_count ?? 0) > 0, (row.writes_count ?? 0) > 0];
  if (reads && writes) return "reads and writes";
  return writes ? "source" : reads ? "sink" : null;
}
