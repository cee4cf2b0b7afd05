import { randomBytes } from 'node:crypto';
import type { Tx, Verb } from '../store/tx.ts';
import { type DueTask, dueTasks, extendLeases, grantsOf, insertEvents, insertRuns, markLeased } from './queries.ts';
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
  const bands = new Bands(
    tx,
    claims.reduce((sum, item) => sum + item.max, 0),
  );
  const offered: Grant[][] = [];
  const picked: { claim: Claim; task: DueTask; into: Grant[] }[] = [];
  for (const item of claims) {
    const again = item.holding === null ? [] : await lostGrants(tx, item);
    offered.push(again);
    for (const task of await bands.take(item, item.max - again.length)) picked.push({ claim: item, task, into: again });
  }
  if (picked.length > 0) await grant(tx, picked);
  return offered;
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

async function grant(tx: Tx, picked: readonly { claim: Claim; task: DueTask; into: Grant[] }[]): Promise<void> {
  const first = await tx.ids(picked.length);
  const tokens = leaseTokens(picked.length);
  const leased = await tx.all(markLeased, {
    rows: picked.map(({ task }, index) => [task.id, first + index]),
    now: tx.now,
  });
  const won = leased.length === picked.length ? null : new Set(leased.map((row) => row.id));
  const runs: unknown[][] = [];
  const events: unknown[][] = [];
  for (const [index, { claim: by, task, into }] of picked.entries()) {
    if (won && !won.has(task.id)) continue;
    const runId = first + index;
    const attempt = task.attempt + 1;
    const deadline = tx.now + task.timeout_ms + DEADLINE_MARGIN_MS;
    runs.push([
      runId,
      task.id,
      task.generation,
      attempt,
      by.agentId,
      by.instanceId,
      tokens[index],
      tx.now + by.leaseMs,
      deadline,
    ]);
    events.push([task.id, runId, -1, 'leased', tx.now, { agentId: by.agentId }]);
    into.push({ runId, taskId: task.id, attempt, leaseToken: tokens[index]!, task });
  }
  await tx.run(insertRuns, { rows: runs, now: tx.now });
  await tx.run(insertEvents, { rows: events });
}

/** Reads each (queue, band) once for all claims of the batch, however many agents wait for it. */
class Bands {
  readonly #tx: Tx;
  readonly #limit: number;
  readonly #rows = new Map<string, DueTask[]>();

  constructor(tx: Tx, limit: number) {
    this.#tx = tx;
    this.#limit = limit;
  }

  /** Better bands of all queues before worse ones; within a band the order of the queues, then of the tasks. */
  async take(item: Claim, max: number): Promise<DueTask[]> {
    const taken: DueTask[] = [];
    for (let priority = 0; priority < PRIORITIES.length; priority += 1) {
      for (const queue of item.queues) {
        if (taken.length >= max) return taken;
        const band = await this.#band(queue, priority);
        while (taken.length < max && band.length > 0) taken.push(band.pop()!);
      }
    }
    return taken;
  }

  async #band(queue: string, priority: number): Promise<DueTask[]> {
    const key = `${priority} ${queue}`;
    let rows = this.#rows.get(key);
    if (!rows) {
      rows = await this.#tx.all(dueTasks, { queue, priority, now: this.#tx.now, limit: this.#limit });
      rows.reverse(); // taken from the end
      this.#rows.set(key, rows);
    }
    return rows;
  }
}

function leaseTokens(count: number): string[] {
  const bytes = randomBytes(12 * count);
  return Array.from({ length: count }, (_, index) => bytes.toString('base64url', index * 12, index * 12 + 12));
}
