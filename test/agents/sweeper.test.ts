import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sweeper } from '../../src/agents/sweeper.ts';
import { silentLog } from '../../src/log.ts';
import { pulseRuns } from '../../src/tasks/heartbeat.ts';
import { Core, GRACE_MS, LEASE_MS } from '../support/core.ts';
import { until } from '../support/until.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

const success = { type: 'succeeded', summary: 'ok' } as const;
/** Seconds of normal operation. */
async function live(sweeper: Sweeper, ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 1_000) {
    core.pass(Math.min(1_000, ms - passed));
    await sweeper.sweepOnce();
  }
}

it('in normal operation a silent agent loses its lease after exactly one lease time', async () => {
  const sweeper = core.sweeper();
  await sweeper.sweepOnce();
  const id = await core.create();
  await core.run();
  await live(sweeper, LEASE_MS - 1_000);
  expect((await core.task(id)).status).toBe('running');
  await live(sweeper, 1_000);
  expect(await core.task(id)).toMatchObject({ status: 'queued', reason: 'lease_expired' });
});

it('after a start nothing expires for one lease time, and what agents did meanwhile counts', async () => {
  const [kept, dead, over, called] = [
    await core.create(),
    await core.create(),
    await core.create({ timeoutMs: 1 }),
    await core.create(),
  ];
  const grants = [await core.run(), await core.run(), await core.run(), await core.run()];
  await core.cancel(called);
  core = await core.reopen();
  core.pass(3_600_000);
  const sweeper = core.sweeper();
  await sweeper.sweepOnce();
  await live(sweeper, GRACE_MS - 1_000);
  for (const id of [kept, dead, over, called]) expect((await core.task(id)).status).toBe('running');
  expect(await core.tell(grants[0]!, success)).toEqual({ result: 'accepted' });
  expect(await core.tell(grants[2]!, success)).toEqual({ result: 'accepted' });
  await live(sweeper, 1_000);
  expect((await core.task(called)).status).toBe('cancelled');
  await live(sweeper, LEASE_MS - GRACE_MS);
  expect((await core.task(dead)).status).toBe('queued');
  expect([(await core.task(kept)).status, (await core.task(over)).status]).toEqual(['succeeded', 'succeeded']);
});

it('a jump of the clock right before or after the transaction of a sweep does not go unseen', async () => {
  let jumpMs = 0;
  const { registry, clock, store, dispatch, emit } = core;
  // The last thing in the transaction of a sweep: the jump comes when it is on disk, before the sweeper goes on.
  const jumping = {
    flush: (tx: Parameters<typeof registry.flush>[0]) => {
      tx.afterCommit(() => clock.advance(jumpMs));
      return registry.flush(tx);
    },
  } as typeof registry;
  const sweeper = new Sweeper({
    ...{ store, clock, dispatch, emit, registry: jumping, log: silentLog },
    ...{ leaseMs: LEASE_MS, cancelGraceMs: GRACE_MS, monotonic: () => 0 },
  });
  await sweeper.sweepOnce();
  const id = await core.create();
  await core.run();
  jumpMs = 3_600_000;
  await sweeper.sweepOnce();
  jumpMs = 0;
  await sweeper.sweepOnce();
  expect((await core.task(id)).status).toBe('running');
  const sweeping = sweeper.sweepOnce();
  clock.advance(3_600_000);
  await sweeping;
  expect((await core.task(id)).status).toBe('running');
});

it('a pause of the process costs nobody a lease', async () => {
  const sweeper = core.sweeper();
  await sweeper.sweepOnce();
  const id = await core.create();
  await core.run();
  core.pass(300_000);
  await sweeper.sweepOnce();
  expect((await core.task(id)).status).toBe('running');
  await live(sweeper, LEASE_MS);
  expect((await core.task(id)).status).toBe('queued');
});

it.each([
  ['forward', 3_600_000],
  ['back', -3_600_000],
])('a jump of the clock %s costs nobody a lease, and nobody keeps one for ever', async (_way, jumpMs) => {
  const sweeper = core.sweeper();
  await sweeper.sweepOnce();
  const id = await core.create();
  await core.run();
  await live(sweeper, 2_000);
  core.clock.advance(jumpMs);
  await sweeper.sweepOnce();
  await live(sweeper, LEASE_MS - 1_000);
  expect((await core.task(id)).status).toBe('running');
  await live(sweeper, 1_000);
  expect((await core.task(id)).status).toBe('queued');
});

