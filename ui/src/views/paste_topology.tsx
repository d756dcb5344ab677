/** A topology as text: its picture, its content and its flaws, before any application runs it. */

import { useState } from "react";
import { type Parsed, parseTopology } from "../api/parse_topology";
import { TopologyPicture } from "../map/topology_picture";
import { publishCommand } from "../model/commands";
import { count, printable } from "../model/format";
import { useGateway } from "../shell/gateway";
import { Command, Crumb, Notice } from "../shell/parts";
import { Outline } from "./topology_outline";

const EXAMPLE = `Topologies:
   Sub-topology: 0
    Source: orders-in (topics: [orders])
      --> count
    Processor: count (stores: [counts])
      --> totals-out
      <-- orders-in
    Sink: totals-out (topic: totals)
      <-- count
`;
/** As the server's own bound. */
const MOST_CHARACTERS = 1024 * 1024;

export function PasteTopology() {
  const [text, setText] = useState("");
  const [isBusy, setIsBusy] = useState(false);
  const [found, setFound] = useState<Parsed | string | null>(null);
  return (
    <div className="content">
      <div className="heading">
        <h1>
          <Crumb to="/apps">Applications</Crumb>
          Paste a topology
        </h1>
      </div>
      <form
        className="paste"
        onSubmit={(event) => {
          event.preventDefault();
          setIsBusy(true);
          void parseTopology(text).then((answer) => {
            setFound(answer);
            setIsBusy(false);
          });
        }}
      >
        <label htmlFor="topology-text">
          The text of <code>Topology#describe()</code>, as Kafka 0.11 or later prints it. Nothing is kept.
        </label>
        <textarea id="topology-text" value={text} maxLength={MOST_CHARACTERS} rows={10} spellCheck={false} onChange={(event) => setText(event.target.value)} />
        <span className="actions">
          <button type="submit" className="button primary" disabled={text.trim() === "" || isBusy}>
            Show the topology
          </button>
          <button type="button" onClick={() => setText(EXAMPLE)}>
            Insert an example
          </button>
        </span>
      </form>
      <div role="status">{isBusy ? <p className="muted">Reading the text…</p> : null}</div>
      {typeof found === "string" ? (
        <Notice state="stopped" title="The text could not be read">
          <p>{printable(found)}</p>
        </Notice>
      ) : null}
      {found !== null && typeof found !== "string" ? <Shown parsed={found} /> : null}
    </div>
  );
}

function Shown({ parsed }: { parsed: Parsed }) {
  const gateway = useGateway();
  return (
    <>
      {parsed.findings.length === 0 ? (
        <Notice state="good" title="The text is a whole topology">
          <p className="muted">
            Content hash <code>{parsed.hash.slice(0, 19)}</code>. To keep it as a version of an application, before it runs:
          </p>
          <Command text={publishCommand(gateway)} />
        </Notice>
      ) : (
        <Notice state="attention" title={`${count(parsed.findings.length)} ${parsed.findings.length === 1 ? "flaw" : "flaws"}`}>
          <ul>
            {parsed.findings.map((one, place) => (
              <li key={place}>{printable(one.text)}</li>
            ))}
          </ul>
        </Notice>
      )}
      <section className="panel">
        <TopologyPicture description={parsed.description} />
      </section>
      <Outline description={parsed.description} />
    </>
  );
}
