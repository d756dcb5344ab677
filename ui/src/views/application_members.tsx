/** Members of an application: which host holds which task in which role, with its stores and its lag. */

import type { Member, Task, Tasks } from "../api/shapes";
import { useResource } from "../api/use_resource";
import { count, printable } from "../model/format";
import { columnCount, MOST_COLUMNS, partition, taskMatrix, type TaskMatrix } from "../model/task_matrix";
import { Name, Notice } from "../shell/parts";
import { Resource } from "../shell/resource";

export function Members({ path, inCluster }: { path: string; inCluster: string }) {
  const found = useResource<Tasks>(`${path}/tasks${inCluster}`);
  return (
    <Resource of={found} what="members">
      {(data) =>
        data.members.length === 0 ? (
          <Notice state="unknown" title="No member is known">
            <p>Members and their tasks appear when the application runs through the gateway with the protocol “streams”.</p>
          </Notice>
        ) : (
          <Shown members={data.members} isTruncated={data.truncated} />
        )
      }
    </Resource>
  );
}

function Shown({ members, isTruncated }: { members: Member[]; isTruncated: boolean }) {
  const matrix = taskMatrix(members);
  return (
    <>
      {columnCount(matrix) <= MOST_COLUMNS ? <Matrix matrix={matrix} /> : <TaskLists members={members} />}
      {isTruncated ? <p className="muted">Only the first 1,000 tasks are listed.</p> : null}
    </>
  );
}

const ROLES: Readonly<Record<string, readonly [string, string]>> = {
  active: ["●", "active"],
  standby: ["○", "standby"],
  warmup: ["◔", "warm-up"],
};

function Matrix({ matrix }: { matrix: TaskMatrix }) {
  return (
    <section className="panel">
      <header>
        <h2>Hosts and tasks</h2>
        <span className="muted roles">
          {Object.values(ROLES).map(([sign, word]) => (
            <span key={word}>
              {sign} {word}
            </span>
          ))}
          <span>numbers: records that a copy of a store is behind</span>
        </span>
      </header>
      <div className="scroll" tabIndex={0} role="region" aria-label="Hosts and tasks">
        <table className="matrix">
          <thead>
            <tr>
              <th rowSpan={2}>Host</th>
              <th rowSpan={2} className="narrow-hide">
                Member
              </th>
              {matrix.parts.map((part) => (
                <th key={part.id} colSpan={part.tasks.length} className="part">
                  Sub-topology {printable(part.id)}
                  {part.stores.length === 0 ? null : <span className="stores">{part.stores.map(printable).join(", ")}</span>}
                </th>
              ))}
            </tr>
            <tr>
              {matrix.parts.flatMap((part) =>
                part.tasks.map((task, place) => (
                  <th key={task} className={place === 0 ? "cell part" : "cell"}>
                    <abbr title={`Task ${printable(task)}`}>{printable(partition(task))}</abbr>
                  </th>
                )),
              )}
            </tr>
          </thead>
          <tbody>
            {matrix.rows.map(({ member, cells }) => (
              <tr key={member.member}>
                <td>
                  <code>{printable(member.host)}</code>
                  {member.tasks_left_out === 0 ? null : <span className="tag">and {count(member.tasks_left_out)} more tasks</span>}
                </td>
                <td className="narrow-hide">
                  <Name of={member.member} />
                </td>
                {matrix.parts.flatMap((part) =>
                  part.tasks.map((task, place) => (
                    <td key={task} className={place === 0 ? "cell part" : "cell"}>
                      <Cell task={cells.get(task)} host={member.host} />
                    </td>
                  )),
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Cell({ task, host }: { task: Task | undefined; host: string }) {
  if (task === undefined) return null;
  const [sign, word] = ROLES[task.role ?? ""] ?? ["◆", task.role ?? "unknown"];
  const stores = task.stores.length === 0 ? "" : `, stores ${task.stores.map(printable).join(", ")}`;
  const lag = task.lag === null ? "" : `, ${count(task.lag)} records behind`;
  return (
    <span className={`role ${task.role ?? ""}`} title={`${printable(task.task)} ${word} on ${printable(host)}${stores}${lag}`}>
      <i aria-hidden="true">{sign}</i>
      <span className="visually-hidden">{word}</span>
      {task.lag === null || task.role === "active" ? null : <span className="lag">{count(task.lag)}</span>}
    </span>
  );
}

function TaskLists({ members }: { members: Member[] }) {
  return (
    <section className="panel scroll" tabIndex={0} aria-label="Members and their tasks">
      <table>
        <thead>
          <tr>
            <th>Host</th>
            <th>Member</th>
            <th>Tasks</th>
          </tr>
        </thead>
        <tbody>
          {members.map((member) => (
            <tr key={member.member}>
              <td>
                <code>{printable(member.host)}</code>
              </td>
              <td>
                <Name of={member.member} />
              </td>
              <td>
                {member.tasks.map((task) => (
                  <span key={`${task.task} ${task.role}`}>
                    <Cell task={task} host={member.host} /> <code>{printable(task.task)}</code>{" "}
                  </span>
                ))}
                {member.tasks.length === 0 ? <span className="muted">none</span> : null}
                {member.tasks_left_out > 0 ? <span className="muted">and {count(member.tasks_left_out)} more</span> : null}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
