/** The activity of an application, and the warning that its members run different topologies. */

import type { Mismatch } from "../api/attention_shapes";
import type { Application, Use } from "../api/shapes";
import { useResource } from "../api/use_resource";
import { hostsOf } from "../model/change_text";
import { tasksCommand } from "../model/commands";
import { count, printable, shortened } from "../model/format";
import { useGateway } from "../shell/gateway";
import { Command, Lasting, Notice, ThingLink, Time } from "../shell/parts";
import { Resource } from "../shell/resource";
import { UsesPanel } from "./uses_panel";

/** Beside every tab: a difference that lasts is a roll-out that hangs. */
export function MismatchBanner({ mismatch, name }: { mismatch: Mismatch; name: string }) {
  return (
    <Notice state="attention" title="Its members run different topologies">
      <ul>
        {mismatch.topologies.map((side, place) => (
          <li key={side.fingerprint ?? place}>
            <code title={printable(side.fingerprint ?? "")}>{printable((side.fingerprint ?? "unknown").slice(0, 12))}</code>{" "}
            {side.member_count === 1 ? "1 member" : `${count(side.member_count)} members`} on {printable(hostsOf(side.members))}
            {side.refused ? <span className="tag">refused by the broker</span> : null}{" "}
            <span className="muted">{side.members.map((one) => shortened(one.member ?? "name not known", 40)).join(", ")}</span>
          </li>
        ))}
      </ul>
      <p className="muted">
        This lasts <Lasting since={mismatch.since} />. During a roll-out it is expected; afterwards some members still run the old code.
      </p>
      <Command text={tasksCommand(name, useGateway())} />
    </Notice>
  );
}

export function Activity({ path, cluster, inCluster }: { path: string; cluster: string | null; inCluster: string }) {
  const found = useResource<Application>(`${path}${inCluster}`);
  return (
    <Resource of={found} what="application">
      {(data) => (
        <>
          {data.gaps.length === 0 ? null : (
            <Notice state="attention" title="The description and what is seen differ">
              <ul>
                {data.gaps.map((gap) => (
                  <li key={`${gap.kind} ${gap.topic} ${gap.direction}`}>
                    <ThingLink kind="topic" name={gap.topic} cluster={cluster} /> {gap.kind.replaceAll("_", " ")} ({gap.direction}), <Time at={gap.opened_at} />
                    {gap.state === "unknown" ? " – the gateway does not see all of this topic" : ""}
                  </li>
                ))}
              </ul>
            </Notice>
          )}
          <div className="columns">
            <Uses title="Reads" uses={data.reads} cluster={cluster} />
            <Uses title="Writes" uses={data.writes} cluster={cluster} />
          </div>
        </>
      )}
    </Resource>
  );
}

function Uses({ title, uses, cluster }: { title: string; uses: (Use & { topic: string | null })[]; cluster: string | null }) {
  return (
    <UsesPanel
      title={title}
      column="Topic"
      uses={uses}
      empty="Nothing that is known."
      keyOf={(use) => use.topic}
      first={(use) => <ThingLink kind="topic" name={use.topic} cluster={cluster} />}
    />
  );
}
