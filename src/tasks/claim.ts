import { randomBytes } from 'node:crypto';
import type { Tx, Verb } from '../store/tx.ts';
import { type DueTask, dueBands, dueTasks, markLeased } from './queries.ts';
import { extendLeases, grantsOf, insertRuns } from './run-queries.ts';
import { PRIORITIES } from './states.ts';

export interface Claim {
  agentId: string;
  instanceId: string;
  /** In order of preference; see `queueName`. */
  queues: readonly string[];
  max: number;
  leaseMs: number;
  /** Grants of this instance that it does not know of (its answer was lost) are offered again, before anything new. */
  holding: readonly number[] | null;
}

export interface Grant {
  runId: number;
  taskId: number;
  /** Which execution this is, from 1. */
  attempt: number;
  leaseToken: string;
  task: DueTask;
}

/** Added to the wall limit before the server itself times a run out: the agent's own time-out, grace and report come first. */
export const DEADLINE_MARGIN_MS = 60_000;

/** queued → leased for up to `max` tasks an agent; one new run (the fence) each. An attempt is spent at start, not here. */
export const claimTasks: Verb<Claim, Grant[]> = { name: 'task.claim', rank: 90, run: claim };

async function claim(tx: Tx, claims: readonly Claim[]): Promise<Grant[][]> {
  const takers: Taker[] = [];
  for (const item of claims) {
    const again = item.holding === null ? [] : await lostGrants(tx, item);
    takers.push({ claim: item, grants: again, room: item.max - again.length });
  }
  const leased: Leased[] = [];
  for (const band of await bandsFor(tx, takers)) leased.push(...(await leaseBand(tx, band, takers)));
  if (leased.length > 0) await insertRunsOf(tx, leased);
  return takers.map((taker) => taker.grants);
}

/** One claim while it is being filled. */
interface Taker {
  readonly claim: Claim;
  readonly grants: Grant[];
  room: number;
}

interface Band {
  readonly queue: string;
  readonly priority: number;
}

interface Leased {
  readonly grant: Grant;
  readonly claim: Claim;
}

/** The bands that have something due: better priorities first, within one the queues in the order in which the agents name them. */
async function bandsFor(tx: Tx, takers: readonly Taker[]): Promise<Band[]> {
  const queues = new Set(takers.filter(({ room }) => room > 0).flatMap(({ claim: { queues: named } }) => named));
  const bands = PRIORITIES.flatMap((_, priority) => [...queues].map((queue): Band => ({ queue, priority })));
  if (bands.length === 0) return [];
  const due = await tx.all(dueBands, { rows: bands.map(({ queue, priority }) => [queue, priority]), now: tx.now });
  const full = new Set(due.map(({ queue, priority }) => `${priority} ${queue}`));
  return bands.filter(({ queue, priority }) => full.has(`${priority} ${queue}`));
}

/** Leases exactly as many as there is room for among the agents that serve this queue, and deals them out in order. */
async function leaseBand(tx: Tx, { queue, priority }: Band, takers: readonly Taker[]): Promise<Leased[]> {
  const serving = takers.filter(({ claim: { queues }, room }) => room > 0 && queues.includes(queue));
  const limit = serving.reduce((sum, { room }) => sum + room, 0);
  if (limit === 0) return [];
  const tasks = await tx.all(dueTasks, { queue, priority, now: tx.now, limit });
  const first = await tx.ids(tasks.length);
  const marked = await tx.run(markLeased, { rows: tasks.map(({ id }, index) => [id, first + index]), now: tx.now });
  if (marked !== tasks.length)
    throw new Error(`${tasks.length} tasks were due in ${queue}, but ${marked} could be leased`);
  const tokens = leaseTokens(tasks.length);
  let next = 0;
  return tasks.map((task, index) => {
    while (serving[next]!.room === 0) next += 1;
    const taker = serving[next]!;
    const grant = {
      runId: first + index,
      taskId: task.id,
      attempt: task.attempt + 1,
      leaseToken: tokens[index]!,
      task,
    };
    taker.room -= 1;
    taker.grants.push(grant);
    return { grant, claim: taker.claim };
  });
}

async function insertRunsOf(tx: Tx, leased: readonly Leased[]): Promise<void> {
  const rows = leased.map(({ grant: { runId, attempt, leaseToken, task }, claim: by }) => [
    runId,
    task.id,
    task.generation,
    attempt,
    by.agentId,
    by.instanceId,
    leaseToken,
    tx.now + by.leaseMs,
    tx.now + task.timeout_ms + DEADLINE_MARGIN_MS,
  ]);
  await tx.run(insertRuns, { rows, now: tx.now });
}

async function lostGrants(tx: Tx, item: Claim): Promise<Grant[]> {
  const known = new Set(item.holding);
  const grants = await tx.all(grantsOf, { agent: item.agentId, instance: item.instanceId });
  const rows = grants.filter((row) => !known.has(row.run_id)).slice(0, item.max);
  // The agent takes them for new: it may be silent for a whole lease time.
  if (rows.length > 0)
    await tx.run(extendLeases, { rows: rows.map((row) => [row.run_id]), until: tx.now + item.leaseMs });
  return rows.map((row) => ({
    runId: row.run_id,
    taskId: row.id,
    attempt: row.run_attempt,
    leaseToken: row.lease_token,
    task: row,
  }));
}

function leaseTokens(count: number): string[] {
  const bytes = randomBytes(12 * count);
  return Array.from({ length: count }, (_, index) => bytes.toString('base64url', index * 12, index * 12 + 12));
}
