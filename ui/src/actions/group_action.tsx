/** Pausing and resuming a share group: a button, a dialog that asks for a reason, and the command that does the same. */

import { type FormEvent, useState } from "react";
import { tell } from "../live/stream";
import { operationCommand } from "../model/commands";
import { useGateway } from "../shell/gateway";
import { Command, Message, Name, Notice } from "../shell/parts";
import { ActingAs, CredentialFields, useOperator } from "./credential";
import { ActionDialog } from "./dialog";
import { type GroupAction, LONGEST_REASON, operate } from "./operate";

const WORDS: Readonly<Record<GroupAction, { button: string; effect: string; doing: string }>> = {
  pause: { button: "Pause", effect: "Its members get no records until it is resumed. No record is lost.", doing: "Pausing…" },
  resume: { button: "Resume", effect: "All pauses end, also that of the breaker, which counts anew.", doing: "Resuming…" },
};

/** `isOpen`: the dialog is there at once, as a link asked for it. */
export function GroupActionButton({ action, group, isOpen = false }: { action: GroupAction; group: string; isOpen?: boolean }) {
  const [isAsking, setIsAsking] = useState(isOpen);
  return (
    <>
      <button type="button" className={action === "resume" ? "button primary" : "button"} onClick={() => setIsAsking(true)} aria-haspopup="dialog">
        {WORDS[action].button}…
      </button>
      {isAsking ? <GroupActionDialog action={action} group={group} onClose={() => setIsAsking(false)} /> : null}
    </>
  );
}

function GroupActionDialog({ action, group, onClose }: { action: GroupAction; group: string; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const [isSending, setIsSending] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const operator = useOperator();
  const gateway = useGateway();

  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault();
    if (isSending || !operator.mayAct) return;
    setIsSending(true);
    setProblem(null);
    const failed = await operate(action, group, reason.trim(), operator.credential());
    operator.forgetPassword();
    setIsSending(false);
    setProblem(failed);
    tell({ kind: "share_groups", group });
    if (failed === null) onClose();
  }

  return (
    <ActionDialog
      title={
        <>
          {WORDS[action].button} <Name of={group} />
        </>
      }
      onClose={onClose}
      onSubmit={submit}
    >
      {(close) => (
        <>
          <p>{WORDS[action].effect}</p>
          <label>
            Reason, which others will see
            <input type="text" value={reason} onChange={(event) => setReason(event.target.value)} maxLength={LONGEST_REASON} required pattern=".*\S.*" autoFocus autoComplete="off" />
          </label>
          <CredentialFields of={operator} />
          <ActingAs of={operator} right="ALTER_CONFIGS on the group" instead="Run the command as your own user." />
          {problem === null ? null : (
            <Notice state="stopped" title={`The group could not be ${action}d`}>
              <p>
                <Message of={problem} />
              </p>
            </Notice>
          )}
          <p className="muted">The same on the command line:</p>
          <Command text={operationCommand(action, group, gateway, reason.trim())} />
          <div className="actions">
            <button type="button" onClick={close}>
              Cancel
            </button>
            <button type="submit" className="button primary" disabled={!operator.mayAct || isSending || reason.trim() === ""}>
              {isSending ? WORDS[action].doing : WORDS[action].button}
            </button>
          </div>
        </>
      )}
    </ActionDialog>
  );
}
