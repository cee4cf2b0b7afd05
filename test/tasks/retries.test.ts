import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { HAND_BACK_LIMITS, MAX_UNSTARTED_LOSSES, POSTPONE_LIMITS } from '../../src/tasks/decide.ts';
import { reportRuns } from '../../src/tasks/report.ts';
import { DEFAULT_RETRY, type RetryPolicy } from '../../src/tasks/task.ts';
import { Core, LEASE_MS, newTask, START } from '../support/core.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

const MINUTE_MS = 60_000;
const transient = { type: 'failed', errorClass: 'transient', error: 'busy' } as const;
const limited = (retryAfterMs?: number) =>
  ({ type: 'failed', errorClass: 'rate_limited', error: '429', ...(retryAfterMs ? { retryAfterMs } : {}) }) as const;
const steady = (more: Partial<RetryPolicy> = {}): RetryPolicy => ({ ...DEFAULT_RETRY, jitter: 0, ...more });

describe('A16: jitter', () => {
  it('spreads 500 tasks that fail at one instant, at the cap too', async () => {
    const retry = { ...DEFAULT_RETRY, max: 100 };
    await core.createAll(Array.from({ length: 500 }, () => newTask({ retry })));
    // All have failed so often that the next pause is the cap's.
    await core.store.transact('test.attempts', (tx) =>
      tx.exec(tx.dialect.build.updateTable('task').set({ attempt: 19 })),
    );
    const grants = await core.claimAll('a1', { max: 500 });
    await Promise.all(grants.map((grant) => core.tell(grant, transient)));
    const build = core.store.dialect.build;
    const rows = await core.store.fetch(build.selectFrom('task').select(['attempt', 'run_at']));
    expect(new Set(rows.map(({ attempt }) => attempt))).toEqual(new Set([20]));
    const delays = rows.map(({ run_at }) => run_at - START);
    expect(new Set(delays.map((delay) => Math.floor(delay / 1_000))).size).toBeGreaterThan(100);
    expect(Math.min(...delays)).toBeGreaterThanOrEqual(150_000);
    expect(Math.max(...delays)).toBeLessThanOrEqual(450_000);
  });
});

describe('A17: rate limits', () => {
  it('wait for their time, six times with three executions allowed, and the task succeeds as its first execution', async () => {
    const id = await core.create({ retry: steady() });
    for (let n = 1; n <= 6; n += 1) {
      await core.tell(await core.run(), limited(120_000));
      core.clock.advance(119_999);
      expect(await core.claimAll('a1')).toEqual([]);
      core.clock.advance(1);
      expect(await core.task(id)).toMatchObject({
        status: 'queued',
        reason: 'rate_limited',
        error_class: 'rate_limited',
        attempt: 0,
        postponed: n,
        postponed_ms: n * 120_000,
      });
    }
    await core.tell(await core.run(), { type: 'succeeded', summary: 'ok' });
    expect(await core.task(id)).toMatchObject({ status: 'succeeded', attempt: 1 });
    expect((await core.runs(id)).map(({ error_class }) => error_class)).toEqual([
      ...Array(6).fill('rate_limited'),
      null,
    ]);
  });

  it('leave the executions for real failures', async () => {
    const id = await core.create({ retry: steady() });
    for (const news of [transient, limited(1_000), transient, limited(1_000), transient]) {
      core.clock.advance(MINUTE_MS);
      await core.tell(await core.run(), news);
    }
    expect(await core.task(id)).toMatchObject({ status: 'failed', attempt: 3, reason: 'attempts_used_up' });
  });

  it('end in a failure with a reason of its own once they take longer than a day in sum', async () => {
    const id = await core.create();
    await core.tell(await core.run(), limited(POSTPONE_LIMITS.totalMs));
    core.clock.advance(POSTPONE_LIMITS.totalMs);
    await core.tell(await core.run(), limited(1_000));
    expect(await core.task(id)).toMatchObject({
      status: 'failed',
      reason: 'rate_limited_too_long',
      error: '429',
      error_class: 'rate_limited',
      postponed: 1,
    });
  });

  it('end likewise after a thousand times, also over restarts', async () => {
    const id = await core.create();
    await core.store.transact('test.count', (tx) =>
      tx.exec(tx.dialect.build.updateTable('task').set({ postponed: POSTPONE_LIMITS.count - 1 })),
    );
    core = await core.reopen();
    await core.tell(await core.run(), limited(1_000));
    core.clock.advance(1_000);
    core = await core.reopen();
    expect(await core.task(id)).toMatchObject({ status: 'queued', postponed: POSTPONE_LIMITS.count });
    await core.tell(await core.run(), limited(1_000));
    expect(await core.task(id)).toMatchObject({ status: 'failed', reason: 'rate_limited_too_long' });
  });

  it('do not wait for the end of the task’s time to live', async () => {
    const id = await core.create({ ttlMs: 10 * MINUTE_MS });
    await core.tell(await core.run(), limited(9 * MINUTE_MS));
    core.clock.advance(9 * MINUTE_MS);
    expect(await core.task(id)).toMatchObject({ status: 'queued' });
    await core.tell(await core.run(), limited(MINUTE_MS));
    expect(await core.task(id)).toMatchObject({ status: 'failed', reason: 'rate_limited_too_long' });
  });

  it('begin anew with a person’s retry', async () => {
    const id = await core.create();
    await core.tell(await core.run(), limited(POSTPONE_LIMITS.totalMs));
    core.clock.advance(POSTPONE_LIMITS.totalMs);
    await core.tell(await core.run(), limited());
    await core.retry(id);
    expect(await core.task(id)).toMatchObject({ status: 'queued', generation: 2, postponed: 0, postponed_ms: 0 });
    await core.tell(await core.run(), limited());
    expect(await core.task(id)).toMatchObject({ status: 'queued', postponed: 1, postponed_ms: 30_000 });
  });
});

