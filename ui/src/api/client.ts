/** Requests to `/api/v1`: with the token of this tab, the ETag of the last answer, and a deadline. */

import type { Outcome, Problem } from "../model/loaded";

const DEADLINE_MS = 15_000;
const TOKEN_KEY = "headgate.token";

/** A token is kept for this tab only, and never sent unencrypted to another machine. */
export function token(): string {
  return sessionStorage.getItem(TOKEN_KEY) ?? "";
}

export function setToken(value: string): void {
  if (value === "") sessionStorage.removeItem(TOKEN_KEY);
  else sessionStorage.setItem(TOKEN_KEY, value);
}

export function mayTypeSecrets(): boolean {
  return window.isSecureContext; // TLS, or loopback
}

export interface Fetched<T> {
  outcome: Outcome<T>;
  etag: string | null;
}

export async function get<T>(path: string, etag: string | null, stopped: AbortSignal): Promise<Fetched<T>> {
  const headers: Record<string, string> = {};
  if (etag !== null) headers["If-None-Match"] = etag;
  if (token() !== "") headers["Authorization"] = `Bearer ${token()}`;
  try {
    const signal = AbortSignal.any([stopped, AbortSignal.timeout(DEADLINE_MS)]);
    const response = await fetch(`/api/v1/${path}`, { headers, signal, cache: "no-store", credentials: "omit" });
    if (response.status === 304) return { outcome: { kind: "unchanged" }, etag };
    if (!response.ok) return failed({ status: response.status, message: await message(response) });
    const isJson = response.headers.get("Content-Type")?.startsWith("application/json") ?? false;
    const data: unknown = isJson ? await response.json() : await response.text();
    return { outcome: { kind: "data", data: data as T }, etag: response.headers.get("ETag") };
  } catch (error) {
    if (stopped.aborted) throw error;
    const isLate = error instanceof DOMException && error.name === "TimeoutError";
    return failed({
      status: 0,
      message: isLate
        ? `The server did not answer within ${DEADLINE_MS / 1000} s.`
        : "The server cannot be reached: check that `headgate web` runs.",
    });
  }
}

/** Saves an answer as a file; null when it was done, or else why not. For a link of the browser, which sends no token. */
export async function save(path: string, name: string): Promise<string | null> {
  try {
    const headers = { Authorization: `Bearer ${token()}` };
    const response = await fetch(`/api/v1/${path}`, { headers, signal: AbortSignal.timeout(2 * DEADLINE_MS), cache: "no-store", credentials: "omit" });
    if (!response.ok) return await message(response);
    const address = URL.createObjectURL(await response.blob());
    const link = Object.assign(document.createElement("a"), { href: address, download: name });
    link.click();
    window.setTimeout(() => URL.revokeObjectURL(address), DEADLINE_MS);
    return null;
  } catch {
    return "The server did not answer.";
  }
}

function failed<T>(problem: Problem): Fetched<T> {
  return { outcome: { kind: "problem", problem }, etag: null };
}

async function message(response: Response): Promise<string> {
  try {
    const body: unknown = await response.json();
    if (typeof body === "object" && body !== null && "message" in body && typeof body.message === "string") {
      return body.message;
    }
  } catch {
    // not JSON: the status has to do
  }
  return `The server answered with status ${response.status}.`;
}
