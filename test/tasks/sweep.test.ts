import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DEADLINE_MARGIN_MS } from '../../src/tasks/claim-round.ts';
import { pulseRuns } from '../../src/tasks/heartbeat.ts';
import { graceForAll, sweep } from '../../src/tasks/sweep.ts';
import { DEFAULT_RETRY } from '../../src/tasks/task.ts';
import { Core, GRACE_MS, LEASE_MS, newTask, START } from '../support/core.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

const success = { type: 'succeeded', summary: 'ok' } as const;
const pulse = (grant: { runId: number; leaseToken: string }, leaseMs = LEASE_MS) =>
  core.store.write(pulseRuns, [{ agentId: 'a1', runId: grant.runId, leaseToken: grant.leaseToken, leaseMs }]);

describe('A02: success and sweep around the very instant of expiry', () => {
  it('success a millisecond before, sweep at the instant: succeeded, and the sweep does nothing', async () => {
    const id = await core.create();
    const grant = await core.run();
    core.clock.set(START + LEASE_MS - 1);
    expect(await core.sweep()).toMatchObject({ lost: 0 });
    expect(await core.tell(grant, success)).toEqual({ result: 'accepted' });
    core.clock.set(START + LEASE_MS);
    expect(await core.sweep()).toEqual({ lost: 0, timedOut: 0, cancelled: 0, expired: 0 });
    expect(await core.task(id)).toMatchObject({ status: 'succeeded' });
  });

  it('sweep at the instant, success a millisecond later: lost and refused', async () => {
    const id = await core.create();
    const grant = await core.run();
    core.clock.set(START + LEASE_MS);
    expect(await core.sweep()).toMatchObject({ lost: 1 });
    core.clock.advance(1);
    expect(await core.tell(grant, success)).toMatchObject({ result: 'lease_lost' });
    expect(await core.task(id)).toMatchObject({ status: 'queued', reason: 'lease_expired', attempt: 1 });
    expect(await core.runs(id)).toMatchObject([
      { outcome: 'lost', error: 'the agent stopped answering', error_class: 'transient' },
    ]);
    expect(core.endings(id)).toEqual([]);
  });

  it('both at once, 200 times in either order of call: one end, and never two', async () => {
    for (let n = 0; n < 200; n += 1) {
      const id = await core.create({ retry: { ...DEFAULT_RETRY, max: 1 } });
      const grant = await core.claim();
      core.clock.advance(LEASE_MS);
      const calls = [() => core.tell(grant, success), () => core.sweep()];
      if (n % 2) calls.reverse();
      // Every other time in one transaction, else in two.
      if (n % 4 < 2) await Promise.all(calls.map((call) => call()));
      else for (const call of calls) await call();
      const { status } = await core.task(id);
      expect(['succeeded', 'queued', 'lost']).toContain(status);
      expect(core.endings(id)).toHaveLength(status === 'queued' ? 0 : 1);
      expect((await core.runs(id)).filter(({ outcome }) => outcome !== null)).toHaveLength(1);
      await core.cancel(id);
    }
  });
});

it('A03: one lost agent is counted once, over five sweeps and two sweepers', async () => {
  const id = await core.create();
  await core.run();
  core.clock.advance(LEASE_MS);
  const options = { cancelGraceMs: GRACE_MS, agentsSpeakSince: 0 };
  const other = () => core.store.transact('test.other', (tx) => sweep(tx, options, core.emit));
  const counts = [...(await Promise.all([core.sweep(), other(), core.sweep()])), await other(), await core.sweep()];
  expect(counts.map(({ lost }) => lost).sort()).toEqual([0, 0, 0, 0, 1]);
  expect(await core.task(id)).toMatchObject({ status: 'queued', attempt: 1 });
  expect((await core.history(id)).filter(({ type }) => type === 'lost')).toHaveLength(1);
  expect(core.events.filter((event) => event.type === 'task.queued')).toHaveLength(2);
});

it('a heartbeat extends the lease by the server’s clock, and a lost one cannot come back', async () => {
  const id = await core.create();
  const grant = await core.run();
  for (let n = 0; n < 5; n += 1) {
    core.clock.advance(LEASE_MS - 1);
    expect(await pulse(grant)).toEqual(['continue']);
    await core.sweep();
  }
  expect((await core.task(id)).status).toBe('running');
  core.clock.advance(LEASE_MS);
  await core.sweep();
  expect(await pulse(grant)).toEqual(['lost']);
  expect(
    await core.store.write(pulseRuns, [
      { agentId: 'a2', runId: grant.runId, leaseToken: grant.leaseToken, leaseMs: 1 },
    ]),
  ).toEqual(['lost']);
  expect((await core.runs(id))[0]).toMatchObject({ lease_until: null });
});

