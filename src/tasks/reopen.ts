import type { Tx } from '../store/tx.ts';
import { headRef } from './cancel.ts';
import { applyTransitions, type TaskHead } from './queries.ts';
import { allows, type TaskState } from './states.ts';
import type { Emit, TaskEvent } from './task.ts';

/** A task that is to go on. */
export interface Reopening {
  readonly head: TaskHead;
  /** `waiting`: some of its needs are not met. */
  readonly to: 'queued' | 'waiting';
  /** Why, as a stable word for its event. */
  readonly reason: string;
}

/** Whether the task has ended without success, so that going on is its next generation. */
export const isOver = (head: TaskHead): boolean => allows('retry', head.status as TaskState);

/**
 * Lets tasks go on: one that is over starts its next generation, a blocked one continues in its own. Where that one has used up its
 * executions, the person's wish is worth the last of them once more: their number never exceeds the limit.
 */
export async function reopen(tx: Tx, items: readonly Reopening[], emit: Emit<TaskEvent>): Promise<void> {
  if (items.length === 0) return;
  const rows = items.map((item) => rowOf(item, tx.now));
  const applied = new Set((await tx.all(applyTransitions, { rows, now: tx.now })).map((row) => row.id));
  emit(
    tx,
    items.filter(({ head }) => applied.has(head.id)).flatMap((item) => eventsOf(item, tx.now)),
  );
}

function rowOf({ head, to }: Reopening, now: number): unknown[] {
  const again = isOver(head);
  return [
    head.id,
    head.status,
    null,
    to,
    null,
    to === 'queued' ? now : null,
    again ? 0 : Math.min(head.attempt, head.max_attempts - 1),
    again ? head.generation + 1 : head.generation,
    null,
    again ? null : head.started_at,
    null,
    null,
    null,
    null,
    null,
    to === 'waiting' ? 'needs' : null,
    null,
    null,
    head.session_key === null || head.notify_policy === 'silent' ? 'not_applicable' : 'pending',
  ];
}

function eventsOf({ head, to, reason }: Reopening, now: number): TaskEvent[] {
  const ref = { ...headRef(head), generation: isOver(head) ? head.generation + 1 : head.generation };
  const events: TaskEvent[] = [
    { type: 'task.reopened', ...ref },
    { type: 'task.state', from: head.status as TaskState, to, reason, ...ref },
  ];
  if (to === 'queued')
    events.push({ type: 'task.queued', streamId: head.stream_id, priority: head.priority, runAt: now, ...ref });
  return events;
}
