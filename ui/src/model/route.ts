/**
 * Addresses of the page. A name is one encoded part of a path, so it can have any character; what a view shows beside
 * it (focus, hops, time, selection) is in the query, so that a link reproduces the view.
 */

export type View = "now" | "map" | "apps" | "topics" | "groups" | "letters" | "connect" | "health";

export interface Route {
  view: View | "unknown";
  /** The cluster of the thing that is shown; null for the only one. */
  cluster: string | null;
  name: string | null;
  query: URLSearchParams;
}

export const VIEWS: readonly View[] = ["now", "map", "apps", "topics", "groups", "letters", "connect", "health"];
/** The path part that stands for the only cluster. */
export const ONLY_CLUSTER = "-";

export function parseRoute(href: string): Route {
  const url = new URL(href, "http://page.invalid");
  const [first = "", cluster = ONLY_CLUSTER, ...rest] = url.pathname.split("/").slice(1).map(decoded);
  const view = first === "" ? "now" : (VIEWS.find((one) => one === first) ?? "unknown");
  const name = rest.length === 1 && rest[0] !== "" ? (rest[0] ?? null) : null;
  return { view, cluster: cluster === ONLY_CLUSTER || cluster === "" ? null : cluster, name, query: url.searchParams };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function viewPath(view: View): string {
  return view === "now" ? "/" : `/${view}`;
}

/** The one link of an application, topic or share group. */
export function thingPath(view: View, cluster: string | null, name: string, query: Record<string, string> = {}): string {
  const sought = new URLSearchParams(query).toString();
  const path = `/${view}/${encodeURIComponent(cluster ?? ONLY_CLUSTER)}/${encodeURIComponent(name)}`;
  return sought === "" ? path : `${path}?${sought}`;
}

const VIEW_OF_KIND: Readonly<Record<string, View>> = {
  topic: "topics",
  streams: "apps",
  spark: "apps",
  share_group: "groups",
  connector: "connect",
};

/** The view of a node of the map; null where this kind has none. */
export function viewOfKind(kind: string): View | null {
  return VIEW_OF_KIND[kind] ?? null;
}
