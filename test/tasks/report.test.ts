import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { lastLogChunks } from '../../src/tasks/log-reading.ts';
import type { RunNews } from '../../src/tasks/report.ts';
import { DEFAULT_RETRY } from '../../src/tasks/task.ts';
import { Core, LEASE_MS, newTask, START } from '../support/core.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

const success = (summary = 'ok'): RunNews => ({ type: 'succeeded', summary });
const failure: RunNews = { type: 'failed', errorClass: 'transient', error: 'no' };
const typesOf = async (id: number) => (await core.history(id)).map(({ type }) => type);
const batch = (grant: { runId: number; leaseToken: string }, ...reports: [seq: number, news: RunNews][]) =>
  core.store.write(
    core.verbs.report,
    reports.map(([seq, news]) => ({ agentId: 'a1', runId: grant.runId, leaseToken: grant.leaseToken, seq, news })),
  );

describe('a normal run', () => {
  it('start, progress and success leave their marks once', async () => {
    const id = await core.create();
    const grant = await core.claim();
    core.clock.advance(5);
    await core.tell(grant, { type: 'started' });
    expect(await core.task(id)).toMatchObject({ status: 'running', attempt: 1, started_at: START + 5 });
    await core.tell(grant, { type: 'progress', percent: 40, message: 'half' });
    await core.tell(grant, { type: 'progress', message: 'more' });
    await core.tell(grant, { type: 'output', key: 'a', value: '1' });
    core.clock.advance(5);
    await core.tell(grant, { type: 'succeeded', summary: 'done', outputs: { b: '2' }, exitCode: 0 });
    const task = await core.task(id);
    expect(task).toMatchObject({
      status: 'succeeded',
      attempt: 1,
      summary: 'done',
      error: null,
      reason: null,
      ended_at: START + 10,
      run_id: null,
      cleanup_after: START + 10 + 7 * 86_400_000,
    });
    expect([JSON.parse(task.progress!), JSON.parse(task.outputs!)]).toEqual([
      { percent: null, message: 'more' },
      { a: '1', b: '2' },
    ]);
    expect(await core.runs(id)).toMatchObject([
      { outcome: 'succeeded', started_at: START + 5, ended_at: START + 10, exit_code: 0, lease_until: null },
    ]);
    expect(core.endings(id)).toMatchObject([
      { state: 'succeeded', end: { summary: 'done', attempt: 1, tookMs: 10, finishedBeforeCancel: false } },
    ]);
    expect(core.events.map(({ type }) => type)).toEqual([
      'task.queued',
      'task.state',
      'task.progress',
      'task.progress',
      'task.state',
      'task.ended',
    ]);
  });

  it('everything about a run in one batch is the same as one by one', async () => {
    const news: RunNews[] = [
      { type: 'started' },
      { type: 'progress', percent: 1 },
      { type: 'checkpoint', data: { at: 3 } },
      { type: 'output', key: 'k', value: 'v' },
      { type: 'log', stream: 'stdout', text: 'hello', offset: 0 },
      success(),
    ];
    const [one, two] = [await core.create(), await core.create()];
    const [first, second] = [await core.claim(), await core.claim()];
    for (const item of news) await core.tell(first, item);
    await batch(second, ...news.map((item, index): [number, RunNews] => [index, item]));
    const shape = async (id: number) => {
      const { id: _id, ...task } = await core.task(id);
      const runs = (await core.runs(id)).map(({ id: _run, task_id: _task, lease_token: _token, ...run }) => run);
      return { task, runs, events: await typesOf(id) };
    };
    expect(await shape(two)).toEqual(await shape(one));
  });

  it('an execution is counted when the program starts, or when its end proves that it had', async () => {
    const counted = async (...news: RunNews[]) => {
      const id = await core.create();
      const grant = await core.claim();
      for (const item of news) await core.tell(grant, item);
      const { attempt } = await core.task(id);
      await core.cancel(id);
      return attempt;
    };
    expect(await counted()).toBe(0);
    expect(await counted({ type: 'started' })).toBe(1);
    expect(await counted({ type: 'started' }, { type: 'started' })).toBe(1);
    expect(await counted(success())).toBe(1);
    expect(await counted(failure)).toBe(1);
    expect(await counted({ type: 'released' })).toBe(0);
    expect(await counted({ type: 'started' }, { type: 'released' })).toBe(0);
    expect(await counted({ type: 'failed', errorClass: 'rate_limited', error: '429' })).toBe(0);
  });

  it('what a failed run printed and how it ended is kept', async () => {
    const id = await core.create();
    await core.tell(await core.run(), {
      type: 'failed',
      errorClass: 'permanent',
      error: 'killed',
      summary: 'so far',
      exitCode: 137,
      signal: 'SIGKILL',
    });
    expect(await core.task(id)).toMatchObject({
      status: 'failed',
      error: 'killed',
      error_class: 'permanent',
      summary: 'so far',
      reason: 'permanent_error',
    });
    expect(await core.runs(id)).toMatchObject([{ error: 'killed', exit_code: 137, signal: 'SIGKILL' }]);
  });
});

