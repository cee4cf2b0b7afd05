import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { pulseRuns } from '../../src/tasks/heartbeat.ts';
import type { RunNews } from '../../src/tasks/report.ts';
import { DEFAULT_RETRY } from '../../src/tasks/task.ts';
import { Core, GRACE_MS, LEASE_MS } from '../support/core.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

const pulse = async (grant: { runId: number; leaseToken: string }, agentId = 'a1') =>
  (
    await core.store.write(pulseRuns, [
      { agentId, runId: grant.runId, leaseToken: grant.leaseToken, leaseMs: LEASE_MS },
    ])
  )[0]!;

describe('cancel', () => {
  it('ends at once what no agent holds, with its flow, and says so once', async () => {
    const id = await core.ask();
    expect(await core.cancel(id)).toEqual({ result: 'cancelled' });
    expect(await core.cancel(id)).toEqual({ result: 'already', status: 'cancelled' });
    expect(await core.task(id)).toMatchObject({
      status: 'cancelled',
      reason: 'cancel_requested',
      ended_at: core.clock.now(),
      delivery_status: 'session_queued',
    });
    expect(await core.flowOf(id)).toMatchObject({ status: 'cancelled' });
    expect(core.endings(id)).toHaveLength(1);
    expect(await core.claimAll('a1')).toEqual([]);
    expect((await core.history(id)).filter(({ type }) => type === 'cancel_requested')).toMatchObject([
      { run_id: 0, data: '{"by":"test"}' },
    ]);
  });

  it('is told to the agent with its next heartbeat, and ends when the agent confirms', async () => {
    const id = await core.ask();
    const grant = await core.run();
    expect(await pulse(grant)).toBe('continue');
    expect(await core.cancel(id)).toEqual({ result: 'requested' });
    expect(await core.cancel(id)).toEqual({ result: 'requested' });
    expect(core.events.filter(({ type }) => type === 'task.cancel_requested')).toMatchObject([
      { id, runId: grant.runId, agentId: 'a1' },
    ]);
    expect(await core.task(id)).toMatchObject({ status: 'running', cancel_requested_at: core.clock.now() });
    expect(await pulse(grant)).toBe('cancel');
    await core.tell(grant, { type: 'cancelled', summary: 'so far' });
    expect(await core.task(id)).toMatchObject({ status: 'cancelled', summary: 'so far', reason: 'cancel_requested' });
    expect(await core.runs(id)).toMatchObject([{ outcome: 'cancelled' }]);
    expect(await pulse(grant)).toBe('lost');
    expect(core.endings(id)).toHaveLength(1);
  });

  it.each<[string, RunNews, string]>([
    ['a success', { type: 'succeeded', summary: 'ok' }, 'succeeded'],
    ['a failure that would be tried again', { type: 'failed', errorClass: 'transient', error: 'x' }, 'cancelled'],
    ['a rate limit', { type: 'failed', errorClass: 'rate_limited', error: 'x' }, 'cancelled'],
    ['a time-out', { type: 'timed_out' }, 'cancelled'],
    ['a hand-back', { type: 'released' }, 'cancelled'],
    ['a question', { type: 'needs_input', prompt: '?' }, 'cancelled'],
    ['a block', { type: 'blocked', summary: '?' }, 'cancelled'],
  ])('A12: after a cancel, %s ends the task for good, once', async (_name, news, end) => {
    const id = await core.ask();
    const grant = await core.run();
    await core.cancel(id);
    await core.tell(grant, news);
    const task = await core.task(id);
    expect(task).toMatchObject({
      status: end,
      reason: end === 'succeeded' ? 'finished_before_cancel' : 'cancel_requested',
    });
    expect(core.endings(id)).toMatchObject([{ end: { finishedBeforeCancel: end === 'succeeded' } }]);
    // Nothing that comes later changes it or ends it again.
    for (const late of [{ type: 'cancelled' }, { type: 'succeeded', summary: 'late' }, news] satisfies RunNews[])
      await core.tell(grant, late);
    core.clock.advance(LEASE_MS + GRACE_MS);
    await core.sweep();
    expect(await core.task(id)).toEqual(task);
    expect(core.endings(id)).toHaveLength(1);
    expect(await core.claimAll('a1')).toEqual([]);
    expect(await core.flowOf(id)).toMatchObject({ status: end === 'succeeded' ? 'finished' : 'cancelled' });
  });

  it('A12: cancel and end in one transaction: the report is heard first, and one end follows', async () => {
    for (const news of [
      { type: 'succeeded', summary: 'ok' },
      { type: 'failed', errorClass: 'permanent', error: 'x' },
    ] satisfies RunNews[]) {
      const id = await core.ask();
      const grant = await core.run();
      const [answer] = await Promise.all([core.cancel(id), core.tell(grant, news)]);
      const status = news.type === 'succeeded' ? 'succeeded' : 'failed';
      expect(answer).toEqual({ result: 'already', status });
      expect(core.endings(id)).toHaveLength(1);
    }
  });

  it('a lost lease after a cancel ends as cancelled, and the grace of the server too', async () => {
    const [lost, silent] = [await core.ask(), await core.ask()];
    const [, second] = [await core.run(), await core.run()];
    await core.cancel(lost);
    await core.cancel(silent);
    core.clock.advance(GRACE_MS - 1);
    expect(await pulse(second)).toBe('cancel');
    await core.sweep();
    expect((await core.task(silent)).status).toBe('running');
    core.clock.advance(1);
    expect(await core.sweep()).toMatchObject({ cancelled: 2, lost: 0 });
    for (const id of [lost, silent]) {
      expect(await core.task(id)).toMatchObject({
        status: 'cancelled',
        error: 'the agent did not confirm the cancel in time',
      });
      expect(core.endings(id)).toHaveLength(1);
    }
    expect(await core.tell(second, { type: 'succeeded', summary: 'late' })).toMatchObject({ result: 'lease_lost' });
  });

  it('the grace runs from when agents can speak', async () => {
    const id = await core.create();
    await core.run();
    await core.cancel(id);
    core.clock.advance(GRACE_MS + 5_000);
    const since = core.clock.now();
    expect(await core.sweep(since)).toMatchObject({ cancelled: 0 });
    core.clock.advance(GRACE_MS - 1);
    await core.sweep(since);
    // Its lease ran out meanwhile, which after a cancel is the end as well.
    expect(await core.task(id)).toMatchObject({ status: 'cancelled' });
    expect(await core.runs(id)).toMatchObject([{ outcome: 'lost' }]);
  });

  it('of an unknown task says so; of one task twice in a batch acts once', async () => {
    const id = await core.create();
    const answers = await core.store.write(
      core.verbs.cancel,
      [id, 999_999, id].map((task) => ({ id: task, by: 'x' })),
    );
    expect(answers).toEqual([{ result: 'cancelled' }, { result: 'unknown' }, { result: 'cancelled' }]);
    expect(core.endings(id)).toHaveLength(1);
  });
});

