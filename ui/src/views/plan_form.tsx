/** The form for a plan: what is to be put back, and where. Making a plan writes nothing to the topics of users. */

import { type FormEvent, useEffect, useId, useState } from "react";
import { useOperator } from "../actions/credential";
import { send } from "../actions/send";
import type { PlanRequest } from "../api/replay_shapes";
import { useResource } from "../api/use_resource";
import { duration } from "../model/format";
import { emptyForm, formProblem, isFanout, planBody, planCommand, type PlanForm, requestLines } from "../model/plans";
import { thingPath } from "../model/route";
import { Command, Crumb, Link, Message, Name, Notice, useNow } from "../shell/parts";
import { go } from "../shell/router";

const POLL_MS = 1_000;
const COLUMNS = "topic, partition, offset, reason, exception, member, delivery_count, schema_id, type_header, key_hash, size_bytes, source_state, copied, dead_lettered_at";

/** `request`: one that was sent before, so that a page that is loaded again goes on waiting for it. */
export function PlanFormView({ group, episode, request }: { group: string; episode: string; request: string | null }) {
  const [form, setForm] = useState<PlanForm>(() => emptyForm(group, episode));
  /** What the request was made of; null for one that another visit of the page has sent. */
  const [sent, setSent] = useState<PlanForm | null>(null);
  const [isSending, setIsSending] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const operator = useOperator();
  const refusal = operator.refusal ?? (operator.known !== null && !operator.known.may_operate ? "Your token may not operate" : null);
  const missing = formProblem(form);

  function change(changes: Partial<PlanForm>): void {
    setForm((before) => ({ ...before, ...changes }));
  }

  async function submit(asked: PlanForm): Promise<void> {
    if (isSending) return;
    setIsSending(true);
    setProblem(null);
    setSent(asked);
    const answer = await send<{ request: string }>("plans", planBody(asked));
    setIsSending(false);
    if (answer.isDone) go(thingPath("letters", null, group, { new: "plan", episode, request: answer.data.request }), true);
    else setProblem(answer.message);
  }

  return (
    <div className="content">
      <div className="heading">
        <h1>
          <Crumb to="/letters">Dead letters</Crumb>
          <Crumb to={thingPath("letters", null, group)}>
            <Name of={group} />
          </Crumb>
          Plan a replay
        </h1>
      </div>
      <p>A plan is a fixed list: which records, in which order, to where. Making one writes nothing to your topics; it is replayed in a second step.</p>
      {request === null || isSending ? null : (
        <Waiting
          id={request}
          group={group}
          onAccept={
            sent === null
              ? null
              : () => {
                  setForm({ ...sent, acceptFanout: true });
                  void submit({ ...sent, acceptFanout: true });
                }
          }
        />
      )}
      {problem === null ? null : (
        <Notice state="stopped" title="The plan could not be asked for">
          <pre className="told">{requestLines(problem).join("\n")}</pre>
        </Notice>
      )}
      {refusal === null ? null : (
        <Notice state="attention" title="This page cannot do it">
          <p>
            <Message of={refusal} /> Run the command below.
          </p>
        </Notice>
      )}
      <form
        className="panel plan-form"
        aria-label="Plan"
        onSubmit={(event: FormEvent) => {
          event.preventDefault();
          void submit(form);
        }}
      >
        <div className="fields body">
          <Which form={form} change={change} />
          <div className="stack">
            <Where form={form} change={change} />
            <Options form={form} change={change} />
          </div>
        </div>
        <div className="body foot">
          <p className="muted">The same on the command line:</p>
          <Command text={planCommand(form)} />
          <div className="actions">
            <button type="submit" className="button primary" disabled={isSending || missing !== null || refusal !== null}>
              {isSending ? "Asking…" : "Make the plan"}
            </button>
            {missing === null ? null : <span className="muted">{missing}</span>}
          </div>
        </div>
      </form>
    </div>
  );
}

type Part = { form: PlanForm; change: (changes: Partial<PlanForm>) => void };

