import type { Dispatch } from '../agents/dispatch.ts';
import { FLOW_END } from '../flows/follow.ts';
import { endGraphs } from '../flows/graph-queries.ts';
import { endFlows, flowById, reopenFlows } from '../flows/queries.ts';
import type { IdCodec } from '../ids.ts';
import type { Outbox } from '../outbox/enqueue.ts';
import { settlementOfAbandoned } from '../outbox/outcome.ts';
import type { Tx } from '../store/tx.ts';
import { cancelTasks, headsOf, settle } from '../tasks/cancel.ts';
import { both } from '../tasks/explain-words.ts';
import { releaseReady, settleNeeds, unmetNeeds } from '../tasks/needs.ts';
import { runsById } from '../tasks/run-queries.ts';
import { type FinalState, isFinal, type TaskState } from '../tasks/states.ts';
import { endAsLost } from '../tasks/sweep.ts';
import type { Emit, TaskEvent } from '../tasks/task.ts';
import { endOrphanRun, setCleanup, setTimes, tasksOfFlow, timesOf } from './audit-queries.ts';
import type { Finding, Fix } from './findings.ts';
import { correctedTimes } from './task-faults.ts';

/** What the fixes work with: the verbs of the rooms, and nothing of their own where there is one. */
export interface FixTools {
  readonly ids: Pick<IdCodec, 'encode'>;
  readonly emit: Emit<TaskEvent>;
  readonly dispatch: Pick<Dispatch, 'serveDue'>;
  readonly outbox: Pick<Outbox, 'resend' | 'leases'>;
  /** How long a channel's platform drops an identical repeat, milliseconds, by channel. */
  readonly safeRepeat: ReadonlyMap<string, number>;
  /** How long a finished task is kept, milliseconds. */
  readonly retentionMs: number;
  /** Who asked, for histories. */
  readonly actor: string;
}

/** Fixes findings of one kind within the caller's transaction. Answers for each what was done; null where there was nothing to do. */
export function applyFix(tx: Tx, fix: Fix, findings: readonly Finding[], tools: FixTools): Promise<(string | null)[]> {
  return FIXES[fix](tx, findings, tools);
}

type Fixer = (tx: Tx, findings: readonly Finding[], tools: FixTools) => Promise<(string | null)[]>;

const FIXES: Readonly<Record<Fix, Fixer>> = {
  async serve_agents(tx, findings, { dispatch }) {
    await dispatch.serveDue(tx);
    return findings.map(() => 'offered to the agents that wait');
  },
  // The sweep itself is a transaction of its own, and follows; it knows whether agents could speak.
  sweep: async (_tx, findings) =>
    findings.map(() => 'swept: ended as lost, or given one more lease time where its agent could not speak'),
  wake_delivery: async (_tx, findings) => findings.map(() => 'the delivery was woken'),
  end_run: (tx, findings) =>
    each(findings, async ({ id }) =>
      (await tx.run(endOrphanRun, { id, now: tx.now })) > 0 ? 'the run was ended as lost' : null,
    ),
  lose_task: loseTasks,
  settle_needs: settleWaits,
  async resend(tx, findings, { outbox }) {
    const revived = await outbox.resend(
      tx,
      findings.map(({ id }) => id),
    );
    return revived.map((done) => (done ? 'to be sent again' : null));
  },
  set_cleanup: (tx, findings, { retentionMs }) =>
    each(findings, async ({ id }) =>
      (await tx.run(setCleanup, { id, cleanup: tx.now + retentionMs })) > 0
        ? 'will be cleaned up when its retention is over'
        : null,
    ),
  correct_times: correctTimes,
  end_flow: (tx, findings) => each(findings, ({ id }) => endFlow(tx, id)),
  async reopen_flow(tx, findings) {
    await tx.run(reopenFlows, { rows: findings.map(({ id }) => [id]), now: tx.now });
    return findings.map(() => 'the flow is active again until its tasks are over');
  },
  cancel_tasks: (tx, findings, tools) => each(findings, ({ id }) => cancelTasksOf(tx, id, tools)),
  take_from_sender: takeFromSenders,
};

