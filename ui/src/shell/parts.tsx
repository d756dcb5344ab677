/** Small parts that all views use: links, names, times, states, notices, commands. */

import { createContext, type ReactNode, useContext, useEffect, useState } from "react";
import { duration, exact, excerpt, kindWord, messageParts, printable, relative } from "../model/format";
import type { StateName } from "../model/freshness";
import { thingPath, viewOfKind } from "../model/route";
import { followed } from "./router";

export function Link({ to, children, ...more }: { to: string; children: ReactNode } & Record<string, unknown>) {
  return (
    <a href={to} onClick={followed} {...more}>
      {children}
    </a>
  );
}

/** The way from a heading back to what its view belongs to. */
export function Crumb({ to, children }: { to: string; children: ReactNode }) {
  return (
    <Link to={to} className="crumb">
      {children} /
    </Link>
  );
}

export function Name({ of }: { of: string | null }) {
  if (of === null) return <span className="muted">name not visible</span>;
  return (
    <bdi className="name" title={of.length > 60 ? printable(of.slice(0, 2000)) : undefined}>
      {excerpt(of)}
    </bdi>
  );
}

/** The name as a link to its view, where its kind has one. */
export function ThingLink({ kind, name, cluster = null }: { kind: string; name: string | null; cluster?: string | null }) {
  const view = viewOfKind(kind);
  if (name === null || view === null) return <Name of={name} />;
  return (
    <Link to={thingPath(view, cluster, name)}>
      <Name of={name} />
    </Link>
  );
}

/** A message of the server as sentences, with its commands and settings as code. */
export function Message({ of }: { of: string }) {
  return messageParts(of).map((part, place) => (part.isCode ? <code key={place}>{part.text}</code> : part.text));
}

const Clock = createContext(0);

/** One timer for all relative times. */
export function ClockProvider({ children }: { children: ReactNode }) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), 1_000);
    return () => window.clearInterval(timer);
  }, []);
  return <Clock.Provider value={now}>{children}</Clock.Provider>;
}

export function useNow(): number {
  return useContext(Clock);
}

export function Time({ at }: { at: number | null }) {
  const now = useNow();
  if (at === null) return <span className="muted">never</span>;
  return (
    <time dateTime={new Date(at).toISOString()} title={exact(at)}>
      {relative(at, now)}
    </time>
  );
}

/** `for 4 min`: how long something lasts. */
export function Lasting({ since }: { since: number | null }) {
  const now = useNow();
  if (since === null) return <span className="muted">–</span>;
  return (
    <time dateTime={new Date(since).toISOString()} title={`since ${exact(since)}`}>
      for {duration(Math.max(0, now - since))}
    </time>
  );
}

export const SHAPES: Readonly<Record<StateName, string>> = { good: "✓", attention: "▲", stopped: "●", unknown: "◆" };
const WORDS: Readonly<Record<StateName, string>> = {
  good: "good",
  attention: "needs attention",
  stopped: "stopped",
  unknown: "unknown",
};

export function State({ of, children, title }: { of: StateName; children?: ReactNode; title?: string }) {
  return (
    <span className={`state ${of}`} title={title}>
      <i aria-hidden="true">{SHAPES[of]}</i>
      <span className="visually-hidden">{WORDS[of]}: </span>
      {children}
    </span>
  );
}

export function Notice({ state, title, children }: { state: StateName; title: string; children?: ReactNode }) {
  return (
    <section className={`notice ${state}`} role={state === "stopped" ? "alert" : "status"}>
      <h2>
        <State of={state}>{title}</State>
      </h2>
      {children}
    </section>
  );
}

/** A command line that does what the page says, with a button that copies it. */
export function Command({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  return (
    <div className="command">
      {/* A line ends between arguments only: the hyphens of an option would end one too. */}
      <code tabIndex={0}>{text.split(/([ \n])/).map((part, place) => (part === " " || part === "\n" ? part : <span key={place}>{part}</span>))}</code>
      <button
        type="button"
        onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true))}
        aria-label="Copy the command"
      >
        {copied ? "Copied" : "Copy"}
      </button>
    </div>
  );
}

/** What is not read, and why. */
export function ProblemList({ problems }: { problems: readonly (readonly [string, string])[] }) {
  return (
    <dl className="facts">
      {problems.map(([section, problem]) => (
        <div key={section} className="fact">
          <dt>
            <code>{section}</code>
          </dt>
          <dd>{problem}</dd>
        </div>
      ))}
    </dl>
  );
}

export function KindTag({ kind }: { kind: string }) {
  return <span className="tag">{kindWord(kind)}</span>;
}

export function Skeleton({ what }: { what: string }) {
  return (
    <div className="skeleton" role="status" aria-label={`Loading the ${what}`}>
      <span />
      <span />
      <span />
      <span />
      <p className="muted">Loading the {what}…</p>
    </div>
  );
}
