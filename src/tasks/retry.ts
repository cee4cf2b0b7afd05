import type { Tx, Verb } from '../store/tx.ts';
import { headRef, headsOf, record, type TaskOrder, unique } from './cancel.ts';
import { applyTransitions, type TaskHead } from './queries.ts';
import { allows, type TaskState } from './states.ts';
import type { Emit, TaskEvent } from './task.ts';

export type RetryAnswer = { result: 'queued' } | { result: 'refused'; status: TaskState } | { result: 'unknown' };

export function retryTasksVerb(emit: Emit<TaskEvent>): Verb<TaskOrder, RetryAnswer> {
  return { name: 'task.retry', rank: 60, run: (tx, items) => retryTasks(tx, items, emit) };
}

/**
 * A person's decision to run again: a finished task starts its next generation (attempts from zero, one more notification), a blocked
 * one continues from its checkpoint. History is kept.
 */
export async function retryTasks(tx: Tx, orders: readonly TaskOrder[], emit: Emit<TaskEvent>): Promise<RetryAnswer[]> {
  const heads = await headsOf(tx, orders);
  const chosen = unique(orders, heads).filter(({ head }) => retryable(head.status as TaskState));
  if (chosen.length > 0)
    await requeue(
      tx,
      chosen.map(({ head }) => head),
      emit,
    );
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

async function requeue(tx: Tx, heads: readonly TaskHead[], emit: Emit<TaskEvent>): Promise<void> {
  const rows = heads.map((head) => {
    const again = allows('retry', head.status as TaskState);
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
    const again = allows('retry', head.status as TaskState);
    const ref = { ...headRef(head), generation: again ? head.generation + 1 : head.generation };
    emit(tx, [
      { type: 'task.reopened', ...ref },
      { type: 'task.state', from: head.status as TaskState, to: 'queued', reason: 'retried', ...ref },
      { type: 'task.queued', streamId: head.stream_id, priority: head.priority, runAt: tx.now, ...ref },
    ]);
  }
}
