import { audit } from '../sessions/audit.ts';
import type { Tx, Verb } from '../store/tx.ts';
import { headRef, headsOf, record, type TaskOrder, unique } from './cancel.ts';
import { markReplayed } from './dead-letters-queries.ts';
import { applyTransitions, type TaskHead } from './queries.ts';
import { clearSetbacks, replaceArgs } from './retry-queries.ts';
import type { ArgValue } from './run-words.ts';
import { allows, type TaskState } from './states.ts';
import type { Emit, TaskEvent } from './task.ts';

export type RetryAnswer = { result: 'queued' } | { result: 'refused'; status: TaskState } | { result: 'unknown' };

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
 * one continues from its checkpoint. History is kept; a dead letter of the task is marked as replayed, with an audit entry.
 */
export async function retryTasks(tx: Tx, orders: readonly RetryOrder[], emit: Emit<TaskEvent>): Promise<RetryAnswer[]> {
  const heads = await headsOf(tx, orders);
  const chosen = unique(orders, heads).filter(({ head }) => retryable(head.status as TaskState));
  const heirs = chosen.filter(({ head }) => isOver(head));
  if (chosen.length > 0)
    await requeue(
      tx,
      chosen.map(({ head }) => head),
      emit,
    );
  if (heirs.length > 0) await startOver(tx, heirs);
  await record(tx, chosen, 'retried');
  return orders.map(({ id }) => {
    const head = heads.get(id);
    if (!head) return { result: 'unknown' };
    return retryable(head.status as TaskState)
      ? { result: 'queued' }
      : { result: 'refused', status: head.status as TaskState };
  });
}

const retryable = (status: TaskState) => allows('retry', status) || allows('release', status);
const isOver = (head: TaskHead) => allows('retry', head.status as TaskState);

async function requeue(tx: Tx, heads: readonly TaskHead[], emit: Emit<TaskEvent>): Promise<void> {
  const rows = heads.map((head) => {
    const again = isOver(head);
    return [
      head.id,
      head.status,
      null,
      'queued',
      null,
      tx.now,
      again ? 0 : head.attempt,
      again ? head.generation + 1 : head.generation,
      null,
      again ? null : head.started_at,
      null,
      null,
      null,
      null,
      null,
      null,
      null,
      null,
      head.session_key === null || head.notify_policy === 'silent' ? 'not_applicable' : 'pending',
    ];
  });
  const applied = new Set((await tx.all(applyTransitions, { rows, now: tx.now })).map((row) => row.id));
  for (const head of heads.filter(({ id }) => applied.has(id))) {
    const ref = { ...headRef(head), generation: isOver(head) ? head.generation + 1 : head.generation };
    emit(tx, [
      { type: 'task.reopened', ...ref },
      { type: 'task.state', from: head.status as TaskState, to: 'queued', reason: 'retried', ...ref },
      { type: 'task.queued', streamId: head.stream_id, priority: head.priority, runAt: tx.now, ...ref },
    ]);
  }
}

/** What a new generation begins without: old counts, old arguments, a dead letter that waits for a decision. */
async function startOver(tx: Tx, heirs: readonly { order: RetryOrder; head: TaskHead }[]): Promise<void> {
  await tx.run(clearSetbacks, { rows: heirs.map(({ head }) => [head.id]) });
  const edited = heirs.flatMap(({ order: { args }, head }) => (args === undefined ? [] : [[head.id, args.to]]));
  if (edited.length > 0) await tx.run(replaceArgs, { rows: edited });
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
