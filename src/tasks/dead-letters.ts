import { audit } from '../sessions/audit.ts';
import type { Tx } from '../store/tx.ts';
import type { TaskOrder } from './cancel.ts';
import { buryTasks, type LetterRow, lettersOfTasks, markDiscarded } from './dead-letters-queries.ts';
import { auditTarget, type RetryOrder, retryTasks } from './retry.ts';
import type { LetterState } from './states.ts';
import type { Emit, TaskEvent } from './task.ts';

/**
 * A task that ended without success and was not cancelled leaves a dead letter, until a person replays or discards it. One row per
 * task: one that dies again gets its letter back, with a count.
 */

/** What became of one letter that a person acted on. */
export type LetterAnswer = { result: 'done' } | { result: 'refused'; state: LetterState } | { result: 'unknown' };

/** Subscriber: the letters of the tasks that died in this transaction. */
export async function buryDead(tx: Tx, events: readonly TaskEvent[]): Promise<void> {
  const deaths = events.filter(isDeath);
  if (deaths.length === 0) return;
  const first = await tx.ids(deaths.length);
  const rows = deaths.map(({ id, template, sessionKey, state, generation, end }, index) => [
    id,
    first + index,
    template,
    sessionKey,
    state,
    generation,
    end.attempt,
    end.error,
    end.errorClass,
    end.reason,
  ]);
  await tx.run(buryTasks, { rows, now: tx.now });
}

/**
 * Runs the tasks of these letters again: same task, next generation. A letter is replayed once: whoever comes second is refused.
 * A discarded one may still be.
 */
export async function replayLetters(
  tx: Tx,
  orders: readonly RetryOrder[],
  emit: Emit<TaskEvent>,
): Promise<LetterAnswer[]> {
  const letters = await lettersOf(tx, orders);
  const open = orders.filter(({ id }) => ['dead', 'discarded'].includes(stateAt(letters, id) ?? ''));
  const retried = open.length === 0 ? [] : await retryTasks(tx, open, emit);
  // One whose needs have failed stays dead until they are replayed.
  const done = open.filter((_, index) => retried[index]!.result === 'queued');
  return answers(orders, letters, done);
}

/** Puts these letters away for good; their tasks stay as they ended. Only those that nobody has decided on. */
export async function discardLetters(
  tx: Tx,
  orders: readonly (TaskOrder & { reason: string | null })[],
): Promise<LetterAnswer[]> {
  const letters = await lettersOf(tx, orders);
  const open = orders.filter(({ id }) => stateAt(letters, id) === 'dead');
  const rows = open.map(({ id, by, reason }) => [id, by, reason]);
  const marked = new Set((await tx.all(markDiscarded, { rows, now: tx.now })).map((row) => row.task_id));
  for (const { id, by, reason } of open) {
    if (!marked.delete(id)) continue;
    await audit(tx, {
      actor: by,
      action: 'dead_letter.discarded',
      target: auditTarget(id),
      ...(reason === null ? {} : { data: { reason } }),
    });
  }
  return answers(orders, letters, open);
}

/** `recovered` is what a replayed letter is once its task has succeeded; no row says so, for the success would have to write it. */
export function letterState({ state, task_status }: Pick<LetterRow, 'state' | 'task_status'>): LetterState {
  return state === 'replayed' && task_status === 'succeeded' ? 'recovered' : (state as LetterState);
}

type Death = Extract<TaskEvent, { type: 'task.ended' }>;

function isDeath(event: TaskEvent): event is Death {
  return event.type === 'task.ended' && event.state !== 'succeeded' && event.state !== 'cancelled';
}

async function lettersOf(tx: Tx, orders: readonly { id: number }[]): Promise<Map<number, LetterRow>> {
  const rows = [...new Set(orders.map(({ id }) => id))].map((id) => [id]);
  return new Map((await tx.all(lettersOfTasks, { rows })).map((row) => [row.task_id, row]));
}

function stateAt(letters: ReadonlyMap<number, LetterRow>, id: number): LetterState | undefined {
  const letter = letters.get(id);
  return letter && letterState(letter);
}

function answers(
  orders: readonly TaskOrder[],
  letters: ReadonlyMap<number, LetterRow>,
  done: readonly TaskOrder[],
): LetterAnswer[] {
  const chosen = new Set(done);
  return orders.map((order) => {
    if (chosen.has(order)) return { result: 'done' };
    const state = stateAt(letters, order.id);
    return state === undefined ? { result: 'unknown' } : { result: 'refused', state };
  });
}
