/** `POST /api/v1/topologies:parse`: a text of `Topology#describe()` as a topology. The server keeps nothing. */

import { token } from "./client";
import type { Description } from "./shapes";

export interface Parsed {
  hash: string;
  description: Description;
  findings: { flaw: string; subtopology: string | null; node: string | null; text: string }[];
}

const DEADLINE_MS = 15_000;

/** The topology, or the text of the problem. */
export async function parseTopology(text: string): Promise<Parsed | string> {
  const headers: Record<string, string> = { "Content-Type": "text/plain; charset=utf-8" };
  if (token() !== "") headers["Authorization"] = `Bearer ${token()}`;
  try {
    const response = await fetch("/api/v1/topologies:parse", { method: "POST", headers, body: text, credentials: "omit", cache: "no-store", signal: AbortSignal.timeout(DEADLINE_MS) });
    const body: unknown = await response.json();
    if (response.ok) return body as Parsed;
    const said = typeof body === "object" && body !== null && "message" in body ? body.message : null;
    return typeof said === "string" ? said : `The server answered with status ${response.status}.`;
  } catch {
    return "The server cannot be reached: check that `headgate web` runs.";
  }
}
