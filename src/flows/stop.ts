import { audit } from '../sessions/audit.ts';
import type { Tx, Verb } from '../store/tx.ts';
import { cancelTasks, headsOf, type Settlement, settle } from '../tasks/cancel.ts';
import { both } from '../tasks/explain-words.ts';
import { insertEvents } from '../tasks/queries.ts';
import { isHeld, type TaskState } from '../tasks/states.ts';
import type { Emit, TaskEvent } from '../tasks/task.ts';
import type { FlowState } from './follow.ts';
import { liveTasksOf, overdueFlows, requestFlowCancel } from './graph-queries.ts';
import { flowById } from './queries.ts';

/** Stopping flows as a whole: by a person, and by their deadline. */

export interface FlowOrder {
  /** Of the flow. */
  id: number;
  /** Who asked; kept in the audit and in the events of the tasks. */
  by: string;
}

export type FlowCancelAnswer =
  /** Nothing of it was on an agent: over at once. */
  | { result: 'cancelled' }
  /** What runs was told to stop; everything else is over. */
  | { result: 'requested' }
  | { result: 'already'; status: FlowState }
  | { result: 'unknown' };

/** Cancels what is left of flows; from then on they get no more tasks. */
export function cancelFlowsVerb(emit: Emit<TaskEvent>): Verb<FlowOrder, FlowCancelAnswer> {
  return {
    name: 'flow.cancel',
    rank: 60,
    run: async (tx, orders) => {
      const answers: FlowCancelAnswer[] = [];
      // One by one: people cancel few, and of two orders for one flow the second must see the first.
      for (const order of orders) answers.push(await cancelFlow(tx, order, emit));
      return answers;
    },
  };
}

async function cancelFlow(tx: Tx, { id, by }: FlowOrder, emit: Emit<TaskEvent>): Promise<FlowCancelAnswer> {
  const [flow] = await tx.all(flowById, { id });
  if (!flow) return { result: 'unknown' };
  if (flow.ended_at !== null) return { result: 'already', status: flow.status as FlowState };
  const isNew = (await tx.all(requestFlowCancel, { rows: [[id]], now: tx.now })).length > 0;
  const left = await tx.all(liveTasksOf, { rows: [[id]] });
  const answers = await cancelTasks(
    tx,
    left.map((task) => ({ id: task.id, by })),
    emit,
  );
  if (isNew)
    await audit(tx, { actor: by, action: 'flow.cancelled', target: `flow#${id}`, data: { tasks: left.length } });
  return { result: answers.some(({ result }) => result === 'requested') ? 'requested' : 'cancelled' };
}

/** Flows that one sweep stops at most; the next follows at once. */
const BATCH = 50;
const DEADLINE: Settlement = {
  to: 'failed',
  reason: 'deadline',
  error: both('the deadline of its flow was reached before it was done', '整组任务的期限已到，它没有完成'),
};

/**
 * Part of a sweep: stops what is left of flows whose deadline is over. What waits has failed (reason `deadline`), what a person has
 * set aside is cancelled, what runs is told to stop. Answers how many flows.
 */
export async function sweepDeadlines(tx: Tx, emit: Emit<TaskEvent>): Promise<number> {
  const overdue = await tx.all(overdueFlows, { now: tx.now, limit: BATCH });
  if (overdue.length === 0) return 0;
  const rows = overdue.map(({ id }) => [id]);
  await tx.all(requestFlowCancel, { rows, now: tx.now });
  const left = await tx.all(liveTasksOf, { rows });
  const heads = [...(await headsOf(tx, left)).values()];
  const stateOf = (head: { status: string }) => head.status as TaskState;
  await settle(
    tx,
    heads.filter((head) => !isHeld(stateOf(head))),
    (head) => (stateOf(head) === 'paused' ? { ...DEADLINE, to: 'cancelled' } : DEADLINE),
    emit,
  );
  const held = heads.filter((head) => isHeld(stateOf(head)));
  await cancelTasks(
    tx,
    held.map(({ id }) => ({ id, by: 'deadline' })),
    emit,
  );
  const first = await tx.ids(heads.length);
  await tx.run(insertEvents, {
    rows: heads.map(({ id }, index) => [id, 0, first + index, 'deadline', tx.now, null]),
  });
  return overdue.length;
}