describe('the server judges what a report names', () => {
  const rules = { http: { 404: 'transient', 429: 'permanent' }, error: { ENOTFOUND: 'transient' } } as const;

  it.each([
    [{ errorClass: 'permanent', httpStatus: 404 }, 'queued', 'transient'],
    [{ errorClass: 'rate_limited', httpStatus: 429 }, 'failed', 'permanent'],
    [{ errorClass: 'permanent', errorType: 'ENOTFOUND' }, 'queued', 'transient'],
    // Without a rule the agent's word counts.
    [{ errorClass: 'permanent', httpStatus: 503 }, 'failed', 'permanent'],
    [{ errorClass: 'transient', errorType: 'constructor' }, 'queued', 'transient'],
  ] as const)('%o: %s as %s', async (what, status, errorClass) => {
    const id = await core.create({ retry: steady({ on: rules }) });
    const agent = core.agent();
    await agent.register();
    const [assignment] = (await agent.pull()).tasks;
    const { runId, leaseToken } = assignment!;
    const answer = await agent.report({ runId, leaseToken, type: 'failed', error: 'no', ...what });
    expect(answer.results).toMatchObject([{ result: 'accepted' }]);
    expect(await core.task(id)).toMatchObject({ status, error_class: errorClass });
    expect(await core.runs(id)).toMatchObject([{ outcome: 'failed', error_class: errorClass }]);
  });
});

