import { audit } from '../sessions/audit.ts';
import type { Tx, Verb } from '../store/tx.ts';
import { retryTasks } from '../tasks/retry.ts';
import type { Emit, TaskEvent } from '../tasks/task.ts';
import type { FlowState } from './follow.ts';
import { unsuccessfulTasksOf } from './graph-queries.ts';
import { flowById } from './queries.ts';
import type { FlowOrder } from './stop.ts';

export type FlowRetryAnswer =
  /** The tasks that run again; what was skipped because of them comes back by itself. */
  | { result: 'retried'; tasks: number[] }
  /** It is not over, or it succeeded. */
  | { result: 'refused'; status: FlowState }
  /** Over, but none of its tasks can run again: what they need was called off. */
  | { result: 'held'; status: FlowState }
  | { result: 'unknown' };

/** Runs again what failed of flows that have failed, and what was called off of cancelled ones: each task in its next generation. */
export function retryFlowsVerb(emit: Emit<TaskEvent>): Verb<FlowOrder, FlowRetryAnswer> {
  return {
    name: 'flow.retry',
    rank: 60,
    run: async (tx, orders) => {
      const answers: FlowRetryAnswer[] = [];
      // One by one: people retry few, and of two orders for one flow the second must see the first.
      for (const order of orders) answers.push(await retryFlow(tx, order, emit));
      return answers;
    },
  };
}

async function retryFlow(tx: Tx, { id, by }: FlowOrder, emit: Emit<TaskEvent>): Promise<FlowRetryAnswer> {
  const [flow] = await tx.all(flowById, { id });
  if (!flow) return { result: 'unknown' };
  const status = flow.status as FlowState;
  if (status !== 'failed' && status !== 'cancelled') return { result: 'refused', status };
  const ended = await tx.all(unsuccessfulTasksOf, { rows: [[id]] });
  // Of a failed flow, what a person has called off stays so.
  const wanted = ended.filter((task) => (task.status === 'cancelled') === (status === 'cancelled'));
  // Somebody else has done it in this very transaction.
  if (wanted.length === 0) return { result: 'refused', status: 'active' };
  const answers = await retryTasks(
    tx,
    wanted.map((task) => ({ id: task.id, by })),
    emit,
  );
  const tasks = wanted.filter((_, index) => answers[index]!.result === 'queued').map((task) => task.id);
  if (tasks.length === 0) return { result: 'held', status };
  await audit(tx, { actor: by, action: 'flow.retried', target: `flow#${id}`, data: { tasks: tasks.length } });
  return { result: 'retried', tasks };
}
