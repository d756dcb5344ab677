/** Which member holds which task, as a table: a row for each member, a column for each task. */

import type { Member, Task } from "../api/shapes";

export interface MatrixRow {
  member: Member;
  /** By the name of the task; a member can hold a task in one role only. */
  cells: ReadonlyMap<string, Task>;
}

export interface TaskMatrix {
  /** Columns by sub-topology, with the stores of its tasks. */
  parts: { id: string; tasks: string[]; stores: string[] }[];
  rows: MatrixRow[];
}

/** More columns than this do not fit a screen, and are shown as lists. */
export const MOST_COLUMNS = 48;

export function taskMatrix(members: readonly Member[]): TaskMatrix {
  const parts = new Map<string, { tasks: Set<string>; stores: Set<string> }>();
  for (const member of members) {
    for (const task of member.tasks) {
      const id = partOf(task.task);
      const part = parts.get(id) ?? { tasks: new Set(), stores: new Set() };
      part.tasks.add(task.task);
      for (const store of task.stores) part.stores.add(store);
      parts.set(id, part);
    }
  }
  const sorted = [...parts].sort(([a], [b]) => inOrder(a, b));
  return {
    parts: sorted.map(([id, part]) => ({ id, tasks: [...part.tasks].sort((a, b) => inOrder(partition(a), partition(b))), stores: [...part.stores].sort() })),
    rows: [...members]
      .sort((a, b) => a.host.localeCompare(b.host) || a.member.localeCompare(b.member))
      .map((member) => ({ member, cells: new Map(member.tasks.map((task) => [task.task, task])) })),
  };
}

export function columnCount(matrix: TaskMatrix): number {
  return matrix.parts.reduce((sum, part) => sum + part.tasks.length, 0);
}

function partOf(task: string): string {
  const end = task.lastIndexOf("_");
  return end < 0 ? task : task.slice(0, end);
}

export function partition(task: string): string {
  return task.slice(task.lastIndexOf("_") + 1);
}

function inOrder(a: string, b: string): number {
  return a.localeCompare(b, "en", { numeric: true });
}
