/** One resource as a hook: requested at once, then at intervals while the tab is visible. */

import { useEffect, useState } from "react";
import { isLive, onNotice } from "../live/stream";
import { type Loaded, next } from "../model/loaded";
import { concerns, isAnnounced } from "../model/notices";
import { get } from "./client";

export const POLL_MS = 5_000;
/** While notices tell of changes. */
const RARE_POLL_MS = 30_000;

/** `path` null asks for nothing. Another path begins anew. */
export function useResource<T>(path: string | null, pollMs: number = POLL_MS): Loaded<T> {
  const [held, setHeld] = useState<{ path: string | null; loaded: Loaded<T> }>({ path, loaded: { state: "loading" } });

  useEffect(() => {
    if (path === null) return;
    const stopped = new AbortController();
    let etag: string | null = null;
    let timer: number | undefined;
    let loaded: Loaded<T> = { state: "loading" };
    let isAsking = false;
    let isOld = false;

    async function ask(): Promise<void> {
      window.clearTimeout(timer);
      isAsking = true;
      isOld = false;
      try {
        const fetched = await get<T>(path as string, loaded.state === "ready" ? etag : null, stopped.signal);
        if (stopped.signal.aborted) return;
        etag = fetched.etag;
        loaded = next(loaded, fetched.outcome, Date.now());
        setHeld({ path, loaded });
      } catch {
        return; // stopped
      }
      isAsking = false;
      if (isOld) return ask();
      const pause = isLive() && isAnnounced(path as string) ? Math.max(pollMs, RARE_POLL_MS) : pollMs;
      timer = window.setTimeout(() => void (document.hidden ? wait() : ask()), pause);
    }
    function wait(): void {
      document.addEventListener("visibilitychange", () => void ask(), { once: true, signal: stopped.signal });
    }

    setHeld({ path, loaded });
    void ask();
    window.addEventListener("headgate:token", () => void ask(), { signal: stopped.signal });
    onNotice((notice) => {
      if (!concerns(path, notice)) return;
      if (isAsking) isOld = true;
      else void ask();
    }, stopped.signal);
    return () => {
      stopped.abort();
      window.clearTimeout(timer);
    };
  }, [path, pollMs]);

  return held.path === path ? held.loaded : { state: "loading" };
}

/** The answer that was shown last stays until that of another path is there. */
export function useLastData<T>(loaded: Loaded<T>): T | null {
  const [last, setLast] = useState<T | null>(null);
  useEffect(() => {
    if (loaded.state === "ready") setLast(loaded.data);
  }, [loaded]);
  return loaded.state === "ready" ? loaded.data : last;
}
