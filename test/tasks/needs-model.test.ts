import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { RunNews } from '../../src/tasks/report.ts';
import { DEFAULT_RETRY } from '../../src/tasks/task.ts';
import { Core, LEASE_MS } from '../support/core.ts';
import { makeGraph, storedNeeds } from '../support/graphs.ts';

/** How the program of a task ends, run after run; the last goes on for ever. */
type Ends = readonly ('succeeded' | 'failed' | 'transient' | 'lost' | 'blocked' | 'cancelled')[];

interface Spec {
  needs: number[];
  when: 'success' | 'always';
  ends: Ends;
}

const END = fc.constantFrom<Ends[number]>(
  'succeeded',
  'succeeded',
  'failed',
  'transient',
  'lost',
  'blocked',
  'cancelled',
);

/** Needs point to any other task, in an order that has no circle: both directions of the batch occur. */
const GRAPH: fc.Arbitrary<Spec[]> = fc.integer({ min: 1, max: 8 }).chain((size) =>
  fc
    .tuple(
      fc.shuffledSubarray([...Array(size).keys()], { minLength: size }),
      fc.array(
        fc.record({
          needs: fc.array(fc.nat(), { maxLength: 3 }),
          when: fc.constantFrom('success' as const, 'success' as const, 'always' as const),
          ends: fc.array(END, { minLength: 1, maxLength: 3 }),
        }),
        { minLength: size, maxLength: size },
      ),
    )
    .map(([order, specs]) =>
      specs.map((spec, index) => {
        const before = order.slice(0, order.indexOf(index));
        const needs = before.length === 0 ? [] : [...new Set(spec.needs.map((n) => before[n % before.length]!))];
        return { ...spec, needs };
      }),
    ),
);

const MAX = 2;
const isEnd = (status: string) => !['waiting', 'queued', 'leased', 'running'].includes(status);

/** What must be true of a graph at every moment, whatever happened before. */
async function check(core: Core, ids: readonly number[], specs: readonly Spec[]): Promise<void> {
  const tasks = await Promise.all(ids.map((id) => core.task(id)));
  const met = new Map((await storedNeeds(core)).map(([task, on, , isMet]) => [`${task}/${on}`, isMet === 1]));
  for (const [index, { needs, when }] of specs.entries()) {
    const task = tasks[index]!;
    const isMet = (on: number) => met.get(`${ids[index]}/${ids[on]}`)!;
    for (const on of needs) {
      const status = tasks[on]!.status;
      if (status === 'succeeded' || (when === 'always' && isEnd(status))) expect(isMet(on)).toBe(true);
      else if (when === 'success') expect(isMet(on)).toBe(false);
    }
    const failed = needs.some(
      (on) => when === 'success' && isEnd(tasks[on]!.status) && tasks[on]!.status !== 'succeeded',
    );
    const allMet = needs.every(isMet);
    // Waiting for needs: exactly while they can still be met, and skipped exactly when not.
    if (task.status === 'waiting' && task.reason === 'needs') expect([allMet, failed]).toEqual([false, false]);
    if (task.reason === 'dependency_failed') expect(failed).toBe(true);
    if (['queued', 'leased', 'running', 'succeeded', 'failed'].includes(task.status)) expect(allMet).toBe(true);
  }
  const flow = await core.flowOf(ids[0]!);
  const ends = tasks.map(({ status }) => status);
  expect(flow.ended_at !== null).toBe(ends.every(isEnd));
  if (flow.ended_at === null) return;
  const bad = ends.some((status) => status === 'failed' || status === 'lost' || status === 'timed_out');
  expect(flow.status).toBe(bad ? 'failed' : ends.includes('cancelled') ? 'cancelled' : 'finished');
}

/** What a task that runs alone comes to, by its program. */
function alone(ends: Ends, firstRun: number): { state: 'succeeded' | 'failed' | 'lost' | 'cancelled'; runs: number } {
  for (let attempt = 1, run = firstRun; ; run += 1) {
    const end = ends[Math.min(run, ends.length - 1)]!;
    const used = run - firstRun + 1;
    if (end === 'succeeded' || end === 'failed' || end === 'cancelled') return { state: end, runs: used };
    // What stays blocked is cancelled in the end.
    if (end === 'blocked') return { state: 'cancelled', runs: used };
    if (attempt >= MAX) return { state: end === 'lost' ? 'lost' : 'failed', runs: used };
    attempt += 1;
  }
}

