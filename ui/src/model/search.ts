/** The order of search results: whole names first, then beginnings, beginnings of words, and the rest. */

export interface Found {
  kind: string;
  name: string;
}

export function ranked<T extends Found>(all: readonly T[], sought: string, most: number): T[] {
  const text = sought.trim().toLowerCase();
  if (text === "") return [];
  const scored: [number, T][] = [];
  for (const one of all) {
    const score = rank(one.name.toLowerCase(), text);
    if (score !== null) scored.push([score, one]);
  }
  scored.sort((a, b) => a[0] - b[0] || a[1].name.length - b[1].name.length || a[1].name.localeCompare(b[1].name));
  return scored.slice(0, most).map(([, one]) => one);
}

function rank(name: string, text: string): number | null {
  if (name === text) return 0;
  if (name.startsWith(text)) return 1;
  const at = name.indexOf(text);
  if (at < 0) return null;
  return /[^a-z0-9]/.test(name[at - 1] ?? "") ? 2 : 3;
}
