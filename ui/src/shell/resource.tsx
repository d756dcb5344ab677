/** The states of a resource that are no data: loading, stale, forbidden, absent and failed, each with what to do. */

import { type ReactNode, useState } from "react";
import { mayTypeSecrets, setToken, token } from "../api/client";
import type { Loaded, Problem } from "../model/loaded";
import { Command, Message, Notice, Skeleton, useNow } from "./parts";
import { duration } from "../model/format";

export function Resource<T>({
  of,
  what,
  absent,
  children,
}: {
  of: Loaded<T>;
  what: string;
  absent?: ReactNode;
  children: (data: T) => ReactNode;
}) {
  switch (of.state) {
    case "loading":
      return <Skeleton what={what} />;
    case "forbidden":
      return <Forbidden problem={of.problem} what={what} />;
    case "absent":
      return absent ?? <Absent problem={of.problem} what={what} />;
    case "failed":
      return <Failed problem={of.problem} what={what} />;
    case "ready":
      return (
        <>
          {of.stale === null ? null : <Stale problem={of.stale} at={of.at} />}
          {children(of.data)}
        </>
      );
  }
}

export function Stale({ problem, at }: { problem: Problem; at: number }) {
  const now = useNow();
  return (
    <div className={problem.status === 0 ? "unreachable" : undefined}>
      <Notice state="attention" title={`Not updated for ${duration(now - at)}`}>
        <p>
          <Message of={problem.message} /> What is shown is the last answer.
        </p>
      </Notice>
    </div>
  );
}

function Absent({ problem, what }: { problem: Problem; what: string }) {
  return (
    <Notice state="unknown" title={`There is no such ${what}`}>
      <p>
        <Message of={problem.message} />
      </p>
      <p className="muted">
        It may have had another name, or the pipeline has not seen it yet. Press <kbd>/</kbd> and search for a part of the name.
      </p>
    </Notice>
  );
}

function Failed({ problem, what }: { problem: Problem; what: string }) {
  return (
    <Notice state="stopped" title={`The ${what} could not be loaded`}>
      <p>
        <Message of={problem.message} />
      </p>
      <p className="muted">The page asks again every few seconds. {problem.status === 503 ? "The pipeline writes the tables:" : "To look for the cause:"}</p>
      <Command text={problem.status === 503 ? "headgate pipeline run --config FILE" : "headgate doctor --config FILE"} />
    </Notice>
  );
}

function Forbidden({ problem, what }: { problem: Problem; what: string }) {
  const [typed, setTyped] = useState("");
  return (
    <Notice state="stopped" title={problem.status === 401 ? `A token is needed to see the ${what}` : `No access to the ${what}`}>
      <p>
        <Message of={problem.message} />
      </p>
      {mayTypeSecrets() ? (
        <form
          className="heading"
          onSubmit={(event) => {
            event.preventDefault();
            setToken(typed.trim());
            setTyped("");
            window.dispatchEvent(new Event("headgate:token"));
          }}
        >
          <label>
            Token{" "}
            <input type="password" value={typed} onChange={(event) => setTyped(event.target.value)} autoComplete="off" />
          </label>
          <button type="submit" disabled={typed.trim() === "" && token() === ""}>
            {typed.trim() === "" && token() !== "" ? "Forget the token" : "Use for this tab"}
          </button>
        </form>
      ) : (
        <p>A token is accepted over HTTPS or on this machine only, because it would be sent unencrypted.</p>
      )}
      <p className="muted">An operator makes a token with:</p>
      <Command text="headgate web token FILE --name NAME --scope read" />
    </Notice>
  );
}