describe('A18: counts and times are in the row', () => {
  it('with a restart after every failure there are three executions, each after its pause, then a dead letter', async () => {
    const id = await core.create({ retry: steady() });
    for (const [attempt, pauseMs] of [
      [1, 1_000],
      [2, 2_000],
    ] as const) {
      await core.tell(await core.run(), transient);
      core = await core.reopen();
      expect(await core.task(id)).toMatchObject({ status: 'queued', attempt });
      core.clock.advance(pauseMs - 1);
      expect(await core.claimAll('a1')).toEqual([]);
      core.clock.advance(1);
    }
    await core.tell(await core.run(), transient);
    core = await core.reopen();
    core.clock.advance(86_400_000);
    expect(await core.claimAll('a1')).toEqual([]);
    expect(await core.task(id)).toMatchObject({ status: 'failed', attempt: 3, reason: 'attempts_used_up' });
    expect(await core.runs(id)).toHaveLength(3);
    const { build } = core.store.dialect;
    expect(await core.store.fetch(build.selectFrom('dead_letter').selectAll())).toMatchObject([
      { task_id: id, state: 'dead', deaths: 1, attempt: 3 },
    ]);
  });

  it('a crash between the failure and its retry leaves neither, and the repeated report makes both once', async () => {
    const id = await core.create({ retry: steady() });
    const grant = await core.run();
    const report = { agentId: 'a1', runId: grant.runId, leaseToken: grant.leaseToken, seq: 9_000, news: transient };
    const crash = core.store.transact('test.crash', async (tx) => {
      await reportRuns(tx, [report], core.emit);
      throw new Error('crash');
    });
    await expect(crash).rejects.toThrow('crash');
    core = await core.reopen();
    expect(await core.task(id)).toMatchObject({ status: 'running', attempt: 1 });
    for (const result of ['accepted', 'duplicate'])
      expect(await core.store.write(core.verbs.report, [report])).toMatchObject([{ result }]);
    expect(await core.task(id)).toMatchObject({ status: 'queued', attempt: 1, run_at: START + 1_000 });
  });
});

describe('A65: what is tried again keeps its priority and its place', () => {
  it('a failed one of high priority is next once it is due, whatever waits below', async () => {
    const id = await core.create({ priority: 'high', retry: steady() });
    await core.tell(await core.run(), transient);
    await core.createAll(Array.from({ length: 100 }, () => newTask({ priority: 'low' })));
    expect((await core.claim()).taskId).not.toBe(id);
    core.clock.advance(1_000);
    expect(await core.task(id)).toMatchObject({ priority: 0 });
    expect((await core.claim()).taskId).toBe(id);
  });

  it.each(['low', 'normal', 'high'] as const)(
    'a lost one (%s) comes before all that were asked for after it',
    async (priority) => {
      const first = await core.create({ priority });
      const grant = await core.run();
      core.clock.advance(1_000);
      const rest = await core.createAll(Array.from({ length: 20 }, () => newTask({ priority })));
      core.clock.advance(LEASE_MS);
      expect(await core.sweep()).toMatchObject({ lost: 1 });
      expect(grant.taskId).toBe(first);
      const order = [];
      for (let n = 0; n <= rest.length; n += 1) order.push((await core.claim()).taskId);
      expect(order).toEqual([first, ...rest.map(({ id }) => id)]);
    },
  );

  it('one that its agent hands back keeps its place too', async () => {
    const first = await core.create();
    const grant = await core.run();
    core.clock.advance(1_000);
    const second = await core.create();
    await core.tell(grant, { type: 'released' });
    expect([(await core.claim()).taskId, (await core.claim()).taskId]).toEqual([first, second]);
  });

  it('a clock that was set back keeps nobody waiting', async () => {
    const id = await core.create();
    const grant = await core.run();
    core.clock.advance(-86_400_000);
    await core.tell(grant, { type: 'released' });
    expect((await core.claim()).taskId).toBe(id);
  });
});

describe('a task that kills its agents before they can say that it runs', () => {
  const loseOne = async () => {
    await core.claim();
    core.clock.advance(LEASE_MS);
    expect(await core.sweep()).toMatchObject({ lost: 1 });
  };

  it('is lost after ten leases, in plain words, over restarts', async () => {
    const id = await core.create();
    for (let n = 1; n < MAX_UNSTARTED_LOSSES; n += 1) {
      await loseOne();
      if (n % 4 === 0) core = await core.reopen();
      expect(await core.task(id)).toMatchObject({ status: 'queued', attempt: 0, unstarted_losses: n });
    }
    await loseOne();
    expect(await core.task(id)).toMatchObject({ status: 'lost', reason: 'never_started', attempt: 0 });
    expect(await core.runs(id)).toHaveLength(MAX_UNSTARTED_LOSSES);
    expect(core.endings(id)).toHaveLength(1);
  });

  it('is given ten more by a person', async () => {
    const id = await core.create();
    for (let n = 1; n <= MAX_UNSTARTED_LOSSES; n += 1) await loseOne();
    await core.retry(id);
    await loseOne();
    expect(await core.task(id)).toMatchObject({ status: 'queued', generation: 2, unstarted_losses: 1 });
  });

  it('is no other than one that starts and is lost: those leases count as executions', async () => {
    const id = await core.create({ retry: steady({ max: 2 }) });
    for (let n = 1; n <= 2; n += 1) {
      await core.run();
      core.clock.advance(LEASE_MS);
      await core.sweep();
    }
    expect(await core.task(id)).toMatchObject({ status: 'lost', reason: 'attempts_used_up', unstarted_losses: 0 });
  });
});

