/** Starting the replay of a plan, trying it without writing, and ending it for good: as the operator's own user. */

import { type FormEvent, useState } from "react";
import type { PlanDetail, Replay } from "../api/replay_shapes";
import { count, printable } from "../model/format";
import { holdsText, replayCommand } from "../model/plans";
import { rateOf } from "../model/replays";
import { Command, Message, Notice, State } from "../shell/parts";
import { ActingAs, CredentialFields, useOperator } from "./credential";
import { ActionDialog } from "./dialog";
import { send } from "./send";

const FIRST_RATE = "50";

export function ReplayDialog({ action, plan, onClose }: { action: "start" | "abort"; plan: PlanDetail; onClose: () => void }) {
  return action === "start" ? <StartDialog plan={plan} onClose={onClose} /> : <AbortDialog plan={plan} onClose={onClose} />;
}

type Timestamp = "original" | "now";

function StartDialog({ plan, onClose }: { plan: PlanDetail; onClose: () => void }) {
  const [rateText, setRateText] = useState(FIRST_RATE);
  const [timestamp, setTimestamp] = useState<Timestamp>("original");
  const [sending, setSending] = useState<"dry" | "real" | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const operator = useOperator();
  const rate = rateOf(rateText);
  const mayStart = operator.mayAct && operator.isComplete && sending === null && rate !== undefined;

  async function start(isDryRun: boolean): Promise<void> {
    if (!mayStart) return;
    setSending(isDryRun ? "dry" : "real");
    setProblem(null);
    const credential = operator.credential();
    const body = { plan: plan.plan, rate: rate ?? null, timestamp, dry_run: isDryRun };
    const answer = await send<Replay>("replays", credential === null ? body : { ...body, credential });
    operator.forgetPassword();
    setSending(null);
    if (answer.isDone) onClose();
    else setProblem(answer.message);
  }

  return (
    <ActionDialog
      title={
        <>
          Replay plan <code>{plan.plan}</code>
        </>
      }
      onClose={onClose}
      onSubmit={(event: FormEvent) => {
        event.preventDefault();
        return start(false);
      }}
    >
      {(close) => (
        <>
          <p>
            {holdsText(plan)}, to {plan.targets.map((topic) => (topic === null ? "a topic that is not visible" : printable(topic))).join(", ")}.
          </p>
          {plan.readers === null || plan.readers.length === 0 ? null : (
            <p>
              <State of="attention">{plan.readers.map(printable).join(", ")}: will get the records again.</State>
            </p>
          )}
          <ul className="muted notes">
            {plan.notes.map((note) => (
              <li key={note}>{printable(note)}</li>
            ))}
          </ul>
          <div className="pair">
            <label>
              <span>
                Records a second, at most <span className="muted">(empty: no limit)</span>
              </span>
              <input type="text" inputMode="decimal" value={rateText} onChange={(event) => setRateText(event.target.value)} aria-invalid={rate === undefined} autoFocus autoComplete="off" />
            </label>
            <label>
              Timestamps
              <select value={timestamp} onChange={(event) => setTimestamp(event.target.value === "now" ? "now" : "original")}>
                <option value="original">the original ones</option>
                <option value="now">the time of writing</option>
              </select>
            </label>
          </div>
          {rate === undefined ? (
            <p>
              <State of="attention">The rate must be a number above 0, and at most {count(1_000_000)}.</State>
            </p>
          ) : null}
          <CredentialFields of={operator} />
          <ActingAs of={operator} right="READ on the sources and WRITE on the targets" instead="Run the command as your own user." />
          {problem === null ? null : (
            <Notice state="stopped" title="The replay could not be started">
              <p>
                <Message of={problem} />
              </p>
            </Notice>
          )}
          <p className="muted">The same on the command line:</p>
          <Command text={replayCommand(plan.plan, rate ?? null, timestamp, false)} />
          <div className="actions">
            <button type="button" onClick={close}>
              Cancel
            </button>
            <button type="button" disabled={!mayStart} onClick={() => void start(true)}>
              {sending === "dry" ? "Starting…" : "Try without writing"}
            </button>
            <button type="submit" className="button primary" disabled={!mayStart}>
              {sending === "real" ? "Starting…" : "Replay"}
            </button>
          </div>
        </>
      )}
    </ActionDialog>
  );
}

function AbortDialog({ plan, onClose }: { plan: PlanDetail; onClose: () => void }) {
  const [isSending, setIsSending] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const operator = useOperator();

  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault();
    if (isSending || !operator.mayAct) return;
    setIsSending(true);
    setProblem(null);
    const credential = operator.credential();
    const answer = await send<Replay>(`replays/${encodeURIComponent(plan.plan)}/abort`, credential === null ? {} : { credential });
    operator.forgetPassword();
    setIsSending(false);
    if (answer.isDone) onClose();
    else setProblem(answer.message);
  }

  return (
    <ActionDialog
      title={
        <>
          Abort plan <code>{plan.plan}</code>
        </>
      }
      onClose={onClose}
      onSubmit={submit}
    >
      {(close) => (
        <>
          <p>A running replay of it stops, also one that a command runs, and the plan cannot be used any more. What was written stays written.</p>
          <CredentialFields of={operator} />
          <ActingAs of={operator} right="WRITE on headgate-replay.progress" instead="Run the command as your own user." />
          {problem === null ? null : (
            <Notice state="stopped" title="The plan could not be aborted">
              <p>
                <Message of={problem} />
              </p>
            </Notice>
          )}
          <p className="muted">The same on the command line:</p>
          <Command text={`headgate dlq replay ${plan.plan} --abort --config FILE --command-config OPERATOR.properties`} />
          <div className="actions">
            <button type="button" onClick={close} autoFocus>
              Cancel
            </button>
            <button type="submit" className="button primary" disabled={!operator.mayAct || isSending || !operator.isComplete}>
              {isSending ? "Aborting…" : "Abort for good"}
            </button>
          </div>
        </>
      )}
    </ActionDialog>
  );
}
