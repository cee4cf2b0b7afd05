import type { Tx } from '../store/tx.ts';
import { type BreakerRow, breakersByName, saveBreakers } from './breaker-queries.ts';
import { type Breaker, type BreakerReason, type BreakerState, type Bucket, newBreaker } from './breaker-state.ts';

/** A breaker as stored. */
export interface StoredBreaker {
  readonly breaker: Breaker;
  /** 0: not stored yet. */
  readonly revision: number;
  /** The run that probes was over before this transaction began, and the breaker was not told how. */
  readonly probeIsOver: boolean;
}

/** One step of a breaker from one state to another. */
export interface BreakerStep {
  readonly before: Breaker;
  readonly after: Breaker;
}

/** A change of one breaker: everything it went through, from the stored row on. No steps: it stays as it is. */
export type BreakerChange = (stored: StoredBreaker | undefined) => readonly BreakerStep[];

export async function readBreakers(
  tx: Pick<Tx, 'all' | 'now'>,
  names: Iterable<string>,
): Promise<Map<string, StoredBreaker>> {
  const rows = [...new Set(names)].map((name) => [name]);
  if (rows.length === 0) return new Map();
  return new Map((await tx.all(breakersByName, { rows })).map((row) => [row.name, storedBreaker(row, tx.now)]));
}

/**
 * Changes rows by compare-and-set; where another replica was first, the change is made again from what it wrote. Answers the steps
 * that are in force, by name.
 */
export async function changeBreakers(
  tx: Tx,
  changes: ReadonlyMap<string, BreakerChange>,
): Promise<Map<string, readonly BreakerStep[]>> {
  const done = new Map<string, readonly BreakerStep[]>();
  let open = [...changes.keys()];
  for (let round = 0; open.length > 0; round += 1) {
    if (round === MAX_ROUNDS) throw new Error(`breakers ${open.join(', ')} were changed by others all the time`);
    const stored = await readBreakers(tx, open);
    const wanted = new Map(open.map((name) => [name, changes.get(name)!(stored.get(name))]));
    const rows = [...wanted].flatMap(([name, steps]) => rowOf(steps, stored.get(name)?.revision ?? 0));
    const written = new Set(rows.length === 0 ? [] : (await tx.all(saveBreakers, { rows })).map(({ name }) => name));
    for (const [name, steps] of wanted) if (steps.length === 0 || written.has(name)) done.set(name, steps);
    open = open.filter((name) => !done.has(name));
  }
  return done;
}

export function storedBreaker(row: BreakerRow, now: number): StoredBreaker {
  const breaker: Breaker = {
    name: row.name,
    threshold: row.threshold,
    windowMs: row.window_ms,
    minimum: row.minimum,
    cooldownMs: row.cooldown_ms,
    state: row.state as BreakerState,
    buckets: JSON.parse(row.buckets) as Bucket[],
    openedAt: row.opened_at,
    untilAt: row.until_at,
    reason: row.reason as BreakerReason | null,
    probeRun: row.probe_run,
    probeUntilAt: row.probe_until_at,
    lastError: row.last_error,
    lastFailureAt: row.last_failure_at,
    changedAt: row.changed_at,
  };
  // Of a run that ended in this very transaction the breaker is told before the commit.
  const probeIsOver = row.probe_ended_at !== null && row.probe_ended_at !== now;
  return { breaker, revision: row.revision, probeIsOver };
}

/** The steps of a change from a stored row, or from a new one. */
export function stepsFrom(
  stored: StoredBreaker | undefined,
  settings: Parameters<typeof newBreaker>[0],
  now: number,
  ...moves: readonly ((breaker: Breaker) => Breaker)[]
): BreakerStep[] {
  const steps: BreakerStep[] = [];
  let before = stored?.breaker ?? newBreaker(settings, now);
  for (const move of moves) {
    const after = move(before);
    if (after !== before) steps.push({ before, after });
    before = after;
  }
  return steps;
}

const MAX_ROUNDS = 5;

function rowOf(steps: readonly BreakerStep[], revision: number): unknown[][] {
  const last = steps.at(-1);
  if (!last) return [];
  const { after } = last;
  return [
    [
      after.name,
      after.state,
      revision + 1,
      after.threshold,
      after.windowMs,
      after.minimum,
      after.cooldownMs,
      after.buckets,
      after.openedAt,
      after.untilAt,
      after.reason,
      after.probeRun,
      after.probeUntilAt,
      after.lastError,
      after.lastFailureAt,
      after.changedAt,
    ],
  ];
}
