import type { Tx, Verb } from '../store/tx.ts';
import type { Words } from './explain-facts.ts';
import { applyTransitions, insertEvents, keepErrorsZh, requestCancel, type TaskHead, taskHeads } from './queries.ts';
import { allows, isFinal, isHeld, type TaskState } from './states.ts';
import type { Emit, EndedTask, TaskEnd, TaskEvent, TaskRef } from './task.ts';
import { refOf } from './transition.ts';

export interface TaskOrder {
  id: number;
  /** Who asked; kept in the event. */
  by: string;
}

export type CancelAnswer =
  /** Not on an agent: over at once. */
  | { result: 'cancelled' }
  /** On an agent: told to stop; the end follows within the grace. */
  | { result: 'requested' }
  | { result: 'already'; status: TaskState }
  | { result: 'unknown' };

export function cancelTasksVerb(emit: Emit<TaskEvent>): Verb<TaskOrder, CancelAnswer> {
  return { name: 'task.cancel', rank: 60, run: (tx, items) => cancelTasks(tx, items, emit) };
}

/** Cancels what waits, asks for the cancel of what runs. The intent is stored and sticky: nothing of the task is queued again. */
export async function cancelTasks(
  tx: Tx,
  orders: readonly TaskOrder[],
  emit: Emit<TaskEvent>,
): Promise<CancelAnswer[]> {
  const heads = await headsOf(tx, orders);
  const idle = unique(orders, heads).filter(({ head }) => allows('cancel', head.status as TaskState));
  const held = unique(orders, heads).filter(
    ({ head }) => isHeld(head.status as TaskState) && head.cancel_requested_at === null,
  );
  await settle(
    tx,
    idle.map(({ head }) => head),
    { to: 'cancelled', reason: 'cancel_requested', cancelRequestedAt: tx.now },
    emit,
  );
  if (held.length > 0) await request(tx, held, emit);
  await record(tx, [...idle, ...held], 'cancel_requested');
  return orders.map(({ id }) => cancelAnswer(heads.get(id)));
}

function cancelAnswer(head: TaskHead | undefined): CancelAnswer {
  if (!head) return { result: 'unknown' };
  const status = head.status as TaskState;
  if (isFinal(status)) return { result: 'already', status };
  return { result: isHeld(status) ? 'requested' : 'cancelled' };
}

async function request(tx: Tx, held: readonly { head: TaskHead }[], emit: Emit<TaskEvent>): Promise<void> {
  await tx.run(requestCancel, { rows: held.map(({ head }) => [head.id]), now: tx.now });
  emit(
    tx,
    held.map(({ head }) => ({
      type: 'task.cancel_requested',
      runId: head.run_id!,
      agentId: head.agent_id!,
      ...headRef(head),
    })),
  );
}

/** The end of a task that no agent holds. */
export interface Settlement {
  to: 'cancelled' | 'failed';
  reason: string;
  error?: Words;
  cancelRequestedAt?: number;
  because?: EndedTask;
}

/** The transition of tasks that no agent holds; one and the same for all, or each its own. */
export async function settle(
  tx: Tx,
  heads: readonly TaskHead[],
  change: Settlement | ((head: TaskHead) => Settlement),
  emit: Emit<TaskEvent>,
): Promise<void> {
  if (heads.length === 0) return;
  const changeOf = typeof change === 'function' ? change : () => change;
  const rows = heads.map((head) => settledRow(head, changeOf(head), tx));
  const applied = new Set((await tx.all(applyTransitions, { rows, now: tx.now })).map((row) => row.id));
  const inChinese = heads.flatMap((head) => {
    const { error } = changeOf(head);
    return error && applied.has(head.id) ? [[head.id, error.zh]] : [];
  });
  if (inChinese.length > 0) await tx.run(keepErrorsZh, { rows: inChinese });
  for (const head of heads) if (applied.has(head.id)) emit(tx, settledEvents(head, changeOf(head), tx.now));
}

function settledRow(head: TaskHead, change: Settlement, { now, retentionMs }: Tx): unknown[] {
  return [
    head.id,
    head.status,
    null,
    change.to,
    null,
    null,
    head.attempt,
    head.generation,
    change.cancelRequestedAt ?? head.cancel_requested_at,
    head.started_at,
    now,
    null,
    null,
    change.error?.en ?? null,
    null,
    change.reason,
    null,
    now + retentionMs,
    head.session_key === null || head.notify_policy === 'silent' ? 'not_applicable' : 'session_queued',
  ];
}

function settledEvents(head: TaskHead, { to, reason, error, because }: Settlement, now: number): TaskEvent[] {
  const end: TaskEnd = {
    summary: null,
    error: error?.en ?? null,
    errorClass: null,
    reason,
    attempt: head.attempt,
    tookMs: Math.max(0, now - head.created_at),
    finishedBeforeCancel: false,
  };
  if (error) end.errorZh = error.zh;
  if (because) end.because = because;
  return [
    { type: 'task.state', from: head.status as TaskState, to, reason, ...headRef(head) },
    { type: 'task.ended', state: to, end, ...headRef(head) },
  ];
}

export async function headsOf(tx: Tx, orders: readonly { id: number }[]): Promise<Map<number, TaskHead>> {
  const rows = [...new Set(orders.map(({ id }) => id))].map((id) => [id]);
  return new Map((await tx.all(taskHeads, { rows })).map((head) => [head.id, head]));
}

/** Each task once, with the first order for it. */
export function unique<O extends { id: number }>(
  orders: readonly O[],
  heads: Map<number, TaskHead>,
): { order: O; head: TaskHead }[] {
  const seen = new Set<number>();
  return orders.flatMap((order) => {
    const head = heads.get(order.id);
    if (!head || seen.has(order.id)) return [];
    seen.add(order.id);
    return [{ order, head }];
  });
}

/** The server's own events of a task (not of a run): run 0, an id of their own as seq. */
export async function record(
  tx: Tx,
  items: readonly { order: TaskOrder; head: TaskHead }[],
  type: string,
): Promise<void> {
  if (items.length === 0) return;
  const first = await tx.ids(items.length);
  await tx.run(insertEvents, {
    rows: items.map(({ order, head }, index) => [head.id, 0, first + index, type, tx.now, { by: order.by }]),
  });
}

export function headRef(head: TaskHead): TaskRef {
  return refOf({ ...head, task_id: head.id });
}