it('another agent, or a wrong token, cannot keep a lease alive', async () => {
  const id = await core.create();
  const { runId, leaseToken } = await core.run();
  core.clock.advance(10);
  const pulses = [
    { agentId: 'a2', runId, leaseToken, leaseMs: LEASE_MS },
    { agentId: 'a1', runId, leaseToken: 'x', leaseMs: LEASE_MS },
  ];
  expect(await core.store.write(pulseRuns, pulses)).toEqual(['lost', 'lost']);
  expect((await core.runs(id))[0]!.lease_until).toBe(START + LEASE_MS);
});

it('a run past its time limit and the margin is timed out by the server, however alive its agent is', async () => {
  const id = await core.create({ timeoutMs: 5_000, retry: { ...DEFAULT_RETRY, max: 1 } });
  const grant = await core.run();
  await pulse(grant, 500_000);
  core.clock.set(START + 5_000 + DEADLINE_MARGIN_MS - 1);
  expect(await core.sweep()).toMatchObject({ timedOut: 0 });
  core.clock.advance(1);
  expect(await core.sweep()).toMatchObject({ timedOut: 1 });
  expect(await core.task(id)).toMatchObject({ status: 'timed_out', reason: 'attempts_used_up' });
  expect(await pulse(grant)).toEqual(['lost']);
});

describe('time to live', () => {
  it('a task that nobody took in time fails with the reason, and tells its conversation', async () => {
    const id = await core.ask({ ttlMs: 60_000 });
    core.clock.set(START + 59_999);
    expect(await core.sweep()).toMatchObject({ expired: 0 });
    core.clock.set(START + 60_000);
    expect(await core.sweep()).toMatchObject({ expired: 1 });
    expect(await core.task(id)).toMatchObject({
      status: 'failed',
      reason: 'expired',
      delivery_status: 'session_queued',
      error: expect.stringContaining('time to live'),
    });
    expect(await core.flowOf(id)).toMatchObject({ status: 'failed' });
    expect(core.endings(id)).toHaveLength(1);
    expect(await core.sweep()).toMatchObject({ expired: 0 });
  });

  it('a task that runs is left to its agent', async () => {
    const id = await core.create({ ttlMs: 1_000 });
    const grant = await core.run();
    core.clock.advance(2_000);
    expect(await core.sweep()).toMatchObject({ expired: 0 });
    await core.tell(grant, success);
    core.clock.advance(2_000);
    expect(await core.sweep()).toMatchObject({ expired: 0 });
    expect((await core.task(id)).status).toBe('succeeded');
  });
});

describe('grace', () => {
  it('gives every live run one lease time, and its time limit as long', async () => {
    const id = await core.create({ timeoutMs: 1 });
    const other = await core.create({ timeoutMs: 9_000_000 });
    const grant = await core.run();
    await core.run();
    core.clock.advance(3_600_000);
    expect(await core.store.transact('test.grace', (tx) => graceForAll(tx, LEASE_MS))).toBe(2);
    expect(await core.sweep(core.clock.now())).toEqual({ lost: 0, timedOut: 0, cancelled: 0, expired: 0 });
    core.clock.advance(LEASE_MS - 1);
    expect(await core.sweep()).toMatchObject({ lost: 0, timedOut: 0 });
    // What it did while nobody could hear it counts.
    expect(await core.tell(grant, success)).toEqual({ result: 'accepted' });
    expect((await core.task(id)).status).toBe('succeeded');
    core.clock.advance(1);
    expect(await core.sweep()).toMatchObject({ lost: 1 });
    expect((await core.task(other)).status).toBe('queued');
  });

  it('shortens a lease that a clock running ahead had made too long', async () => {
    const id = await core.create();
    await core.run();
    core.clock.advance(-10_000_000);
    await core.store.transact('test.grace', (tx) => graceForAll(tx, LEASE_MS));
    core.clock.advance(LEASE_MS);
    expect(await core.sweep()).toMatchObject({ lost: 1 });
    expect((await core.task(id)).status).toBe('queued');
  });

  it('leaves alone what has ended', async () => {
    await core.create();
    await core.tell(await core.run(), success);
    expect(await core.store.transact('test.grace', (tx) => graceForAll(tx, LEASE_MS))).toBe(0);
  });
});

