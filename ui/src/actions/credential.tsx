/** As which user of the cluster something is done: one that is bound to the token, one that is typed, or none. */

import { useState } from "react";
import { useResource } from "../api/use_resource";
import { Message, Notice } from "../shell/parts";

/** What `/api/v1/operator` says of the caller. */
export interface OperatorAnswer {
  may_operate: boolean;
  problem: string | null;
  credential: "bound" | "typed" | "none";
  principal: string | null;
  may_type: boolean;
}

/** A user of the cluster for one request: it is never stored. */
export interface TypedCredential {
  user: string;
  password: string;
  mechanism: string;
}

const MECHANISMS = ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] as const;

export interface Operator {
  known: OperatorAnswer | null;
  mayAct: boolean;
  /** Why nothing can be done here; null while it is not known, and where it can. */
  refusal: string | null;
  isTyped: boolean;
  typed: TypedCredential;
  change: (changes: Partial<TypedCredential>) => void;
  /** What a request sends: null unless the user is typed. */
  credential: () => TypedCredential | null;
  isComplete: boolean;
  forgetPassword: () => void;
}

export function useOperator(): Operator {
  const [typed, setTyped] = useState<TypedCredential>({ user: "", password: "", mechanism: MECHANISMS[0] });
  const found = useResource<OperatorAnswer>("operator", 60_000);
  const known = found.state === "ready" ? found.data : null;
  const isTyped = known?.credential === "typed";
  return {
    known,
    mayAct: known !== null && known.may_operate && (!isTyped || known.may_type),
    refusal: "problem" in found ? found.problem.message : (known?.problem ?? null),
    isTyped,
    typed,
    change: (changes) => setTyped((before) => ({ ...before, ...changes })),
    credential: () => (isTyped ? typed : null),
    isComplete: !isTyped || (typed.user !== "" && typed.password !== ""),
    forgetPassword: () => setTyped((before) => ({ ...before, password: "" })),
  };
}

/** The fields of a user that is typed; nothing where none is needed. */
export function CredentialFields({ of }: { of: Operator }) {
  if (!of.isTyped || !of.mayAct) return null;
  return (
    <fieldset>
      <legend>User of the cluster, for this one operation</legend>
      <label>
        User
        <input type="text" value={of.typed.user} onChange={(event) => of.change({ user: event.target.value })} maxLength={255} required autoComplete="off" />
      </label>
      <label>
        Password
        <input type="password" value={of.typed.password} onChange={(event) => of.change({ password: event.target.value })} maxLength={255} required autoComplete="off" />
      </label>
      <label>
        Mechanism
        <select value={of.typed.mechanism} onChange={(event) => of.change({ mechanism: event.target.value })}>
          {MECHANISMS.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
    </fieldset>
  );
}

/** As whom it would be done, and which right that user needs; `instead` is what to do where it cannot be done here. */
export function ActingAs({ of, right, instead }: { of: Operator; right: string; instead: string }) {
  if (of.refusal !== null) {
    return (
      <Notice state="attention" title="This page cannot do it">
        <p>
          <Message of={of.refusal} /> {instead}
        </p>
      </Notice>
    );
  }
  if (of.known === null) return <p className="muted">Asking what may be done here…</p>;
  if (!of.mayAct) {
    return (
      <Notice state="attention" title="This page cannot do it">
        <p>No user of the cluster is bound to your token, and a password is accepted over HTTPS or on this machine only. {instead}</p>
      </Notice>
    );
  }
  if (of.known.credential === "bound") {
    return (
      <p className="muted">
        As {of.known.principal}, who needs {right}.
      </p>
    );
  }
  if (of.known.credential === "none") return <p className="muted">Without a user: this cluster has none, and every client on this machine may do it.</p>;
  return <p className="muted">The user needs {right}. The password is sent once and not kept.</p>;
}