describe('the fence', () => {
  /** A task whose first run was lost, and its second run. */
  async function overtaken() {
    const id = await core.create();
    const first = await core.run('a1');
    core.clock.advance(LEASE_MS + 1);
    await core.sweep();
    const second = await core.run('a2');
    return { id, first, second };
  }

  it('A01: a late agent cannot finish a task that was re-queued and finished by another', async () => {
    const { id, first, second } = await overtaken();
    expect(await core.tell(second, success('two'), { agentId: 'a2' })).toEqual({ result: 'accepted' });
    expect(await core.tell(first, success('one'))).toEqual({ result: 'lease_lost', reason: 'the run is over' });
    expect(await core.task(id)).toMatchObject({ status: 'succeeded', summary: 'two', attempt: 2 });
    expect(core.endings(id)).toHaveLength(1);
    expect(await typesOf(id)).toContain('late_succeeded');
  });

  it('A01: nor while the second run is at work, which goes on', async () => {
    const { id, first, second } = await overtaken();
    for (const news of [
      success('one'),
      failure,
      { type: 'cancelled' },
      { type: 'progress', percent: 9 },
      { type: 'checkpoint', data: 1 },
    ] satisfies RunNews[]) {
      const before = [await core.task(id), await core.runs(id)];
      expect(await core.tell(first, news)).toMatchObject({ result: 'lease_lost' });
      expect([await core.task(id), await core.runs(id)]).toEqual(before);
    }
    await core.tell(second, success('two'), { agentId: 'a2' });
    expect(await core.task(id)).toMatchObject({
      status: 'succeeded',
      summary: 'two',
      checkpoint_version: null,
      progress: null,
    });
  });

  it('late report and true end in one transaction: the fence decides, not the order', async () => {
    for (const order of [
      ['late', 'true'],
      ['true', 'late'],
    ]) {
      const { id, first, second } = await overtaken();
      const calls = {
        late: () => core.tell(first, success('one')),
        true: () => core.tell(second, success('two'), { agentId: 'a2' }),
      };
      const answers = await Promise.all(order.map((name) => calls[name as 'late' | 'true']()));
      expect(answers.map(({ result }) => result)).toEqual(
        order.map((name) => (name === 'late' ? 'lease_lost' : 'accepted')),
      );
      expect((await core.task(id)).summary).toBe('two');
    }
  });

  it('trap 10: another agent’s run, a wrong token and a run that never was are refused and leave nothing', async () => {
    const id = await core.create();
    const grant = await core.run('a1');
    const before = [await core.task(id), await core.runs(id), await core.history(id)];
    expect(await core.tell(grant, success(), { agentId: 'a2' })).toMatchObject({ result: 'rejected' });
    expect(await core.tell({ ...grant, leaseToken: 'guessed' }, success())).toMatchObject({ result: 'rejected' });
    expect(await core.tell({ runId: 999_999, leaseToken: 'x' }, success())).toMatchObject({ result: 'rejected' });
    expect([await core.task(id), await core.runs(id), await core.history(id)]).toEqual(before);
  });

  it('a bad report does not harm the others of its batch', async () => {
    const id = await core.create();
    const grant = await core.claim();
    const run = { agentId: 'a1', runId: grant.runId, leaseToken: grant.leaseToken };
    const answers = await core.store.write(core.verbs.report, [
      { ...run, seq: 1, news: { type: 'started' } },
      { ...run, runId: 424_242, seq: 1, news: success() },
      { ...run, leaseToken: 'x', seq: 2, news: failure },
      { ...run, seq: 3, news: success() },
    ]);
    expect(answers.map(({ result }) => result)).toEqual(['accepted', 'rejected', 'rejected', 'accepted']);
    expect((await core.task(id)).status).toBe('succeeded');
  });
});

