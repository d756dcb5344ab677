/** Pausing and resuming a share group through the API. */

import type { TypedCredential } from "./credential";
import { send } from "./send";

export type GroupAction = "pause" | "resume";

export const LONGEST_REASON = 1_000;

/** Null when it was done, or else why not. */
export async function operate(action: GroupAction, group: string, reason: string, credential: TypedCredential | null): Promise<string | null> {
  const sent = await send(`share-groups/${encodeURIComponent(group)}/${action}`, credential === null ? { reason } : { reason, credential });
  if (sent.isDone) return null;
  return sent.status === 0 ? `${sent.message} It is not known whether the group was changed: look at its state.` : sent.message;
}
