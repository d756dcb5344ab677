/** The frame of all views: navigation, search, freshness, theme, and the keys that work everywhere. */

import { useEffect, useRef, useState } from "react";
import type { Health } from "../api/shapes";
import { useResource } from "../api/use_resource";
import { freshness } from "../model/freshness";
import { shortened } from "../model/format";
import { searchKeys } from "../model/keys";
import { type View, viewPath, VIEWS } from "../model/route";
import { ApplicationsView } from "../views/applications";
import { ConnectorsView } from "../views/connectors";
import { DeadLettersView } from "../views/dead_letters";
import { GroupsView } from "../views/groups";
import { HealthView } from "../views/health";
import { MapView } from "../map/map_view";
import { NowView } from "../views/now";
import { TopicsView } from "../views/topics";
import { Finder } from "./finder";
import { Icon } from "./icons";
import { Link, Notice, State, useNow } from "./parts";
import { go, useRoute } from "./router";
import { currentTheme, toggleTheme } from "./theme";

const TITLES: Readonly<Record<View, string>> = {
  now: "Now",
  map: "Map",
  apps: "Apps",
  topics: "Topics",
  groups: "Groups",
  letters: "Dead letters",
  connect: "Connect",
  health: "Health",
};
/** `g` and then one of these goes to a view. */
const GO_KEYS: Readonly<Record<string, View>> = { n: "now", m: "map", a: "apps", t: "topics", g: "groups", l: "letters", c: "connect", h: "health" };

export function App() {
  const route = useRoute();
  const health = useResource<Health>("health");
  const [isSearching, setIsSearching] = useState(false);
  useKeys(() => setIsSearching(true));
  useEffect(() => {
    document.title = route.view === "unknown" ? "Headgate" : `${route.name === null ? TITLES[route.view] : shortened(route.name, 80)} · Headgate`;
  }, [route.view, route.name]);

  return (
    <div className="shell">
      <header className="top">
        <Link to="/" className="brand" aria-label="Headgate">
          <svg viewBox="0 0 16 16" aria-hidden="true">
            <rect width="16" height="16" rx="3" fill="var(--accent)" />
            <path d="M4.5 3v10M11.5 3v10M4.5 8h7" stroke="var(--on-accent)" strokeWidth="2" />
          </svg>
          <span>headgate</span>
        </Link>
        <button type="button" className="search-button" onClick={() => setIsSearching(true)} aria-label="Search">
          <Icon of="search" />
          <span>Search topics, applications, groups</span>
          <kbd>{searchKeys(navigator.platform)}</kbd>
        </button>
        <span className="space" />
        <FreshnessMark health={health} />
        <ThemeButton />
      </header>
      <nav className="nav" aria-label="Views">
        <ul>
          {VIEWS.map((view) => (
            <li key={view}>
              <Link to={viewPath(view)} aria-current={route.view === view ? "page" : undefined}>
                <Icon of={view} />
                {TITLES[view]}
              </Link>
            </li>
          ))}
        </ul>
      </nav>
      <main className="main" tabIndex={-1}>
        <Shown view={route.view} health={health} />
      </main>
      {isSearching ? <Finder onClose={() => setIsSearching(false)} /> : null}
    </div>
  );
}

function Shown({ view, health }: { view: View | "unknown"; health: ReturnType<typeof useResource<Health>> }) {
  switch (view) {
    case "now":
      return <NowView health={health} />;
    case "map":
      return <MapView />;
    case "apps":
      return <ApplicationsView />;
    case "topics":
      return <TopicsView />;
    case "groups":
      return <GroupsView />;
    case "letters":
      return <DeadLettersView />;
    case "connect":
      return <ConnectorsView />;
    case "health":
      return <HealthView health={health} />;
    case "unknown":
      return (
        <div className="content">
          <Notice state="unknown" title="There is no such page">
            <p>
              <Link to="/">Go to Now</Link>, or press <kbd>/</kbd> and search for a name.
            </p>
          </Notice>
        </div>
      );
  }
}

function FreshnessMark({ health }: { health: Parameters<typeof freshness>[0] }) {
  const found = freshness(health, useNow());
  return (
    <Link to="/health" className="button freshness" title={found.detail} data-state={found.state}>
      <State of={found.state}>{found.text}</State>
    </Link>
  );
}

function ThemeButton() {
  const [theme, setTheme] = useState(currentTheme);
  return (
    <button type="button" onClick={() => setTheme(toggleTheme())} aria-label={`Switch to the ${theme === "dark" ? "light" : "dark"} theme`}>
      <span aria-hidden="true">{theme === "dark" ? "☾" : "☀"}</span>
    </button>
  );
}

function isTyping(event: KeyboardEvent): boolean {
  return event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
}

function useKeys(openSearch: () => void): void {
  const pending = useRef(false);
  const open = useRef(openSearch);
  open.current = openSearch;
  useEffect(() => {
    function onKey(event: KeyboardEvent): void {
      if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        open.current();
        return;
      }
      if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event)) return;
      const view = pending.current ? GO_KEYS[event.key] : undefined;
      pending.current = false;
      if (view !== undefined) {
        go(viewPath(view));
      } else if (event.key === "/") {
        event.preventDefault();
        open.current();
      } else if (event.key === "g") {
        pending.current = true;
      }
    }
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
}
