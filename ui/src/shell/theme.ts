/** Light or dark: as the system has it, until the viewer chooses. */

const KEY = "headgate.theme";

export type Theme = "light" | "dark";

export function currentTheme(): Theme {
  return document.documentElement.dataset["theme"] === "dark" ? "dark" : "light";
}

export function applyTheme(): void {
  const chosen = localStorage.getItem(KEY);
  const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset["theme"] = chosen === "light" || chosen === "dark" ? chosen : system;
}

export function toggleTheme(): Theme {
  const theme = currentTheme() === "dark" ? "light" : "dark";
  localStorage.setItem(KEY, theme);
  applyTheme();
  return theme;
}
