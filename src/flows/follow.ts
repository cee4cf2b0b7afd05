import type { Tx } from '../store/tx.ts';
import type { FinalState } from '../tasks/states.ts';
import type { TaskEvent } from '../tasks/task.ts';
import { endGraphs } from './graph-queries.ts';
import { blockFlows, endFlows, reopenFlows } from './queries.ts';

export const FLOW_STATES = ['active', 'waiting', 'blocked', 'finished', 'failed', 'cancelled'] as const;
export type FlowState = (typeof FLOW_STATES)[number];

/** How a flow ends whose last task ended so. */
export const FLOW_END: Record<FinalState, FlowState> = {
  succeeded: 'finished',
  failed: 'failed',
  timed_out: 'failed',
  cancelled: 'cancelled',
  lost: 'failed',
};

/** What blocks a flow where no program has said it; the conversation is told in its own language. */
const BLOCKED_BY: Readonly<Record<string, string>> = {
  lost_ask:
    'the agent stopped answering and nobody knows how far the task came, which must not run twice by mistake: retry or cancel it',
};

/** The flow's step that follows its tasks' events, in their transaction. */
export async function followTasks(tx: Tx, events: readonly TaskEvent[]): Promise<void> {
  const ended: unknown[][] = [];
  const graphs = new Set<number>();
  const blocked: unknown[][] = [];
  const reopened: unknown[][] = [];
  for (const event of events) {
    if (event.flowId === null) continue;
    if (event.type === 'task.ended') {
      if (event.graph) graphs.add(event.flowId);
      else ended.push([event.flowId, FLOW_END[event.state]]);
    }
    if (event.type === 'task.blocked')
      blocked.push([event.flowId, event.id, event.summary || BLOCKED_BY[event.reason ?? ''] || '']);
    else if (event.type === 'task.reopened') reopened.push([event.flowId]);
  }
  if (reopened.length > 0) await tx.run(reopenFlows, { rows: reopened, now: tx.now });
  if (blocked.length > 0) await tx.run(blockFlows, { rows: blocked, now: tx.now });
  if (ended.length > 0) await tx.run(endFlows, { rows: ended, now: tx.now });
  if (graphs.size > 0) await tx.run(endGraphs, { rows: [...graphs].map((id) => [id]), now: tx.now });
}