describe('retry', () => {
  it('starts the next generation with its executions from zero, keeps the history and promises one more message', async () => {
    const id = await core.ask({ retry: { ...DEFAULT_RETRY, max: 2 } });
    await core.tell(await core.run(), { type: 'output', key: 'k', value: 'v' });
    await core.sweep();
    await core.cancel(id);
    const first = await core.runs(id);
    await core.tell({ runId: first[0]!.id, leaseToken: first[0]!.lease_token }, { type: 'cancelled' });
    expect(await core.flowOf(id)).toMatchObject({ status: 'cancelled' });
    core.clock.advance(1_000);
    expect(await core.retry(id)).toEqual({ result: 'queued' });
    expect(await core.task(id)).toMatchObject({
      status: 'queued',
      generation: 2,
      attempt: 0,
      cancel_requested_at: null,
      ended_at: null,
      started_at: null,
      reason: null,
      error: null,
      cleanup_after: null,
      delivery_status: 'pending',
      run_at: core.clock.now(),
    });
    expect(await core.flowOf(id)).toMatchObject({ status: 'active', ended_at: null, cancel_requested_at: null });
    const grant = await core.run();
    expect(grant).toMatchObject({ attempt: 1, task: { generation: 2 } });
    await core.tell(grant, { type: 'succeeded', summary: 'at last' });
    expect(await core.task(id)).toMatchObject({ status: 'succeeded', generation: 2, attempt: 1 });
    expect(await core.runs(id)).toMatchObject([
      { generation: 1, outcome: 'cancelled' },
      { generation: 2, outcome: 'succeeded' },
    ]);
    expect(core.endings(id).map(({ generation }) => generation)).toEqual([1, 2]);
  });

  it('gives the new generation all its executions', async () => {
    const id = await core.create({ retry: { max: 2, baseMs: 0, factor: 1, capMs: 0, jitter: 0 } });
    const fail = async () =>
      void (await core.tell(await core.run(), { type: 'failed', errorClass: 'transient', error: 'x' }));
    await fail();
    await fail();
    expect(await core.task(id)).toMatchObject({ status: 'failed', reason: 'attempts_used_up' });
    await core.retry(id);
    await fail();
    expect((await core.task(id)).status).toBe('queued');
    await fail();
    expect(await core.task(id)).toMatchObject({ status: 'failed', attempt: 2, generation: 2 });
    expect(await core.runs(id)).toHaveLength(4);
  });

  it('is refused while the task is under way and after a success', async () => {
    const id = await core.create();
    expect(await core.retry(id)).toEqual({ result: 'refused', status: 'queued' });
    const grant = await core.run();
    expect(await core.retry(id)).toEqual({ result: 'refused', status: 'running' });
    await core.tell(grant, { type: 'succeeded', summary: 'ok' });
    expect(await core.retry(id)).toEqual({ result: 'refused', status: 'succeeded' });
    expect(await core.retry(999_999)).toEqual({ result: 'unknown' });
    expect((await core.history(id)).filter(({ type }) => type === 'retried')).toEqual([]);
  });

  it('of a task whose time to live was over is not given up again', async () => {
    const id = await core.create({ ttlMs: 1_000 });
    core.clock.advance(1_000);
    await core.sweep();
    expect((await core.task(id)).status).toBe('failed');
    await core.retry(id);
    core.clock.advance(10_000);
    await core.sweep();
    expect(await core.task(id)).toMatchObject({ status: 'queued', generation: 2 });
  });

  it('two people who retry at once start one generation', async () => {
    const id = await core.create();
    await core.cancel(id);
    await Promise.all([core.retry(id), core.retry(id), core.retry(id)]);
    expect(await core.task(id)).toMatchObject({ status: 'queued', generation: 2 });
    expect(core.events.filter(({ type }) => type === 'task.reopened')).toHaveLength(1);
  });
});