it('an outage of the database costs nobody a lease', async () => {
  const sweeper = core.sweeper();
  await sweeper.sweepOnce();
  const id = await core.create();
  await core.run();
  core.store.onBeforeCommit(async () => {
    throw new Error('the disk is away');
  });
  for (let n = 0; n < 40; n += 1) {
    core.pass(1_000);
    await expect(sweeper.sweepOnce()).rejects.toThrow('the disk is away');
  }
  core.store.onBeforeCommit(async () => undefined);
  core.pass(1_000);
  await sweeper.sweepOnce();
  expect((await core.task(id)).status).toBe('running');
});

it('a sweep serves agents that wait with what time alone made due', async () => {
  const agent = core.agent();
  await agent.register();
  const id = await core.create({ runAt: core.clock.now() + 50_000_000 });
  const pull = agent.pull(1, { waitMs: 60_000 });
  await until(() => core.dispatch.waiting === 1);
  core.pass(50_000_000);
  await core.sweeper().sweepOnce();
  expect((await pull).tasks).toMatchObject([{ taskId: core.store.ids.encode(id) }]);
});

it('the service sweeps by itself, outlives failures of the store, and stops', async () => {
  let sweeps = 0;
  let broken = false;
  core.store.onBeforeCommit(async () => {
    sweeps += 1;
    if (broken) throw new Error('no');
  });
  const { store, clock, registry, dispatch, emit } = core;
  const sweeper = new Sweeper({
    store,
    clock,
    registry,
    dispatch,
    emit,
    log: silentLog,
    leaseMs: LEASE_MS,
    cancelGraceMs: GRACE_MS,
  });
  await sweeper.start();
  await until(() => sweeps >= 2, 'a second sweep');
  broken = true;
  const before = sweeps;
  await until(() => sweeps >= before + 2, 'sweeps that fail');
  broken = false;
  await sweeper.stop();
  const after = sweeps;
  await core.store.transact('test.settle', async () => null);
  expect(sweeps).toBe(after + 1); // this transaction alone
});

describe('two sweepers over one store', () => {
  const both = (sweepers: readonly Sweeper[]) => Promise.all(sweepers.map((sweeper) => sweeper.sweepOnce()));

  it('do each thing once: lost, timed out, cancelled, expired', async () => {
    const sweepers = [core.sweeper(), core.sweeper()];
    await both(sweepers);
    const once = { retry: { max: 1, baseMs: 1, factor: 1, capMs: 1, jitter: 0 } };
    const [lost, late, called] = [
      await core.create(once),
      await core.create({ ...once, timeoutMs: 1 }),
      await core.create(),
    ];
    const grants = [await core.run(), await core.run(), await core.run()];
    const old = await core.create({ pool: 'nobody', ttlMs: GRACE_MS });
    await core.cancel(called);
    for (let passed = 0; passed < LEASE_MS; passed += 1_000) {
      core.pass(1_000);
      // Two are heard of, and one of them runs past its limit.
      const heard = [grants[1]!, grants[2]!].map(({ runId, leaseToken }) => ({
        agentId: 'a1',
        runId,
        leaseToken,
        leaseMs: 10 * LEASE_MS,
      }));
      if (passed === 0) await core.store.write(pulseRuns, heard);
      await both(sweepers);
    }
    await core.store.transact('test.deadline', (tx) =>
      tx.exec(tx.dialect.build.updateTable('run').set({ deadline_at: tx.now }).where('id', '=', grants[1]!.runId)),
    );
    await both(sweepers);
    const ends = await Promise.all([lost, late, called, old].map((id) => core.task(id)));
    expect(ends.map(({ status }) => status)).toEqual(['lost', 'timed_out', 'cancelled', 'failed']);
    for (const id of [lost, late, called, old]) expect(core.endings(id)).toHaveLength(1);
  });

  it.each(['start', 'jump'])('after a %s neither ends a lease within one lease time', async (what) => {
    const sweepers = [core.sweeper(), core.sweeper()];
    if (what === 'jump') await both(sweepers);
    const id = await core.create();
    await core.run();
    core.clock.advance(3_600_000);
    await both(sweepers);
    for (let passed = 0; passed < LEASE_MS - 1_000; passed += 1_000) {
      core.pass(1_000);
      await both(sweepers);
    }
    expect((await core.task(id)).status).toBe('running');
    core.pass(1_000);
    await both(sweepers);
    expect((await core.task(id)).status).toBe('queued');
    expect((await core.runs(id)).filter(({ outcome }) => outcome === 'lost')).toHaveLength(1);
  });
});