it('a flood of lost runs is swept in portions, and nothing of it is forgotten', async () => {
  await core.createAll(Array.from({ length: 1_100 }, () => newTask()));
  expect(await core.claimAll('a1', { max: 1_100 })).toHaveLength(1_100);
  core.clock.advance(LEASE_MS);
  const portions: number[] = [];
  do portions.push((await core.sweep()).lost);
  while (portions.at(-1)! > 0);
  expect(portions).toEqual([500, 500, 100, 0]);
  expect(await core.claimAll('a2', { max: 2_000 })).toHaveLength(1_100);
});

it('whatever agents, people and the clock do, every task keeps its invariants', async () => {
  const move = fc.oneof(
    fc.record({ do: fc.constant('create' as const), max: fc.integer({ min: 1, max: 3 }) }),
    fc.record({ do: fc.constant('claim' as const), max: fc.integer({ min: 1, max: 3 }) }),
    fc.record({
      do: fc.constant('report' as const),
      which: fc.nat(20),
      news: fc.constantFrom(
        'started',
        'succeeded',
        'transient',
        'permanent',
        'rate_limited',
        'released',
        'cancelled',
        'blocked',
        'timed_out',
      ),
    }),
    fc.record({ do: fc.constant('cancel' as const), which: fc.nat(20) }),
    fc.record({ do: fc.constant('retry' as const), which: fc.nat(20) }),
    fc.record({ do: fc.constant('pass' as const), ms: fc.constantFrom(1, 5_000, 30_000, 200_000) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(move, { minLength: 5, maxLength: 30 }), async (moves) => {
      const world = await Core.open();
      try {
        const tasks: number[] = [];
        const grants: Awaited<ReturnType<Core['claimAll']>> = [];
        for (const step of moves) {
          if (step.do === 'create')
            tasks.push(await world.ask({ retry: { ...DEFAULT_RETRY, max: step.max }, timeoutMs: 50_000 }));
          if (step.do === 'claim') grants.push(...(await world.claimAll('a1', { max: step.max })));
          const grant = step.do === 'report' ? grants[step.which % Math.max(1, grants.length)] : undefined;
          if (step.do === 'report' && grant) {
            const classes = ['transient', 'permanent', 'rate_limited'] as const;
            const errorClass = classes.find((word) => word === step.news);
            if (errorClass) await world.tell(grant, { type: 'failed', errorClass, error: 'x' });
            else if (step.news === 'succeeded' || step.news === 'blocked')
              await world.tell(grant, { type: step.news, summary: 's' });
            else await world.tell(grant, { type: step.news as 'started' | 'released' | 'cancelled' | 'timed_out' });
          }
          const id = 'which' in step ? tasks[step.which % Math.max(1, tasks.length)] : undefined;
          if (step.do === 'cancel' && id !== undefined) await world.cancel(id);
          if (step.do === 'retry' && id !== undefined) await world.retry(id);
          if (step.do === 'pass') world.clock.advance(step.ms);
          if (step.do === 'pass') await world.sweep();
        }
        for (const id of tasks) await check(world, id);
      } finally {
        await world.close();
      }
    }),
    { numRuns: Number(process.env.PROPERTY_RUNS ?? 30) },
  );
}, 600_000);

/** At most one live run; executions within the limit; one end per generation; the flow agrees with its task. */
async function check(world: Core, id: number): Promise<void> {
  const [task, runs, flow] = [await world.task(id), await world.runs(id), await world.flowOf(id)];
  const live = runs.filter((run) => run.lease_until !== null);
  expect(live.map((run) => run.id)).toEqual(task.run_id === null ? [] : [task.run_id]);
  expect(runs.every((run) => (run.ended_at === null) === (run.outcome === null))).toBe(true);
  expect(task.attempt).toBeGreaterThanOrEqual(0);
  expect(task.attempt).toBeLessThanOrEqual(task.max_attempts);
  const counted = runs.filter(
    (run) =>
      run.generation === task.generation &&
      run.started_at !== null &&
      run.error_class !== 'rate_limited' &&
      run.outcome !== 'released',
  );
  // A cancel ends the count: what came back to be done again is not. Whoever lets the last execution go on has that one once more.
  const goesOn = runs.some((run) => run.generation === task.generation && run.outcome === 'blocked');
  if (task.cancel_requested_at === null && !goesOn) expect(task.attempt).toBe(counted.length);
  expect(world.endings(id)).toHaveLength(task.ended_at === null ? task.generation - 1 : task.generation);
  if (task.cancel_requested_at !== null) expect(['leased', 'running', 'cancelled', 'succeeded']).toContain(task.status);
  const expected: Record<string, string> = {
    waiting: 'blocked',
    succeeded: 'finished',
    failed: 'failed',
    timed_out: 'failed',
    lost: 'failed',
    cancelled: 'cancelled',
  };
  expect(flow.status).toBe(expected[task.status] ?? 'active');
}
