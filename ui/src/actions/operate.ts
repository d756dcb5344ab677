/** Changes through the API: a JSON body, so that no form of another site can send it, and the token of this tab. */

import { token } from "../api/client";

export type GroupAction = "pause" | "resume";

/** What `/api/v1/operator` says of the caller. */
export interface OperatorAnswer {
  may_operate: boolean;
  problem: string | null;
  credential: "bound" | "typed" | "none";
  principal: string | null;
  may_type: boolean;
  gateway: string;
}

/** A user of the cluster for one request: it is never stored. */
export interface TypedCredential {
  user: string;
  password: string;
  mechanism: string;
}

export const MECHANISMS = ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] as const;
export const LONGEST_REASON = 1_000;
const DEADLINE_MS = 40_000;

/** Null when it was done, or else why not. */
export async function operate(action: GroupAction, group: string, reason: string, credential: TypedCredential | null): Promise<string | null> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (token() !== "") headers["Authorization"] = `Bearer ${token()}`;
  try {
    const response = await fetch(`/api/v1/share-groups/${encodeURIComponent(group)}/${action}`, {
      method: "POST",
      headers,
      body: JSON.stringify(credential === null ? { reason } : { reason, credential }),
      signal: AbortSignal.timeout(DEADLINE_MS),
      cache: "no-store",
      credentials: "omit",
    });
    if (response.ok) return null;
    const answer: unknown = await response.json().catch(() => null);
    const isTold = typeof answer === "object" && answer !== null && "message" in answer && typeof answer.message === "string";
    return isTold ? String(answer.message) : `The server answered with status ${response.status}.`;
  } catch {
    return "There was no answer, and it is not known whether the group was changed: look at its state.";
  }
}
