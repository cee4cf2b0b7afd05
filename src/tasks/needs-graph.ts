import { isFinal, type TaskState } from './states.ts';

/** What needs of tasks mean, without a database. Nothing here recurses: a chain may be as long as memory allows. */

/** `always`: the end of the needed task is enough, however it ended. */
export const NEED_CONDITIONS = ['success', 'always'] as const;
export type NeedCondition = (typeof NEED_CONDITIONS)[number];

/** Needs of all tasks of one batch, together. */
export const MAX_NEEDS = 1_000;

/** What is wrong with the needs of a batch, and where. */
export interface NeedFault {
  /** Index of the task, and of the need in its list. */
  readonly task: number;
  readonly need: number;
  readonly text: string;
}

/**
 * The first fault in the needs of a batch: an index that names no task of it, a need that is named twice, too many, or a circle (a task
 * that needs itself is the smallest). Texts are ids of tasks that exist already, which can close no circle: they need nothing new.
 * @param needs of each task of the batch, in order
 */
export function findFault(needs: readonly (readonly (number | string)[])[]): NeedFault | undefined {
  let count = 0;
  for (const [task, list] of needs.entries()) {
    const seen = new Set<number | string>();
    for (const [need, on] of list.entries()) {
      count += 1;
      if (count > MAX_NEEDS) return { task, need, text: `a batch may have ${MAX_NEEDS} needs and no more` };
      if (typeof on === 'number' && on >= needs.length)
        return { task, need, text: `there is no task ${on} in this batch; it has ${rangeOf(needs.length)}` };
      const key = typeof on === 'string' ? on.toLowerCase() : on;
      if (seen.has(key)) return { task, need, text: `${on} is named twice` };
      seen.add(key);
    }
  }
  return circleFault(needs);
}

/** A need that is not met, with what is known of the task that it is about. */
export interface UnmetNeed {
  readonly task: number;
  readonly on: number;
  readonly condition: NeedCondition;
  /** Null: that task is gone. */
  readonly status: TaskState | null;
}

/**
 * Of tasks that are to go on, those whose needs can still be met: none of them needs the success of a task that has ended without it,
 * unless that one is to go on as well.
 * @param needs all that are not met, of these tasks
 */
export function ableToGoOn(tasks: ReadonlySet<number>, needs: readonly UnmetNeed[]): Set<number> {
  const able = new Set(tasks);
  const dependents = new Map<number, number[]>();
  const stuck: number[] = [];
  for (const { task, on, condition, status } of needs) {
    if (condition === 'always') continue;
    if (tasks.has(on)) dependents.set(on, [...(dependents.get(on) ?? []), task]);
    else if (status === null || (isFinal(status) && status !== 'succeeded')) stuck.push(task);
  }
  for (let task = stuck.pop(); task !== undefined; task = stuck.pop())
    if (able.delete(task)) stuck.push(...(dependents.get(task) ?? []));
  return able;
}

const rangeOf = (count: number) => (count === 1 ? 'task 0 alone' : `tasks 0 to ${count - 1}`);

/** As many tasks of a circle are named. */
const NAMED = 20;

function circleFault(needs: readonly (readonly (number | string)[])[]): NeedFault | undefined {
  const circle = findCircle(needs.map((list) => list.filter((on) => typeof on === 'number')));
  if (!circle) return undefined;
  // Told from its smallest index, wherever the search met it.
  const start = circle.indexOf(Math.min(...circle));
  const path = [...circle.slice(start), ...circle.slice(0, start), circle[start]!];
  const task = path[0]!;
  const shown = path.length <= NAMED ? path : [...path.slice(0, NAMED - 1), '…', task];
  const text = `${shown.join(' → ')}: a task cannot need itself, not by way of others either`;
  return { task, need: needs[task]!.indexOf(path[1]!), text };
}

/** The tasks of a circle in order, each needing the next and the last the first; undefined where there is none. */
function findCircle(graph: readonly (readonly number[])[]): number[] | undefined {
  const done = new Set<number>();
  for (let from = 0; from < graph.length; from += 1) {
    const path: { node: number; next: number }[] = done.has(from) ? [] : [{ node: from, next: 0 }];
    const places = new Map([[from, 0]]);
    while (path.length > 0) {
      const top = path.at(-1)!;
      const on = graph[top.node]![top.next];
      top.next += 1;
      if (on === undefined) {
        path.pop();
        places.delete(top.node);
        done.add(top.node);
      } else if (places.has(on)) return path.slice(places.get(on)).map(({ node }) => node);
      else if (!done.has(on)) {
        places.set(on, path.length);
        path.push({ node: on, next: 0 });
      }
    }
  }
  return undefined;
}
