/**
 * Reads `/api/v1/events` with `fetch`, because EventSource cannot send a token, and tells the page of notices.
 *
 * The stream is open while the tab is visible: a browser has six connections to a server for all its tabs. Without it
 * resources are asked for at intervals, as `use_resource.ts` does anyway.
 */

import { token } from "../api/client";
import { EventParser, type LiveNotice, noticesOf } from "../model/notices";

const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 30_000;
/** The server sends something every ten seconds. */
const SILENCE_MS = 25_000;
const NOTICE = "headgate:notice";

let connected = false;

/** Whether notices come. */
export function isLive(): boolean {
  return connected;
}

export function onNotice(take: (notice: LiveNotice) => void, signal: AbortSignal): void {
  window.addEventListener(NOTICE, (event) => take((event as CustomEvent<LiveNotice>).detail), { signal });
}

/** Called once, for the life of the page. */
export function startLive(): void {
  let stop = new AbortController();
  function restart(): void {
    stop.abort();
    stop = new AbortController();
    if (!document.hidden) void follow(stop.signal);
  }
  document.addEventListener("visibilitychange", restart);
  window.addEventListener("headgate:token", restart);
  restart();
}

let lastId: string | null = null;

async function follow(stopped: AbortSignal): Promise<void> {
  let pause = FIRST_PAUSE_MS;
  while (!stopped.aborted) {
    const began = Date.now();
    try {
      await read(stopped);
    } catch {
      // no connection, a refusal, or silence: all of them are tried again
    }
    if (stopped.aborted) return;
    setConnected(false);
    pause = Date.now() - began > LONGEST_PAUSE_MS ? FIRST_PAUSE_MS : Math.min(2 * pause, LONGEST_PAUSE_MS);
    await sleep(pause, stopped);
  }
}

async function read(stopped: AbortSignal): Promise<void> {
  const silent = new AbortController();
  let timer = window.setTimeout(() => silent.abort(), SILENCE_MS);
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (token() !== "") headers["Authorization"] = `Bearer ${token()}`;
  if (lastId !== null) headers["Last-Event-ID"] = lastId;
  try {
    const response = await fetch("/api/v1/events", { headers, signal: AbortSignal.any([stopped, silent.signal]), cache: "no-store", credentials: "omit" });
    if (!response.ok || response.body === null) return;
    setConnected(true);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new EventParser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      window.clearTimeout(timer);
      timer = window.setTimeout(() => silent.abort(), SILENCE_MS);
      for (const event of parser.push(value)) noticesOf(event).forEach(tell);
      lastId = parser.lastId ?? lastId;
    }
  } finally {
    window.clearTimeout(timer);
  }
}

function setConnected(now: boolean): void {
  const isLost = connected && !now;
  connected = now;
  document.documentElement.dataset["live"] = String(now);
  if (isLost) tell({ kind: "lost" });
}

/** Also for what the page itself has changed. */
export function tell(notice: LiveNotice): void {
  window.dispatchEvent(new CustomEvent<LiveNotice>(NOTICE, { detail: notice }));
}

function sleep(ms: number, stopped: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = window.setTimeout(done, ms);
    stopped.addEventListener("abort", () => (window.clearTimeout(timer), done()), { once: true });
  });
}