function Which({ form, change }: Part) {
  const help = useId();
  return (
    <fieldset>
      <legend>Which dead letters</legend>
      <div className="pair">
        <label>
          Of
          <select value={form.by} onChange={(event) => change({ by: event.target.value === "topic" ? "topic" : "group" })}>
            <option value="group">the group</option>
            <option value="topic">the dead-letter topic</option>
          </select>
        </label>
        <label>
          {form.by === "group" ? "Group" : "Dead-letter topic"}
          <input type="text" value={form.name} onChange={(event) => change({ name: event.target.value })} required maxLength={255} autoComplete="off" spellCheck={false} />
        </label>
      </div>
      <label>
        <span>
          Episode <span className="muted">(empty: all)</span>
        </span>
        <input type="text" value={form.episode} onChange={(event) => change({ episode: event.target.value })} maxLength={100} autoComplete="off" spellCheck={false} />
      </label>
      <div className="pair">
        <label>
          Dead-lettered since
          <input type="datetime-local" value={form.since} onChange={(event) => change({ since: event.target.value })} />
        </label>
        <label>
          until
          <input type="datetime-local" value={form.until} onChange={(event) => change({ until: event.target.value })} />
        </label>
      </div>
      <label>
        <span>
          Where <span className="muted">(empty: all)</span>
        </span>
        <input type="text" className="mono" value={form.where} onChange={(event) => change({ where: event.target.value })} placeholder="reason like '%timed out%' and partition = 3" aria-describedby={help} maxLength={4096} autoComplete="off" spellCheck={false} />
      </label>
      <p id={help} className="muted">
        Comparisons, in (…), like, is null, and, or, not, of {COLUMNS} and the other columns of the table dead_letters.
      </p>
    </fieldset>
  );
}

function Where({ form, change }: Part) {
  return (
    <fieldset>
      <legend>Where to</legend>
      <label className="choice">
        <input type="radio" name="to" checked={form.to === "original"} onChange={() => change({ to: "original" })} />
        Each record to its own topic and partition
      </label>
      <label className="choice">
        <input type="radio" name="to" checked={form.to === "topic"} onChange={() => change({ to: "topic" })} />
        All of them to another topic
      </label>
      {form.to === "original" ? null : (
        <label>
          Topic
          <input type="text" value={form.target} onChange={(event) => change({ target: event.target.value })} required maxLength={249} autoComplete="off" spellCheck={false} />
        </label>
      )}
    </fieldset>
  );
}

function Options({ form, change }: Part) {
  return (
    <fieldset>
      <legend>Also</legend>
      <label className="choice">
        <input type="checkbox" checked={form.includeSuperseded} onChange={(event) => change({ includeSuperseded: event.target.checked })} />
        <span>
          Records whose partition has a later one of the same key
          <span className="muted"> – where every record counts, such as payments; else newer data would be overwritten</span>
        </span>
      </label>
      <label className="choice">
        <input type="checkbox" checked={form.acceptFanout} onChange={(event) => change({ acceptFanout: event.target.checked })} />
        <span>
          Other readers of the target may get the records again
          <span className="muted"> – without this, a plan for a topic with other readers is refused, with their names</span>
        </span>
      </label>
    </fieldset>
  );
}

/** What the pipeline makes of the request. */
function Waiting({ id, group, onAccept }: { id: string; group: string; onAccept: (() => void) | null }) {
  const found = useResource<PlanRequest>(`plan-requests/${encodeURIComponent(id)}`, POLL_MS);
  const now = useNow();
  const plan = found.state === "ready" && found.data.state === "DONE" ? found.data.plan : null;
  useEffect(() => {
    if (plan !== null) go(thingPath("letters", null, group, { plan }), true);
  }, [plan, group]);
  if (found.state === "loading") return <p className="muted">Asking for the state of the plan…</p>;
  if (found.state !== "ready") {
    return (
      <Notice state="stopped" title="The state of the plan is not known">
        <p>
          <Message of={found.problem.message} />
        </p>
      </Notice>
    );
  }
  const { state, text, at } = found.data;
  const told = text === null ? null : <pre className="told">{requestLines(text).join("\n")}</pre>;
  switch (state) {
    case "WAITING":
      return (
        <Notice state={now - at > 30_000 ? "attention" : "unknown"} title={`Waiting for the pipeline (${duration(Math.max(0, now - at))})`}>
          {told ?? <p>A running pipeline takes the request within seconds.</p>}
        </Notice>
      );
    case "RUNNING":
      return (
        <Notice state="good" title={`The pipeline makes the plan (${duration(Math.max(0, now - at))})`}>
          {told}
        </Notice>
      );
    case "DONE":
      return (
        <Notice state="good" title="The plan is made">
          {plan === null ? null : <Link to={thingPath("letters", null, group, { plan })}>Open it</Link>}
        </Notice>
      );
    case "REFUSED":
      return (
        <Notice state="attention" title="There is no plan: it was refused">
          {told}
          {isFanout(found.data) && onAccept === null ? <p>If they may get the records again, ask for the plan with that box checked.</p> : null}
          {isFanout(found.data) && onAccept !== null ? (
            <div className="actions">
              <button type="button" onClick={onAccept}>
                These readers may get the records again: make the plan
              </button>
            </div>
          ) : null}
        </Notice>
      );
    case "FAILED":
      return (
        <Notice state="stopped" title="The plan could not be made">
          {told}
        </Notice>
      );
  }
}
