/** Changes through the API: a JSON body, so that no form of another site can send it, and the token of this tab. */

import { token } from "../api/client";

const DEADLINE_MS = 40_000;

/** `status` 0: there was no answer, and it is not known what was done. */
export type Sent<T> = { isDone: true; data: T } | { isDone: false; status: number; message: string };

export async function send<T>(path: string, body: object): Promise<Sent<T>> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (token() !== "") headers["Authorization"] = `Bearer ${token()}`;
  try {
    const response = await fetch(`/api/v1/${path}`, {
      method: "POST",
      headers,
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(DEADLINE_MS),
      cache: "no-store",
      credentials: "omit",
    });
    const answer: unknown = await response.json().catch(() => null);
    if (response.ok) return { isDone: true, data: answer as T };
    const isTold = typeof answer === "object" && answer !== null && "message" in answer && typeof answer.message === "string";
    return { isDone: false, status: response.status, message: isTold ? String(answer.message) : `The server answered with status ${response.status}.` };
  } catch {
    return { isDone: false, status: 0, message: "There was no answer." };
  }
}
