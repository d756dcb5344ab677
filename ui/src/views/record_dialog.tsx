/** The content of one record, as hex and as text: read with the operator's own rights, at that moment, and kept nowhere. */

import { type FormEvent, useState } from "react";
import { ActingAs, CredentialFields, useOperator } from "../actions/credential";
import { ActionDialog } from "../actions/dialog";
import { send, type Sent } from "../actions/send";
import type { DeadLetter } from "../api/dead_letter_shapes";
import type { RecordBytes, ShownRecord } from "../api/replay_shapes";
import { readRecordCommand } from "../model/commands";
import { bytes, count, exact, printable } from "../model/format";
import { hexRows, prettyText, sizeText } from "../model/record_bytes";
import { useGateway } from "../shell/gateway";
import { Command, Message, Name, Notice } from "../shell/parts";

export function RecordDialog({ group, letter, onClose }: { group: string; letter: DeadLetter; onClose: () => void }) {
  const [isSending, setIsSending] = useState(false);
  const [found, setFound] = useState<Sent<ShownRecord> | null>(null);
  const operator = useOperator();
  const gateway = useGateway();
  const topic = letter.topic ?? "";

  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault();
    if (isSending || !operator.mayAct) return;
    setIsSending(true);
    const place = { group, topic, partition: letter.partition, offset: letter.offset, topic_id: letter.topic_id };
    const credential = operator.credential();
    setFound(await send<ShownRecord>("dead-letters/record", credential === null ? place : { ...place, credential }));
    operator.forgetPassword();
    setIsSending(false);
  }

  const record = found?.isDone === true ? found.data : null;
  return (
    <ActionDialog
      title={
        <>
          Record <Name of={topic} />
          {`/${letter.partition}/${letter.offset}`}
        </>
      }
      isWide
      onClose={onClose}
      onSubmit={submit}
    >
      {(close) => (
        <>
          {record === null ? (
            <>
              <p>Its content may be confidential: it is read when you ask for it, with your own rights, and it is kept nowhere.</p>
              <CredentialFields of={operator} />
              <ActingAs of={operator} right="READ on the topic" instead="Read it as your own user." />
              {found !== null && !found.isDone ? (
                <Notice state="stopped" title="The record could not be read">
                  <p>
                    <Message of={found.message} />
                  </p>
                </Notice>
              ) : null}
              <p className="muted">The same with Kafka's own tool:</p>
              <Command text={readRecordCommand({ ...letter, topic }, gateway)} />
            </>
          ) : (
            <Content of={record} />
          )}
          <div className="actions">
            <button type="button" onClick={close}>
              {record === null ? "Cancel" : "Close"}
            </button>
            {record === null ? (
              <button type="submit" className="button primary" disabled={!operator.mayAct || isSending || !operator.isComplete}>
                {isSending ? "Reading…" : "Read the record"}
              </button>
            ) : null}
          </div>
        </>
      )}
    </ActionDialog>
  );
}

function Content({ of }: { of: ShownRecord }) {
  return (
    <>
      <dl className="facts">
        <dt>Read from</dt>
        <dd>
          {of.from === "source" ? (
            "its topic"
          ) : (
            <>
              the copy in its dead letter, <Name of={of.dead_letter.topic} /> {of.dead_letter.partition}/{of.dead_letter.offset}
            </>
          )}
        </dd>
        <dt>Reason</dt>
        <dd>{of.dead_letter.reason === null ? <span className="muted">not told</span> : printable(of.dead_letter.reason.slice(0, 1_000))}</dd>
        <dt>Timestamp</dt>
        <dd>{of.timestamp === null ? "none" : exact(of.timestamp)}</dd>
        <dt>Size</dt>
        <dd>{bytes(of.size)}</dd>
      </dl>
      <Bytes title="Key" of={of.key} />
      <Bytes title="Value" of={of.value} />
      <details>
        <summary>
          {of.headers.length === 0 ? "No headers" : `${count(of.headers.length)}${of.headers_truncated ? " and more" : ""} ${of.headers.length === 1 ? "header" : "headers"}`}
        </summary>
        {of.headers.map((header, place) => (
          <Bytes key={`${place} ${header.name}`} title={printable(header.name.slice(0, 300))} of={header.value} />
        ))}
      </details>
    </>
  );
}

type Form = "text" | "hex";

function Bytes({ title, of }: { title: string; of: RecordBytes | null }) {
  const text = of === null ? null : prettyText(of);
  const [form, setForm] = useState<Form>(text === null ? "hex" : "text");
  return (
    <section className="record-bytes" aria-label={title}>
      <header>
        <h3>{title}</h3>
        <span className="muted">{of === null ? "null" : `${sizeText(of)}${text === null ? ", not UTF-8" : ""}`}</span>
        <span className="space" />
        {of === null || of.size === 0 ? null : (
          <span className="segments" role="radiogroup" aria-label={`${title} as`}>
            {(["text", "hex"] as const).map((one) => (
              <button key={one} type="button" role="radio" aria-checked={form === one} disabled={one === "text" && text === null} onClick={() => setForm(one)}>
                {one === "text" ? "Text" : "Hex"}
              </button>
            ))}
          </span>
        )}
      </header>
      {of === null || of.size === 0 ? null : form === "text" && text !== null ? (
        <pre tabIndex={0} aria-label={`${title} as text`}>
          <bdi>{text}</bdi>
        </pre>
      ) : (
        <pre tabIndex={0} aria-label={`${title} as hex`}>
          {hexRows(of.hex)
            .map((row) => `${row.offset}  ${row.hex.padEnd(48)}  |${row.characters}|`)
            .join("\n")}
        </pre>
      )}
    </section>
  );
}
