/** The dead letters of a group as a table; the bytes of a record are shown on request, as the operator's own user. */

import { useState } from "react";
import type { DeadLetter, DeadLetters } from "../api/dead_letter_shapes";
import { expiryText, replayable } from "../model/dead_letters";
import { count, printable } from "../model/format";
import { Notice, State, ThingLink, Time, useNow } from "../shell/parts";
import { RecordDialog } from "./record_dialog";

export function LetterTable({ found }: { found: DeadLetters }) {
  const [opened, setOpened] = useState<DeadLetter | null>(null);
  const expiry = expiryText(found.records, useNow());
  return (
    <section className="panel">
      <header>
        <h2>Records</h2>
        <span className="muted">{found.truncated ? `the newest ${count(found.letters.length)} of ${count(found.count)}` : count(found.count)}</span>
      </header>
      {expiry === null ? null : (
        <div className="body">
          <Notice state="attention" title={expiry}>
            <p>
              Replay them before, or raise <code>retention.ms</code> of their topics.
            </p>
          </Notice>
        </div>
      )}
      <div className="scroll" tabIndex={0} role="region" aria-label="Dead letters">
        <table>
          <thead>
            <tr>
              <th>When</th>
              <th>Record</th>
              <th>Reason</th>
              <th className="number narrow-hide">Deliveries</th>
              <th>Can be replayed</th>
              <th className="narrow-hide">Dead letter</th>
              <th>
                <span className="visually-hidden">Content</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {found.letters.map((letter) => (
              <LetterRow key={`${letter.topic_id} ${letter.partition} ${letter.offset} ${letter.dlq_offset}`} letter={letter} onShow={() => setOpened(letter)} />
            ))}
          </tbody>
        </table>
      </div>
      {opened === null ? null : <RecordDialog group={found.group} letter={opened} onClose={() => setOpened(null)} />}
    </section>
  );
}

function LetterRow({ letter, onShow }: { letter: DeadLetter; onShow: () => void }) {
  const { state, text } = replayable(letter, useNow());
  return (
    <tr>
      <td>
        <Time at={letter.dead_lettered_at} />
      </td>
      <td className="place">
        <ThingLink kind="topic" name={letter.topic} />{" "}
        <span className="muted">
          partition {letter.partition}, offset {letter.offset}
        </span>
      </td>
      <td className="reason">{letter.reason === null && letter.exception === null ? <span className="muted">–</span> : printable((letter.reason ?? letter.exception ?? "").slice(0, 300))}</td>
      <td className="number narrow-hide">{count(letter.delivery_count)}</td>
      <td>
        <State of={state}>{text}</State>
      </td>
      <td className="narrow-hide">
        <ThingLink kind="topic" name={letter.dlq_topic} />{" "}
        <span className="muted">
          {letter.dlq_partition}/{letter.dlq_offset}
          {letter.copies > 1 ? `, ${count(letter.copies)} times` : ""}
        </span>
      </td>
      <td>
        {letter.topic === null ? null : (
          <button type="button" onClick={onShow} aria-haspopup="dialog" aria-label={`Show the record at offset ${letter.offset}`}>
            Show…
          </button>
        )}
      </td>
    </tr>
  );
}
