/** The address bar as state: views read it, and links change it without loading the page again. */

import { type MouseEvent, useSyncExternalStore } from "react";
import { parseRoute, type Route } from "../model/route";

const CHANGED = "headgate:address";

function subscribe(listen: () => void): () => void {
  window.addEventListener("popstate", listen);
  window.addEventListener(CHANGED, listen);
  return () => {
    window.removeEventListener("popstate", listen);
    window.removeEventListener(CHANGED, listen);
  };
}

export function useHref(): string {
  return useSyncExternalStore(subscribe, () => window.location.pathname + window.location.search);
}

export function useRoute(): Route {
  return parseRoute(useHref());
}

/** `replace` keeps the entry of the history, for what is not a step of its own. */
export function go(href: string, replace = false): void {
  if (href === window.location.pathname + window.location.search) return;
  if (replace) window.history.replaceState(null, "", href);
  else window.history.pushState(null, "", href);
  window.dispatchEvent(new Event(CHANGED));
}

/** For `onClick` of a link: plain clicks stay on the page, others are the browser's. */
export function followed(event: MouseEvent<HTMLAnchorElement>): void {
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(event.currentTarget.getAttribute("href") ?? "/");
}

function subscribeWidth(listen: () => void): () => void {
  const query = window.matchMedia("(max-width: 720px)");
  query.addEventListener("change", listen);
  return () => query.removeEventListener("change", listen);
}

export function useIsNarrow(): boolean {
  return useSyncExternalStore(subscribeWidth, () => window.matchMedia("(max-width: 720px)").matches);
}