describe('repeats', () => {
  it('trap 6: a report is applied once by (run, seq), in any order, with any gaps', async () => {
    const id = await core.create();
    const grant = await core.claim();
    const log = (n: number): [number, RunNews] => [n, { type: 'log', stream: 'stdout', text: `${n};`, offset: n }];
    expect((await batch(grant, log(7), log(3))).map(({ result }) => result)).toEqual(['accepted', 'accepted']);
    expect((await batch(grant, log(3), log(5), log(7), [1, { type: 'started' }])).map(({ result }) => result)).toEqual([
      'duplicate',
      'accepted',
      'duplicate',
      'accepted',
    ]);
    expect((await batch(grant, log(0))).map(({ result }) => result)).toEqual(['accepted']);
    expect((await lastLogChunks(core.store, core.store.ids, id, 200)).map(({ text }) => text).join('')).toBe(
      '0;3;5;7;',
    );
    expect(await core.task(id)).toMatchObject({ status: 'running', attempt: 1 });
  });

  it('the same report twice in one batch counts once', async () => {
    const id = await core.create();
    const grant = await core.run();
    expect((await batch(grant, [1, failure], [1, failure])).map(({ result }) => result)).toEqual([
      'accepted',
      'duplicate',
    ]);
    expect(await core.task(id)).toMatchObject({ status: 'queued', attempt: 1 });
  });

  it('an end whose answer was lost is a duplicate when it comes again, also after the task has moved on', async () => {
    const id = await core.create();
    const grant = await core.run();
    await core.tell(grant, success(), { seq: 5 });
    expect(await core.tell(grant, success(), { seq: 5 })).toEqual({ result: 'duplicate' });
    await core.retry(id);
    expect((await core.task(id)).status).toBe('succeeded'); // a success is not run again

    const other = await core.create();
    const failed = await core.run();
    await core.tell(failed, failure, { seq: 5 });
    core.clock.advance(10_000);
    await core.run('a2');
    expect(await core.tell(failed, failure, { seq: 5 })).toEqual({ result: 'duplicate' });
    expect(await core.task(other)).toMatchObject({ status: 'running', attempt: 2 });
    // What came late stays late, however often it comes.
    for (let n = 0; n < 2; n += 1)
      expect(await core.tell(failed, success(), { seq: 6 })).toMatchObject({ result: 'lease_lost' });
  });

  it('of two ends in one batch the first counts', async () => {
    const id = await core.create();
    const grant = await core.run();
    await batch(grant, [1, success('first')], [2, failure]);
    expect(await core.task(id)).toMatchObject({ status: 'succeeded', summary: 'first' });
    expect(core.endings(id)).toHaveLength(1);
  });
});

describe('trying again', () => {
  it('A18: exactly the allowed executions happen, and the pause survives a restart after every failure', async () => {
    const id = await core.create({ retry: { max: 3, baseMs: 1_000, factor: 2, capMs: 300_000, jitter: 0 } });
    const executions: number[] = [];
    for (const pauseMs of [1_000, 2_000, 0]) {
      const grant = await core.run();
      executions.push(grant.attempt);
      await core.tell(grant, failure);
      core = await core.reopen();
      if (pauseMs === 0) break;
      expect(await core.task(id)).toMatchObject({
        status: 'queued',
        run_at: core.clock.now() + pauseMs,
        reason: 'transient_error',
      });
      core.clock.advance(pauseMs - 1);
      expect(await core.claimAll('a1')).toEqual([]);
      core.clock.advance(1);
    }
    expect(executions).toEqual([1, 2, 3]);
    expect(await core.task(id)).toMatchObject({ status: 'failed', attempt: 3, reason: 'attempts_used_up' });
    core.clock.advance(86_400_000);
    expect(await core.claimAll('a1', { max: 10 })).toEqual([]);
    expect(await core.runs(id)).toHaveLength(3);
  });

  it('A17: six rate limits spend no execution, and the task succeeds in the end', async () => {
    const id = await core.create();
    for (let n = 0; n < 6; n += 1) {
      const grant = await core.run();
      expect(grant.attempt).toBe(1);
      await core.tell(grant, { type: 'failed', errorClass: 'rate_limited', error: '429', retryAfterMs: 120_000 });
      core.clock.advance(119_999);
      expect(await core.claimAll('a1')).toEqual([]);
      core.clock.advance(1);
    }
    await core.tell(await core.run(), success());
    expect(await core.task(id)).toMatchObject({ status: 'succeeded', attempt: 1 });
  });

  it('A65: retried, handed back and lost tasks keep their priority and come before worse ones', async () => {
    for (const after of ['failed', 'released', 'lost']) {
      const pool = `pool-${after}`;
      const queues = [`${pool}/shell`];
      const high = await core.create({ pool, priority: 'high' });
      await core.createAll(Array.from({ length: 100 }, () => newTask({ pool, priority: 'low' })));
      const grant = await core.run('a1', { queues });
      expect(grant.taskId).toBe(high);
      if (after === 'failed') await core.tell(grant, failure);
      if (after === 'released') await core.tell(grant, { type: 'released' });
      core.clock.advance(LEASE_MS);
      if (after === 'lost') await core.sweep();
      expect((await core.claim('a1', { queues })).taskId).toBe(high);
    }
  });

  it('a task that times out is tried again, and ends as timed_out', async () => {
    const id = await core.create({ retry: { ...DEFAULT_RETRY, max: 2 } });
    await core.tell(await core.run(), { type: 'timed_out', summary: 'so far' });
    expect(await core.task(id)).toMatchObject({ status: 'queued', reason: 'timed_out' });
    core.clock.advance(10_000);
    await core.tell(await core.run(), { type: 'timed_out' });
    expect(await core.task(id)).toMatchObject({
      status: 'timed_out',
      attempt: 2,
      reason: 'attempts_used_up',
      error: 'the time limit of the run was reached',
    });
  });
});

