import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sweeper } from '../../src/agents/sweeper.ts';
import { silentLog } from '../../src/log.ts';
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
