/** How the page names the keys of a keyboard. */

/** The keys that open the search. `platform` is as `navigator.platform` has it. */
export function searchKeys(platform: string): string {
  return /^(Mac|iPhone|iPad|iPod)/.test(platform) ? "⌘K" : "Ctrl K";
}
