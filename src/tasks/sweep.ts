import type { Tx } from '../store/tx.ts';
import { headsOf, settle } from './cancel.ts';
import type { TaskLine } from './claim.ts';
import { decide, factsOf, type RunEnd } from './decide.ts';
import type { Words } from './explain-facts.ts';
import { holdCause } from './explain-holds.ts';
import { both } from './explain-words.ts';
import { dropSlots, streamsById } from './line-queries.ts';
import { expiredTasks, insertEvents, type TaskHead } from './queries.ts';
import {
  graceLeases,
  type HeldRun,
  overdueRuns,
  runsOfOtherInstances,
  runsPastDeadline,
  runsToCancel,
} from './run-queries.ts';
import type { Emit, TaskEvent } from './task.ts';
import { endHeldRuns, NO_RESULT, type RunResult } from './transition.ts';

/** One sweep handles at most this many of each kind, so that a flood does not hold the store; the next sweep follows at once. */
const BATCH = 500;

export interface SweepCounts {
  lost: number;
  timedOut: number;
  cancelled: number;
  expired: number;
}

export interface SweepOptions {
  /** How long an agent has to confirm a cancel. */
  cancelGraceMs: number;
  /** Since when, epoch milliseconds, agents could speak without interruption: the grace does not run while they could not. */
  agentsSpeakSince: number;
  /** Tells what held back a task whose time to live is over. */
  line?: Pick<TaskLine, 'holdsOf'> | undefined;
}

/** What time alone decides: expired leases, runs past their deadline, cancels past the grace, tasks past their time to live. */
export async function sweep(
  tx: Tx,
  { cancelGraceMs, agentsSpeakSince, line }: SweepOptions,
  emit: Emit<TaskEvent>,
): Promise<SweepCounts> {
  const lost = await endAsLost(tx, await tx.all(overdueRuns, { now: tx.now, limit: BATCH }), emit);
  const timedOut = await endRuns(tx, await tx.all(runsPastDeadline, { now: tx.now, limit: BATCH }), 'timed_out', emit);
  const patient = tx.now - agentsSpeakSince < cancelGraceMs;
  const late = patient ? [] : await tx.all(runsToCancel, { before: tx.now - cancelGraceMs, limit: BATCH });
  const cancelled = await endRuns(tx, late, 'cancelled', emit);
  const old = await tx.all(expiredTasks, { now: tx.now, limit: BATCH });
  const heads = old.length === 0 ? [] : [...(await headsOf(tx, old)).values()];
  for (const { error, expired } of await expiries(tx, heads, line))
    await settle(tx, expired, { to: 'failed', reason: 'expired', error }, emit);
  await tx.run(dropSlots, { limit: BATCH });
  return { lost, timedOut, cancelled, expired: heads.length };
}

/** By what is to be said of them. */
async function expiries(
  tx: Tx,
  heads: readonly TaskHead[],
  line: SweepOptions['line'],
): Promise<Iterable<{ error: Words; expired: TaskHead[] }>> {
  const held = await heldBack(tx, heads, line);
  const groups = new Map<string, { error: Words; expired: TaskHead[] }>();
  for (const head of heads) {
    const plain = head.attempt === 0 ? UNTAKEN : UNDONE;
    const hold = head.status === 'queued' ? held.get(head.stream_id) : undefined;
    const error = hold === undefined ? plain : both(`${plain.en}: ${hold.en}`, `${plain.zh}：${hold.zh}`);
    const group = groups.get(error.en) ?? { error, expired: [] };
    groups.set(error.en, group);
    group.expired.push(head);
  }
  return groups.values();
}

const UNTAKEN = both('nobody took it before its time to live was over', '在有效期内没有机器领取它');
const UNDONE = both('it was not done before its time to live was over', '在有效期内没有完成');

/** By stream: the first of what holds it back. */
async function heldBack(tx: Tx, heads: readonly TaskHead[], line: SweepOptions['line']): Promise<Map<number, Words>> {
  if (!line || heads.length === 0) return new Map();
  const rows = [...new Set(heads.map(({ stream_id }) => stream_id))].map((id) => [id]);
  const holds = await line.holdsOf(tx, await tx.all(streamsById, { rows }));
  const first = [...holds].flatMap(([{ id }, [hold]]) => (hold ? [[id, hold] as const] : []));
  return new Map(first.map(([id, hold]) => [id, holdCause(hold, tx.now).cause.text]));
}

/** A newer instance of the agent is there: what its predecessors held is re-queued at once. */
export async function loseOtherInstances(
  tx: Tx,
  agentId: string,
  instanceId: string,
  emit: Emit<TaskEvent>,
): Promise<number> {
  return endAsLost(tx, await tx.all(runsOfOtherInstances, { agent: agentId, instance: instanceId }), emit);
}

/** Ends these runs as lost: queued again while executions are left, else `lost`. Answers how many it was in time for. */
export function endAsLost(tx: Tx, runs: readonly HeldRun[], emit: Emit<TaskEvent>): Promise<number> {
  return endRuns(tx, runs, 'lost', emit);
}

/** After a start, an outage or a clock jump nothing expires for one lease time: agents must have had the chance to speak. */
export function graceForAll(tx: Tx, leaseMs: number): Promise<number> {
  return tx.run(graceLeases, { until: tx.now + leaseMs });
}

const RESULTS: Record<'lost' | 'timed_out' | 'cancelled', RunResult> = {
  lost: { ...NO_RESULT, error: 'the agent stopped answering', errorClass: 'transient' },
  timed_out: {
    ...NO_RESULT,
    error: 'the time limit of the run was reached and the agent did not say so',
    errorClass: 'transient',
  },
  cancelled: { ...NO_RESULT, error: 'the agent did not confirm the cancel in time' },
};

async function endRuns(
  tx: Tx,
  runs: readonly HeldRun[],
  outcome: 'lost' | 'timed_out' | 'cancelled',
  emit: Emit<TaskEvent>,
): Promise<number> {
  if (runs.length === 0) return 0;
  const end: RunEnd = { outcome };
  const endings = runs.map((run) => ({
    run,
    decision: decide(end, factsOf(run, run.attempt, false, tx.now)),
    result: RESULTS[outcome],
    started: false,
  }));
  const applied = await endHeldRuns(tx, endings, emit);
  const ended = endings.filter((_, index) => applied[index]);
  await tx.run(insertEvents, {
    rows: ended.map(({ run, decision }) => [run.task_id, run.run_id, -2, outcome, tx.now, { to: decision.to }]),
  });
  return ended.length;
}
