/** Pausing and resuming a share group: a button, a dialog that asks for a reason, and the command that does the same. */

import { type FormEvent, useEffect, useId, useRef, useState } from "react";
import { useResource } from "../api/use_resource";
import { tell } from "../live/stream";
import { shellQuoted } from "../model/format";
import { Command, Name, Notice } from "../shell/parts";
import { type GroupAction, LONGEST_REASON, MECHANISMS, operate, type OperatorAnswer } from "./operate";

const WORDS: Readonly<Record<GroupAction, { button: string; effect: string; doing: string }>> = {
  pause: { button: "Pause", effect: "Its members get no records until it is resumed. No record is lost.", doing: "Pausing…" },
  resume: { button: "Resume", effect: "All pauses end, also that of the breaker, which counts anew.", doing: "Resuming…" },
};

export function commandOf(action: GroupAction, group: string, gateway: string, reason: string): string {
  return `headgate share-groups --bootstrap-server ${gateway} --${action} --group ${shellQuoted(group)} --reason ${reason === "" ? "REASON" : shellQuoted(reason)}`;
}

/** `isOpen`: the dialog is there at once, as a link asked for it. */
export function GroupActionButton({ action, group, isOpen = false }: { action: GroupAction; group: string; isOpen?: boolean }) {
  const [isAsking, setIsAsking] = useState(isOpen);
  return (
    <>
      <button type="button" className={action === "resume" ? "button primary" : "button"} onClick={() => setIsAsking(true)} aria-haspopup="dialog">
        {WORDS[action].button}…
      </button>
      {isAsking ? <ActionDialog action={action} group={group} onClose={() => setIsAsking(false)} /> : null}
    </>
  );
}

function ActionDialog({ action, group, onClose }: { action: GroupAction; group: string; onClose: () => void }) {
  const box = useRef<HTMLDialogElement>(null);
  const title = useId();
  const [reason, setReason] = useState("");
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [mechanism, setMechanism] = useState<string>(MECHANISMS[0]);
  const [isSending, setIsSending] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const known = useResource<OperatorAnswer>("operator", 60_000);
  const operator = known.state === "ready" ? known.data : null;
  const isTyped = operator?.credential === "typed";
  const mayAct = operator !== null && operator.may_operate && (!isTyped || operator.may_type);
  const refusal = "problem" in known ? known.problem.message : (operator?.problem ?? null);

  useEffect(() => {
    // A modal dialog of the browser keeps the focus inside, and gives it back at the end.
    box.current?.showModal();
  }, []);

  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault();
    if (isSending || !mayAct) return;
    setIsSending(true);
    setProblem(null);
    const failed = await operate(action, group, reason.trim(), isTyped ? { user, password, mechanism } : null);
    setPassword("");
    setIsSending(false);
    setProblem(failed);
    tell({ kind: "share_groups", group });
    if (failed === null) onClose();
  }

  return (
    <dialog ref={box} className="action" aria-labelledby={title} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <h2 id={title}>
          {WORDS[action].button} <Name of={group} />
        </h2>
        <p>{WORDS[action].effect}</p>
        <label>
          Reason, which others will see
          <input type="text" value={reason} onChange={(event) => setReason(event.target.value)} maxLength={LONGEST_REASON} required pattern=".*\S.*" autoFocus autoComplete="off" />
        </label>
        {isTyped && mayAct ? (
          <fieldset>
            <legend>User of the cluster, for this one operation</legend>
            <label>
              User
              <input type="text" value={user} onChange={(event) => setUser(event.target.value)} maxLength={255} required autoComplete="off" />
            </label>
            <label>
              Password
              <input type="password" value={password} onChange={(event) => setPassword(event.target.value)} maxLength={255} required autoComplete="off" />
            </label>
            <label>
              Mechanism
              <select value={mechanism} onChange={(event) => setMechanism(event.target.value)}>
                {MECHANISMS.map((one) => (
                  <option key={one}>{one}</option>
                ))}
              </select>
            </label>
          </fieldset>
        ) : null}
        <Who operator={operator} mayAct={mayAct} refusal={refusal} />
        {problem === null ? null : (
          <Notice state="stopped" title={`The group could not be ${action}d`}>
            <p>{problem}</p>
          </Notice>
        )}
        <p className="muted">The same on the command line:</p>
        <Command text={commandOf(action, group, operator?.gateway ?? "HOST:PORT", reason.trim())} />
        <div className="actions">
          <button type="button" onClick={() => box.current?.close()}>
            Cancel
          </button>
          <button type="submit" className="button primary" disabled={!mayAct || isSending || reason.trim() === ""}>
            {isSending ? WORDS[action].doing : WORDS[action].button}
          </button>
        </div>
      </form>
    </dialog>
  );
}

function Who({ operator, mayAct, refusal }: { operator: OperatorAnswer | null; mayAct: boolean; refusal: string | null }) {
  if (refusal !== null) {
    return (
      <Notice state="attention" title="This page cannot do it">
        <p>{refusal}. Run the command as your own user.</p>
      </Notice>
    );
  }
  if (operator === null) return <p className="muted">Asking what may be done here…</p>;
  if (!mayAct) {
    return (
      <Notice state="attention" title="This page cannot do it">
        <p>No user of the cluster is bound to your token, and a password is accepted over HTTPS or on this machine only. Run the command as your own user.</p>
      </Notice>
    );
  }
  if (operator.credential === "bound") return <p className="muted">As {operator.principal}, who needs ALTER_CONFIGS on the group.</p>;
  if (operator.credential === "none") return <p className="muted">Without a user: this cluster has none, and every client on this machine may do it.</p>;
  return <p className="muted">The user needs ALTER_CONFIGS on the group. The password is sent once and not kept.</p>;
}
