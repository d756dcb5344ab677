/** The tabs of an application that are lists: members and their tasks, versions with their difference, activity. */

import type { Application, Diff, DiffItem, Tasks, Use, Versions } from "../api/shapes";
import { useResource } from "../api/use_resource";
import { count, printable } from "../model/format";
import { shortVersion } from "../model/topology";
import { Link, Name, Notice, State, ThingLink, Time } from "../shell/parts";
import { Resource } from "../shell/resource";
import { UsesPanel } from "./uses_panel";

function inCluster(cluster: string | null, sign: "?" | "&"): string {
  return cluster === null ? "" : `${sign}cluster=${encodeURIComponent(cluster)}`;
}

export function Members({ path, cluster }: { path: string; cluster: string | null }) {
  const found = useResource<Tasks>(`${path}/tasks${inCluster(cluster, "?")}`);
  return (
    <Resource of={found} what="members">
      {(data) =>
        data.members.length === 0 ? (
          <Notice state="unknown" title="No member is known">
            <p>Members and their tasks appear when the application runs through the gateway with the protocol “streams”.</p>
          </Notice>
        ) : (
          <section className="panel scroll">
            <table>
              <thead>
                <tr>
                  <th>Host</th>
                  <th>Member</th>
                  <th>Tasks</th>
                </tr>
              </thead>
              <tbody>
                {data.members.map((member) => (
                  <tr key={member.member}>
                    <td>
                      <code>{printable(member.host)}</code>
                    </td>
                    <td>
                      <Name of={member.member} />
                      <br />
                      <span className="muted">{printable(member.client_id)}</span>
                    </td>
                    <td>
                      <ul>
                        {member.tasks.map((task) => (
                          <li key={`${task.task} ${task.role}`}>
                            <code>{task.task}</code> {task.role === "active" ? null : <span className="tag">{task.role}</span>}{" "}
                            <span className="muted">{task.stores.map(printable).join(", ")}</span>
                          </li>
                        ))}
                      </ul>
                      {member.tasks.length === 0 ? <span className="muted">none</span> : null}
                      {member.tasks_left_out > 0 ? <span className="muted">and {count(member.tasks_left_out)} more</span> : null}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </section>
        )
      }
    </Resource>
  );
}

export function VersionList({ path, cluster, linkTo }: { path: string; cluster: string | null; linkTo: (version: string) => string }) {
  const found = useResource<Versions>(`${path}/versions${inCluster(cluster, "?")}`);
  return (
    <Resource of={found} what="versions">
      {(data) => (
        <>
          <section className="panel scroll">
            <table>
              <thead>
                <tr>
                  <th>Version</th>
                  <th>Since</th>
                  <th>Until</th>
                  <th className="narrow-hide">Described by</th>
                  <th className="number">Nodes</th>
                  <th className="number narrow-hide">Sub-topologies</th>
                </tr>
              </thead>
              <tbody>
                {data.versions.map((one) => (
                  <tr key={`${one.version} ${one.provenance}`}>
                    <td>
                      <Link to={linkTo(one.version)}>
                        <code title={one.version}>{shortVersion(one.version)}</code>
                      </Link>
                    </td>
                    <td>
                      <Time at={one.at} />
                    </td>
                    <td>{one.current ? <span className="tag">current</span> : <Time at={one.ended_at} />}</td>
                    <td className="narrow-hide">
                      {one.provenance} {one.member === null ? null : <Name of={one.member} />}
                    </td>
                    <td className="number">{count(one.nodes)}</td>
                    <td className="number narrow-hide">{count(one.subtopologies)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </section>
          {data.versions.length > 1 ? <Difference path={path} cluster={cluster} /> : null}
        </>
      )}
    </Resource>
  );
}

const VERDICTS: Readonly<Record<string, readonly ["good" | "attention" | "stopped", string]>> = {
  safe: ["good", "The newer version can take over: state and offsets stay valid."],
  reset: ["attention", "The application must be reset before the newer version runs."],
  state_lost: ["stopped", "The newer version does not find the state of the older one."],
};

function Difference({ path, cluster }: { path: string; cluster: string | null }) {
  const found = useResource<Diff>(`${path}/diff?from=previous&to=latest${inCluster(cluster, "&")}`, 30_000);
  return (
    <section className="panel">
      <header>
        <h2>The last change</h2>
        {found.state === "ready" ? (
          <span className="muted">
            <code>{shortVersion(found.data.from)}</code> → <code>{shortVersion(found.data.to)}</code>
          </span>
        ) : null}
      </header>
      <div className="body">
        <Resource of={found} what="difference">
          {(diff) => (
            <>
              <p>
                <State of={VERDICTS[diff.verdict]?.[0] ?? "unknown"}>{VERDICTS[diff.verdict]?.[1] ?? diff.verdict}</State>
              </p>
              {diff.reasons.map((reason) => (
                <p key={reason} className="muted">
                  {printable(reason)}
                </p>
              ))}
              <ul className="list">
                <Items sign="+" title="added" items={diff.added} />
                <Items sign="−" title="removed" items={diff.removed} />
                <Items sign="~" title="changed" items={diff.changed} />
                <Items sign="→" title="moved" items={diff.moved} />
                {diff.renamed.map((one) => (
                  <li key={`${one.from} ${one.to}`}>
                    <code aria-label="renamed">↷</code> <Name of={one.from} /> → <Name of={one.to} />
                  </li>
                ))}
              </ul>
            </>
          )}
        </Resource>
      </div>
    </section>
  );
}

function Items({ sign, title, items }: { sign: string; title: string; items: DiffItem[] }) {
  return items.map((item) => (
    <li key={`${item.kind} ${item.name}`}>
      <code aria-label={title}>{sign}</code>
      <span>{item.kind.replaceAll("_", " ")}</span>
      <Name of={item.name} />
    </li>
  ));
}

export function Activity({ path, cluster }: { path: string; cluster: string | null }) {
  const found = useResource<Application>(`${path}${inCluster(cluster, "?")}`);
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