async function loseTasks(tx: Tx, findings: readonly Finding[], { emit }: FixTools): Promise<(string | null)[]> {
  const heads = await headsOf(tx, findings);
  const rows = [...heads.values()].flatMap(({ run_id }) => (run_id === null ? [] : [[run_id]]));
  const runs = rows.length === 0 ? [] : await tx.all(runsById, { rows });
  await endAsLost(tx, runs, emit);
  const lost = new Set(runs.map((run) => run.task_id));
  return findings.map(({ id }) =>
    lost.has(id) ? 'its run was ended as lost; it is queued again where executions are left' : null,
  );
}

/** As the end of what they need should have done. A need that is gone was not a success. */
async function settleWaits(tx: Tx, findings: readonly Finding[], rooms: FixTools): Promise<(string | null)[]> {
  const ids = findings.map(({ id }) => id);
  const needs = await unmetNeeds(tx, ids);
  const ended = needs.filter(({ status }) => status !== null && isFinal(status)).map(({ on }) => on);
  await settleNeeds(tx, [...new Set(ended)], rooms);
  await releaseReady(tx, ids, rooms.emit);
  const orphans = [...new Set(needs.filter(({ status }) => status === null).map(({ task }) => task))];
  const heads = [
    ...(
      await headsOf(
        tx,
        orphans.map((id) => ({ id })),
      )
    ).values(),
  ].filter(({ status }) => status === 'waiting');
  const error = both('a task that it needs is gone', '所依赖的任务已不存在');
  await settle(tx, heads, { to: 'cancelled', reason: 'dependency_failed', error }, rooms.emit);
  const after = await headsOf(tx, findings);
  return ids.map((id) => DID[after.get(id)?.status ?? ''] ?? null);
}

const DID: Readonly<Record<string, string>> = {
  queued: 'queued: everything that it needs has ended as it should',
  leased: 'given to an agent: everything that it needs has ended as it should',
  cancelled: 'skipped: a task that it needs has ended without success, or is gone',
};

function correctTimes(tx: Tx, findings: readonly Finding[], { retentionMs }: FixTools): Promise<(string | null)[]> {
  return each(findings, async ({ id }) => {
    const [before] = await tx.all(timesOf, { id });
    if (!before) return null;
    await tx.run(setTimes, { id, ...correctedTimes(before, tx.now, retentionMs) });
    return `its times were put in order; they were ${JSON.stringify(before)}`;
  });
}

/** With the state of the task that ended last, as if that had just happened; a graph by the worst of its tasks. */
async function endFlow(tx: Tx, flow: number): Promise<string | null> {
  if ((await tx.all(flowById, { id: flow }))[0]?.graph === 1) {
    await tx.run(endGraphs, { rows: [[flow]], now: tx.now });
    return 'the flow was ended by the worst of its tasks';
  }
  const tasks = await tx.all(tasksOfFlow, { flow });
  const last = tasks.sort((a, b) => (a.ended_at ?? 0) - (b.ended_at ?? 0)).at(-1);
  const status = last && isFinal(last.status as TaskState) ? FLOW_END[last.status as FinalState] : 'failed';
  await tx.run(endFlows, { rows: [[flow, status]], now: tx.now });
  return `the flow was ended as ${status}`;
}

async function cancelTasksOf(tx: Tx, flow: number, { emit, actor }: FixTools): Promise<string | null> {
  const live = (await tx.all(tasksOfFlow, { flow })).filter(({ ended_at }) => ended_at === null);
  const answers = await cancelTasks(
    tx,
    live.map(({ id }) => ({ id, by: actor })),
    emit,
  );
  return answers.length === 0 ? null : 'its tasks were cancelled; one that runs was told to stop';
}

async function takeFromSenders(
  tx: Tx,
  findings: readonly Finding[],
  { outbox, safeRepeat }: FixTools,
): Promise<(string | null)[]> {
  const held = new Map((await outbox.leases.abandoned(tx, tx.now)).map((message) => [message.id, message]));
  return each(findings, async ({ id }) => {
    const message = held.get(id);
    if (!message) return null;
    const settlement = settlementOfAbandoned(message, safeRepeat.get(message.channel) ?? 0, tx.now);
    await outbox.leases.settle.run(tx, [settlement]);
    return settlement.status === 'pending'
      ? 'taken from its sender; it is sent once more'
      : `taken from its sender; it is ${settlement.status}, since it may have arrived`;
  });
}

async function each(
  findings: readonly Finding[],
  fix: (finding: Finding) => Promise<string | null>,
): Promise<(string | null)[]> {
  const out: (string | null)[] = [];
  for (const finding of findings) out.push(await fix(finding));
  return out;
}
