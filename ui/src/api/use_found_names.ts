/** Names that contain a text, the nearest first, as the search shows them. */

import type { SearchAnswer } from "./shapes";
import { useLastData, useResource } from "./use_resource";

const MOST = 30;

export type Found = SearchAnswer["results"][number];

export function useFoundNames(text: string): { names: Found[]; isLoading: boolean; problem: string | null } {
  const sought = text.trim();
  const loaded = useResource<SearchAnswer>(sought === "" ? null : `search?q=${encodeURIComponent(sought)}&limit=${MOST}`, 60_000);
  const last = useLastData(loaded);
  const names = sought === "" || last === null ? [] : last.results;
  const problem = "problem" in loaded ? loaded.problem.message : null;
  return { names, isLoading: sought !== "" && loaded.state === "loading", problem };
}