it('a task that was tried in vain until its time to live was over is not said to have found no machine', async () => {
  const tried = await core.create({ ttlMs: MINUTE_MS, retry: steady({ baseMs: 2 * MINUTE_MS }) });
  await core.tell(await core.run(), transient);
  const untried = await core.create({ ttlMs: MINUTE_MS });
  core.clock.advance(MINUTE_MS);
  expect(await core.sweep()).toMatchObject({ expired: 2 });
  expect(await core.task(tried)).toMatchObject({ reason: 'expired', error: expect.stringMatching(/^it was not done/) });
  expect(await core.task(untried)).toMatchObject({
    reason: 'expired',
    error: expect.stringMatching(/^nobody took it/),
  });
});

describe('a task that is handed back again and again', () => {
  it('keeps nobody busy: later hand-backs wait, and the hundredth is the last, in plain words, over restarts', async () => {
    const id = await core.ask({ retry: steady({ max: 1 }) });
    const waits: number[] = [];
    for (let n = 1; n < HAND_BACK_LIMITS.count; n += 1) {
      await core.tell(await core.run(), { type: 'released' });
      const { status, run_at, attempt } = await core.task(id);
      expect([status, attempt]).toEqual(['queued', 0]);
      waits.push(Math.max(0, run_at - core.clock.now()));
      core.clock.advance(waits.at(-1)!);
      if (n % 30 === 0) core = await core.reopen();
    }
    expect(waits.slice(0, 14)).toEqual([...Array(10).fill(0), 1_000, 2_000, 4_000, 8_000]);
    expect(Math.max(...waits)).toBe(300_000);
    await core.tell(await core.run(), { type: 'released' });
    expect(await core.task(id)).toMatchObject({ status: 'failed', reason: 'handed_back_too_often', hand_backs: 100 });
    expect(core.endings(id)).toHaveLength(1);
    await core.retry(id);
    expect(await core.task(id)).toMatchObject({ status: 'queued', generation: 2, hand_backs: 0 });
  });

  it('is cancelled by a hand-back once that was asked for', async () => {
    const id = await core.create();
    const grant = await core.run();
    await core.store.transact('test.count', (tx) =>
      tx.exec(tx.dialect.build.updateTable('task').set({ hand_backs: HAND_BACK_LIMITS.count })),
    );
    await core.cancel(id);
    await core.tell(grant, { type: 'released' });
    expect(await core.task(id)).toMatchObject({ status: 'cancelled' });
  });
});

describe('a task that waited for a person', () => {
  it.each([1, 2])('never counts more executions than it may have (%d), however often it goes on', async (max) => {
    const id = await core.ask({ retry: steady({ max }) });
    for (let n = 1; n <= 4; n += 1) {
      await core.tell(await core.run(), { type: 'needs_input', prompt: 'which?' });
      expect(await core.task(id)).toMatchObject({ status: 'waiting', attempt: Math.min(n, max) });
      await core.retry(id);
      expect(await core.task(id)).toMatchObject({ status: 'queued', attempt: Math.min(n, max - 1), generation: 1 });
    }
    await core.tell(await core.run(), transient);
    expect(await core.task(id)).toMatchObject({ status: 'failed', reason: 'attempts_used_up', attempt: max });
  });
});
