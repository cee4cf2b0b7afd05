import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Core, LEASE_MS } from '../support/core.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

const expire = () => {
  core.clock.advance(LEASE_MS);
  return core.sweep();
};
const blocks = () => core.events.filter(({ type }) => type === 'task.blocked');

describe('onLost: ask', () => {
  it('waits and blocks the flow with a sentence, once, whoever else sweeps', async () => {
    const id = await core.ask({ onLost: 'ask' });
    await core.run();
    expect((await Promise.all([expire(), core.sweep()])).map(({ lost }) => lost).sort()).toEqual([0, 1]);
    await core.sweep();
    expect(await core.task(id)).toMatchObject({ status: 'waiting', reason: 'lost_ask', attempt: 1, run_id: null });
    expect(await core.flowOf(id)).toMatchObject({
      status: 'blocked',
      blocked_task_id: id,
      blocked_summary: expect.stringMatching(/nobody knows how far .* retry or cancel/),
    });
    expect(await core.runs(id)).toMatchObject([{ outcome: 'lost' }]);
    expect(blocks()).toMatchObject([{ id, reason: 'lost_ask', summary: '', question: false }]);
    expect(core.endings(id)).toEqual([]);
    core = await core.reopen();
    expect(await core.claimAll('a2')).toEqual([]);
  });

  it('also where the start was not reported, and where a newer process takes the agent over', async () => {
    const id = await core.ask({ onLost: 'ask' });
    const agent = core.agent();
    await agent.register();
    expect((await agent.pull()).tasks).toHaveLength(1);
    await agent.clone('a1-2').register();
    expect(await core.task(id)).toMatchObject({
      status: 'waiting',
      reason: 'lost_ask',
      attempt: 0,
      unstarted_losses: 1,
    });
  });

  it('A01: a success that comes after it changes nothing', async () => {
    const id = await core.ask({ onLost: 'ask' });
    const grant = await core.run();
    await expire();
    expect(await core.tell(grant, { type: 'succeeded', summary: 'late' })).toMatchObject({ result: 'lease_lost' });
    expect(await core.task(id)).toMatchObject({ status: 'waiting', summary: null });
    expect((await core.history(id)).map(({ type }) => type)).toContain('late_succeeded');
  });

  it('goes on with a person’s retry, from its checkpoint and as the same generation', async () => {
    const id = await core.ask({ onLost: 'ask' });
    const grant = await core.run();
    await core.tell(grant, { type: 'checkpoint', data: { page: 3 } });
    await expire();
    expect(await core.retry(id)).toEqual({ result: 'queued' });
    expect(await core.flowOf(id)).toMatchObject({ status: 'active', blocked_task_id: null, blocked_summary: null });
    const again = await core.run('a2');
    expect([again.task.checkpoint_version, (await core.checkpoint(id))!.data]).toEqual([1, '{"page":3}']);
    await core.tell(again, { type: 'succeeded', summary: 'ok' }, { agentId: 'a2' });
    expect(await core.task(id)).toMatchObject({ status: 'succeeded', generation: 1, attempt: 2 });
    expect(await core.flowOf(id)).toMatchObject({ status: 'finished' });
  });

  it('ends with a person’s cancel, and with the cancel that was asked for before', async () => {
    const id = await core.ask({ onLost: 'ask' });
    await core.run();
    await expire();
    expect(await core.cancel(id)).toEqual({ result: 'cancelled' });
    expect(await core.flowOf(id)).toMatchObject({ status: 'cancelled' });
    const second = await core.ask({ onLost: 'ask' });
    await core.run();
    await core.cancel(second);
    await expire();
    expect(await core.task(second)).toMatchObject({ status: 'cancelled' });
    expect(core.endings(second)).toHaveLength(1);
  });

  it('asks again every time, however often a person has said yes', async () => {
    const id = await core.ask({ onLost: 'ask' });
    for (let n = 0; n < 12; n += 1) {
      await core.claim();
      await expire();
      expect(await core.task(id)).toMatchObject({ status: 'waiting', reason: 'lost_ask' });
      await core.retry(id);
    }
  });
});

describe('onLost: fail', () => {
  it.each([true, false])('is lost at once, whether its start was reported or not (%s)', async (started) => {
    const id = await core.ask({ onLost: 'fail' });
    await (started ? core.run() : core.claim());
    await expire();
    expect(await core.task(id)).toMatchObject({ status: 'lost', reason: 'lost_not_retried' });
    expect(await core.flowOf(id)).toMatchObject({ status: 'failed' });
    expect(core.endings(id)).toHaveLength(1);
    expect(await core.claimAll('a2')).toEqual([]);
  });
});

it.each([{}, { onLost: 'retry' } as const])('%o goes to the next agent', async (task) => {
  const id = await core.create(task);
  await core.run();
  await expire();
  expect(await core.task(id)).toMatchObject({ status: 'queued', reason: 'lease_expired', on_lost: 'retry' });
  expect((await core.claim('a2')).taskId).toBe(id);
});

it('failures of an onLost: ask task are tried again as ever, for nobody doubts how they ended', async () => {
  const id = await core.create({ onLost: 'ask' });
  await core.tell(await core.run(), { type: 'failed', errorClass: 'transient', error: 'busy' });
  expect(await core.task(id)).toMatchObject({ status: 'queued' });
});
