/** Search by keyboard: names of topics, applications, groups and clients; Enter opens, Shift+Enter shows on the map. */

import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { type Found, useFoundNames } from "../api/use_found_names";
import { kindWord } from "../model/format";
import { mapPath } from "../model/map_view";
import { thingPath, viewOfKind } from "../model/route";
import { Icon } from "./icons";
import { Name } from "./parts";
import { go } from "./router";

export function Finder({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const found = useFoundNames(text);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    input.current?.focus();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  useEffect(() => setChosen(0), [text]);

  function open(one: Found | undefined, onMap: boolean): void {
    if (one === undefined) return;
    const view = onMap ? null : viewOfKind(one.kind);
    go(view === null ? mapPath({ focus: one.name, focusKind: one.kind }) : thingPath(view, null, one.name));
    onClose();
  }

  function onKey(event: KeyboardEvent): void {
    const last = found.names.length - 1;
    if (event.key === "Escape") onClose();
    else if (event.key === "ArrowDown") setChosen((now) => Math.min(last, now + 1));
    else if (event.key === "ArrowUp") setChosen((now) => Math.max(0, now - 1));
    else if (event.key === "Enter") open(found.names[chosen], event.shiftKey);
    else if (event.key !== "Tab") return;
    event.preventDefault();
  }

  return (
    <>
      <div className="veil" onClick={onClose} />
      <div className="finder" role="dialog" aria-modal="true" aria-label="Search" onKeyDown={onKey}>
        <input
          ref={input}
          type="text"
          role="combobox"
          aria-expanded={found.names.length > 0}
          aria-controls="found"
          aria-activedescendant={found.names.length > 0 ? `found-${chosen}` : undefined}
          aria-label="Name to search for"
          placeholder="Topic, application, group or client"
          value={text}
          maxLength={500}
          onChange={(event) => setText(event.target.value)}
        />
        {found.names.length > 0 ? (
          <ul id="found" role="listbox" aria-label="Results">
            {found.names.map((one, place) => (
              <li
                key={`${one.kind} ${one.name}`}
                id={`found-${place}`}
                role="option"
                aria-selected={place === chosen}
                onMouseEnter={() => setChosen(place)}
                onClick={(event) => open(one, event.shiftKey)}
              >
                <Icon of={one.kind} />
                <Name of={one.name} />
                <span className="kind">{kindWord(one.kind)}</span>
              </li>
            ))}
          </ul>
        ) : null}
        <p className="hint" role="status">
          {hint(text, found)}
        </p>
      </div>
    </>
  );
}

function hint(text: string, found: ReturnType<typeof useFoundNames>): string {
  if (text.trim() === "") return "Type a part of a name. ↑ ↓ select, Enter opens, Shift+Enter shows it on the map.";
  if (found.problem !== null) return found.problem;
  if (found.isLoading) return "Searching…";
  return found.names.length === 0 ? "No name contains this text." : "Enter opens, Shift+Enter shows it on the map.";
}
