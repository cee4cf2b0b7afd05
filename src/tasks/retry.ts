import { audit } from '../sessions/audit.ts';
import type { Tx, Verb } from '../store/tx.ts';
import { headsOf, record, type TaskOrder, unique } from './cancel.ts';
import { forgetCheckpoints } from './checkpoints.ts';
import { markReplayed } from './dead-letters-queries.ts';
import { unmetNeeds } from './needs.ts';
import { ableToGoOn } from './needs-graph.ts';
import type { TaskHead } from './queries.ts';
import { isOver, reopen } from './reopen.ts';
import { clearSetbacks, replaceArgs } from './retry-queries.ts';
import type { ArgValue } from './run-words.ts';
import { allows, type TaskState } from './states.ts';
import type { Emit, TaskEvent } from './task.ts';

export type RetryAnswer =
  /** `waits`: some of its needs are not met, so it goes back to waiting for them. */
  | { result: 'queued'; waits?: true }
  /** `needs`: it waits for other tasks, or one that it needs has ended without success and is to be retried first. */
  | { result: 'refused'; status: TaskState; because?: 'needs' }
  | { result: 'unknown' };

/** A person's wish to run a task again. */
export interface RetryOrder extends TaskOrder {
  /** Only for a finished task: the arguments it had, and those it is to have; checked by the caller. */
  args?: { from: Record<string, ArgValue>; to: Record<string, ArgValue> };
  /** Why, in the person's words; kept with a dead letter. */
  reason?: string;
}

export function retryTasksVerb(emit: Emit<TaskEvent>): Verb<RetryOrder, RetryAnswer> {
  return { name: 'task.retry', rank: 60, run: (tx, items) => retryTasks(tx, items, emit) };
}

/**
 * A person's decision to run again: a finished task starts its next generation (attempts from zero, one more notification), a blocked
 * one goes on in its own. Both continue from the checkpoint, unless the arguments are others. History is kept; a dead letter of the task is marked as replayed, with an audit entry.
 */
export async function retryTasks(tx: Tx, orders: readonly RetryOrder[], emit: Emit<TaskEvent>): Promise<RetryAnswer[]> {
  const heads = await headsOf(tx, orders);
  const wanted = unique(orders, heads).filter(({ head }) => isRetryable(head));
  const held = await heldByNeeds(
    tx,
    wanted.map(({ head }) => head),
  );
  const chosen = wanted.filter(({ head }) => held.get(head.id) !== 'for good');
  const heirs = chosen.filter(({ head }) => isOver(head));
  await reopen(
    tx,
    chosen.map(({ head }) => ({ head, to: held.has(head.id) ? 'waiting' : 'queued', reason: 'retried' })),
    emit,
  );
  if (heirs.length > 0) await startOver(tx, heirs);
  await record(tx, chosen, 'retried');
  return orders.map(({ id }) => answerOf(heads.get(id), held));
}

function answerOf(head: TaskHead | undefined, held: ReadonlyMap<number, Held>): RetryAnswer {
  if (!head) return { result: 'unknown' };
  const status = head.status as TaskState;
  if (waitsForNeeds(head) || held.get(head.id) === 'for good') return { result: 'refused', status, because: 'needs' };
  if (!isRetryable(head)) return { result: 'refused', status };
  return held.has(head.id) ? { result: 'queued', waits: true } : { result: 'queued' };
}

const waitsForNeeds = (head: TaskHead) => head.status === 'waiting' && head.reason === 'needs';
const isRetryable = (head: TaskHead) =>
  isOver(head) || (allows('release', head.status as TaskState) && !waitsForNeeds(head));

/** By needs that are not met; `for good` where one of them cannot be. */
type Held = 'for now' | 'for good';

/** Which of these tasks could not be queued at once. What is retried together counts as going on. */
async function heldByNeeds(tx: Tx, heads: readonly TaskHead[]): Promise<Map<number, Held>> {
  const linked = heads.filter((head) => head.graph === 1 && isOver(head));
  if (linked.length === 0) return new Map();
  const needs = await unmetNeeds(
    tx,
    linked.map(({ id }) => id),
  );
  const able = ableToGoOn(new Set(heads.map(({ id }) => id)), needs);
  return new Map(needs.map(({ task }) => [task, able.has(task) ? 'for now' : 'for good']));
}

/** What a new generation begins without: old counts, old arguments, a dead letter that waits for a decision. */
async function startOver(tx: Tx, heirs: readonly { order: RetryOrder; head: TaskHead }[]): Promise<void> {
  await tx.run(clearSetbacks, { rows: heirs.map(({ head }) => [head.id]) });
  const edited = heirs.flatMap(({ order: { args }, head }) => (args === undefined ? [] : [[head.id, args.to]]));
  if (edited.length > 0) {
    await tx.run(replaceArgs, { rows: edited });
    // What was done with other arguments is no place to go on from.
    await forgetCheckpoints(
      tx,
      edited.map(([id]) => id as number),
    );
  }
  const rows = heirs
    .filter(({ head }) => head.status !== 'cancelled')
    .map(({ order, head }) => [head.id, order.by, order.reason ?? null]);
  if (rows.length === 0) return;
  const marked = new Set((await tx.all(markReplayed, { rows, now: tx.now })).map((row) => row.task_id));
  for (const { order, head } of heirs) {
    if (!marked.has(head.id)) continue;
    const data = {
      ...(order.reason === undefined ? {} : { reason: order.reason }),
      ...(order.args === undefined ? {} : { args: order.args }),
    };
    await audit(tx, { actor: order.by, action: 'dead_letter.replayed', target: auditTarget(head.id), data });
  }
}

/** A task as the target of an audit entry, by its row; readers show it as `task/<public id>`. */
export const auditTarget = (taskId: number): string => `task#${taskId}`;