describe('needing a person', () => {
  it('a blocked task waits, its flow says what for, and a retry goes on from the checkpoint', async () => {
    const id = await core.ask();
    const grant = await core.run();
    await core.tell(grant, { type: 'checkpoint', data: { page: 7 } });
    await core.tell(grant, { type: 'blocked', summary: 'the quota is used up' });
    expect(await core.task(id)).toMatchObject({
      status: 'waiting',
      reason: 'blocked',
      run_id: null,
      ended_at: null,
      attempt: 1,
    });
    expect(await core.flowOf(id)).toMatchObject({
      status: 'blocked',
      blocked_task_id: id,
      blocked_summary: 'the quota is used up',
      revision: 2,
      ended_at: null,
    });
    expect(await core.runs(id)).toMatchObject([{ outcome: 'blocked', lease_until: null }]);
    expect(core.events).toContainEqual(
      expect.objectContaining({ type: 'task.blocked', id, summary: 'the quota is used up', question: false }),
    );
    expect(await core.claimAll('a1')).toEqual([]);
    core.clock.advance(LEASE_MS * 10);
    await core.sweep();
    expect(await core.retry(id)).toEqual({ result: 'queued' });
    expect(await core.task(id)).toMatchObject({ status: 'queued', generation: 1, attempt: 1 });
    expect(await core.flowOf(id)).toMatchObject({ status: 'active', blocked_task_id: null, blocked_summary: null });
    const next = await core.claim();
    expect([next.attempt, next.task.checkpoint_version, (await core.checkpoint(id))!.data]).toEqual([
      2,
      1,
      '{"page":7}',
    ]);
    await core.tell(next, success());
    expect(await core.flowOf(id)).toMatchObject({ status: 'finished', ended_at: core.clock.now() });
  });

  it('a question is kept with its options, also where start, checkpoint and question come in one batch', async () => {
    const id = await core.ask();
    const grant = await core.claim();
    await batch(
      grant,
      [1, { type: 'started' }],
      [2, { type: 'checkpoint', data: [1] }],
      [3, { type: 'needs_input', prompt: 'which room?', options: ['301', '302'] }],
    );
    const task = await core.task(id);
    expect(task).toMatchObject({ status: 'waiting', reason: 'needs_input', attempt: 1, checkpoint_version: 1 });
    expect(JSON.parse(task.question!)).toEqual({ prompt: 'which room?', options: ['301', '302'] });
    expect(core.events).toContainEqual(
      expect.objectContaining({ type: 'task.blocked', summary: 'which room?', question: true }),
    );
    expect(await core.flowOf(id)).toMatchObject({ status: 'blocked', blocked_summary: 'which room?' });
    await core.retry(id);
    expect((await core.task(id)).question).toBeNull();
  });

  it('a blocked task that is cancelled ends with its flow', async () => {
    const id = await core.ask();
    await core.tell(await core.run(), { type: 'blocked', summary: 'x' });
    expect(await core.cancel(id)).toEqual({ result: 'cancelled' });
    expect(await core.task(id)).toMatchObject({ status: 'cancelled', delivery_status: 'session_queued' });
    expect(await core.flowOf(id)).toMatchObject({ status: 'cancelled', blocked_summary: null });
  });
});
