import type { Tx } from '../store/tx.ts';
import type { FinalState } from '../tasks/states.ts';
import type { TaskEvent } from '../tasks/task.ts';
import { blockFlows, endFlows, reopenFlows } from './queries.ts';

export const FLOW_STATES = ['active', 'waiting', 'blocked', 'finished', 'failed', 'cancelled'] as const;
export type FlowState = (typeof FLOW_STATES)[number];

const FLOW_END: Record<FinalState, FlowState> = {
  succeeded: 'finished',
  failed: 'failed',
  timed_out: 'failed',
  cancelled: 'cancelled',
  lost: 'failed',
};

/** The flow's step that follows its tasks' events, in their transaction. */
export async function followTasks(tx: Tx, events: readonly TaskEvent[]): Promise<void> {
  const ended: unknown[][] = [];
  const blocked: unknown[][] = [];
  const reopened: unknown[][] = [];
  for (const event of events) {
    if (event.flowId === null) continue;
    if (event.type === 'task.ended') ended.push([event.flowId, FLOW_END[event.state]]);
    else if (event.type === 'task.blocked') blocked.push([event.flowId, event.id, event.summary]);
    else if (event.type === 'task.reopened') reopened.push([event.flowId]);
  }
  if (reopened.length > 0) await tx.run(reopenFlows, { rows: reopened, now: tx.now });
  if (blocked.length > 0) await tx.run(blockFlows, { rows: blocked, now: tx.now });
  if (ended.length > 0) await tx.run(endFlows, { rows: ended, now: tx.now });
}
