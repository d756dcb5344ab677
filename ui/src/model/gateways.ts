/** The workers of gateways: those that Kafka knows now, with their versions and the leader, and those that reported. */

import type { Leader, Workers } from "../api/shapes";
import type { StateName } from "./freshness";

export interface GatewayRow {
  key: string;
  /** Null for a worker whose client id does not tell its name, such as of an older release. */
  worker: string | null;
  host: string | null;
  version: string | null;
  /** `away`: it reported, and is not among those that may lead now. Null: it is not known who is. */
  role: "leads" | "ready" | "away" | null;
  lastSeen: number | null;
  starts: number | null;
}

/** The leader first, then by name; workers without a name are told apart by their place. */
export function gatewayRows(leader: Leader | null, workers: Workers | null): GatewayRow[] {
  const isKnown = leader !== null && leader.state !== "unknown" && leader.state !== "off";
  const reports = new Map((workers?.workers ?? []).map((one) => [one.worker, one]));
  const rows: GatewayRow[] = (isKnown ? leader.workers : []).map((one, place) => {
    const report = one.worker === null ? undefined : reports.get(one.worker);
    if (one.worker !== null) reports.delete(one.worker);
    return {
      key: `${one.worker ?? ""} ${one.host} ${place}`,
      worker: one.worker,
      host: one.host,
      version: one.version,
      role: one.is_leader ? "leads" : "ready",
      lastSeen: report?.last_seen ?? null,
      starts: report?.starts ?? null,
    };
  });
  // Only some workers join an election for lags alone, so the others are not away.
  const role = isKnown && leader.duty === "breakers" ? "away" : null;
  for (const one of reports.values()) {
    rows.push({ key: one.worker, worker: one.worker, host: null, version: null, role, lastSeen: one.last_seen, starts: one.starts });
  }
  return rows;
}

export interface LeaderMark {
  state: StateName;
  title: string;
  /** Why it matters; empty where all is well. */
  text: string;
}

const WITHOUT: Readonly<Record<"breakers" | "lags", string>> = {
  breakers: "Until a worker leads, no circuit breaker trips, no pause ends by itself, and no dead letters leave the spool.",
  lags: "Until a worker leads, the lags of groups are not polled.",
};

export function leaderMark(leader: Leader): LeaderMark | null {
  const why = leader.duty === null ? "" : WITHOUT[leader.duty];
  switch (leader.state) {
    case "off":
      return null;
    case "led":
      return { state: "good", title: "One worker leads", text: "" };
    case "electing":
      return { state: "attention", title: "A leader is being elected", text: `It takes some seconds. ${why}` };
    case "nobody":
      return { state: "stopped", title: leader.workers.length === 0 ? "No gateway is connected to the cluster" : "No worker leads", text: why };
    case "unknown":
      return { state: "unknown", title: "It is not known which worker leads", text: leader.problem ?? "" };
  }
}

/** The versions that run, the most common one first. */
export function versionsOf(rows: readonly GatewayRow[]): string[] {
  const counts = new Map<string, number>();
  for (const { version } of rows) if (version !== null) counts.set(version, (counts.get(version) ?? 0) + 1);
  return [...counts].sort(([a, many], [b, more]) => more - many || a.localeCompare(b)).map(([version]) => version);
}
