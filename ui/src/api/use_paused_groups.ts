/** The share groups that are paused, as keys of the map. */

import { useMemo } from "react";
import { nodeKey } from "../model/estate_graph";
import type { ShareGroups } from "./shapes";
import { useResource } from "./use_resource";

export function usePausedGroups(): ReadonlySet<string> {
  const found = useResource<ShareGroups>("share-groups?paused=true&limit=1000");
  const groups = found.state === "ready" ? found.data.share_groups : null;
  return useMemo(
    () => new Set((groups ?? []).filter((one) => one.paused === true).map((one) => nodeKey("share_group", one.name))),
    [groups],
  );
}