/** The rule, without an engine: in the order of the needs, a task runs or is skipped. */
function expected(specs: readonly Spec[], runs: readonly number[], kept: readonly (string | undefined)[]): string[] {
  const states: string[] = [];
  const stateOf = (index: number): string => {
    states[index] ??= kept[index] ?? decideState(index);
    return states[index]!;
  };
  const decideState = (index: number): string => {
    const { needs, when, ends } = specs[index]!;
    const before = needs.map(stateOf);
    if (when === 'success' && before.some((state) => state !== 'succeeded')) return 'skipped';
    return alone(ends, runs[index]!).state;
  };
  return specs.map((_, index) => stateOf(index));
}

const stateIn = ({ status, reason }: { status: string; reason: string | null }) =>
  reason === 'dependency_failed' ? 'skipped' : status;

async function play(
  core: Core,
  ids: readonly number[],
  specs: readonly Spec[],
  runs: number[],
  pick: () => number,
): Promise<void> {
  for (;;) {
    await check(core, ids, specs);
    core.clock.advance(3_600_000);
    const grants = await core.claimAll('a1', { max: 1 + (pick() % 3) });
    if (grants.length === 0) {
      const blocked = (await Promise.all(ids.map((id) => core.task(id)))).find(({ reason }) => reason === 'blocked');
      if (!blocked) return;
      await core.cancel(blocked.id);
      continue;
    }
    for (let left = [...grants]; left.length > 0; ) {
      const [grant] = left.splice(pick() % left.length, 1);
      await core.tell(grant!, { type: 'started' });
      const index = ids.indexOf(grant!.taskId);
      const { ends } = specs[index]!;
      const end = ends[Math.min(runs[index]!, ends.length - 1)]!;
      runs[index]! += 1;
      if (end === 'lost') {
        // Of what is held, this one alone is not heard of any more.
        await core.store.transact('test.silence', (tx) =>
          tx.exec(tx.dialect.build.updateTable('run').set({ lease_until: tx.now }).where('id', '=', grant!.runId)),
        );
        await core.sweep();
      } else await core.tell(grant!, newsOf(end));
      await check(core, ids, specs);
    }
  }
}

function newsOf(end: Exclude<Ends[number], 'lost'>): RunNews {
  switch (end) {
    case 'succeeded':
      return { type: 'succeeded', summary: 'ok' };
    case 'failed':
      return { type: 'failed', errorClass: 'permanent', error: 'no' };
    case 'transient':
      return { type: 'failed', errorClass: 'transient', error: 'busy' };
    case 'blocked':
      return { type: 'blocked', summary: 'quota' };
    case 'cancelled':
      return { type: 'cancelled' };
  }
}

it('A62: random graphs come to what the rule says, whatever the order of ends, and so they do after retries', async () => {
  await fc.assert(
    fc.asyncProperty(GRAPH, fc.infiniteStream(fc.nat(100)), async (specs, stream) => {
      const pick = () => stream.next().value as number;
      const core = await Core.open();
      try {
        const nodes = specs.map(({ needs, when }) => ({ needs, when }));
        const ids = await makeGraph(core, nodes, {
          task: { retry: { ...DEFAULT_RETRY, max: MAX }, timeoutMs: 10 * LEASE_MS },
        });
        const runs = specs.map(() => 0);
        const none = specs.map(() => undefined);
        const first = expected(specs, runs, none);
        await play(core, ids, specs, runs, pick);
        const reached = await Promise.all(ids.map(async (id) => stateIn(await core.task(id))));
        expect(reached).toEqual(first);

        // A person runs again what ended without success and is no mere consequence.
        const again = reached.flatMap((state, index) => (state === 'succeeded' || state === 'skipped' ? [] : [index]));
        const chosen = again.filter(() => pick() % 3 > 0);
        for (const index of chosen) await core.retry(ids[index]!);
        const kept = reached.map((state, index) => (state === 'skipped' || chosen.includes(index) ? undefined : state));
        const second = expected(specs, runs, kept);
        await play(core, ids, specs, runs, pick);
        expect(await Promise.all(ids.map(async (id) => stateIn(await core.task(id))))).toEqual(second);
        for (const id of ids) {
          const { generation } = await core.task(id);
          expect(core.endings(id).length).toBe(generation);
        }
      } finally {
        await core.close();
      }
    }),
    { numRuns: 50 },
  );
}, 120_000);
