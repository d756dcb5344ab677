/** The answers of `/api/v1/connectors`. A list of topics that is null is not known. */

import type { Use } from "./shapes";

export interface ConnectorRow {
  /** The `[connect.NAME]`; null where the connector is known from the wire only. */
  cluster: string | null;
  connector: string;
  connect: string[] | null;
  wire: string[] | null;
  hidden_topics: number;
  tracking: boolean | null;
  reset_allowed: boolean;
  reads_count: number | null;
  writes_count: number | null;
  last_seen: number | null;
}

export interface ConnectCluster {
  name: string;
  tracking: boolean;
  reset_allowed: boolean;
  problem: string | null;
}

export interface Connectors {
  connectors: ConnectorRow[];
  clusters: ConnectCluster[];
  truncated: boolean;
  problems: Record<string, string>;
}

export interface Connector {
  connector: string;
  rows: ConnectorRow[];
  reads: (Use & { topic: string | null })[] | null;
  writes: (Use & { topic: string | null })[] | null;
  problems: Record<string, string>;
}
