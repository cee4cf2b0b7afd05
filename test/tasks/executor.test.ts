import { afterEach, beforeEach, expect, it } from 'vitest';
import { createExecutor } from '../../src/tasks/executor.ts';
import { lastLogChunks } from '../../src/tasks/log-reading.ts';
import { getTask, listTasks, taskEvents } from '../../src/tasks/read.ts';
import { DEFAULT_RETRY } from '../../src/tasks/task.ts';
import { Core, LEASE_MS, newTask, SESSION, START } from '../support/core.ts';

let core: Core;
let executor: ReturnType<typeof createExecutor>;
beforeEach(async () => {
  core = await Core.open();
  executor = createExecutor(core.store, core.emit);
});
afterEach(() => core.close());

it('offers the registry’s verbs under the names that the article uses', () => {
  expect(Object.keys(executor).sort()).toEqual([
    'cancelDetachedTaskRunById',
    'completeTaskRunByRunId',
    'createQueuedTaskRun',
    'failTaskRunByRunId',
    'markTaskRunLostById',
    'recordTaskRunProgressByRunId',
    'startTaskRunByRunId',
  ]);
});

it('a task’s whole life as a library: created, started, in progress, completed', async () => {
  const created = await executor.createQueuedTaskRun(newTask({ idempotencyKey: 'K' }));
  expect(created).toMatchObject({ result: 'created', status: 'queued' });
  expect(await executor.createQueuedTaskRun(newTask({ idempotencyKey: 'K' }))).toMatchObject({
    result: 'existing',
    id: created.id,
  });
  const { runId, leaseToken } = await core.claim();
  const run = { agentId: 'a1', runId, leaseToken };
  expect(await executor.startTaskRunByRunId({ ...run, seq: 1 })).toEqual({ result: 'accepted' });
  expect(await executor.recordTaskRunProgressByRunId({ ...run, seq: 2 }, { percent: 50, message: 'half' })).toEqual({
    result: 'accepted',
  });
  expect(await executor.recordTaskRunProgressByRunId({ ...run, seq: 2 }, { percent: 1 })).toEqual({
    result: 'duplicate',
  });
  expect(
    await executor.completeTaskRunByRunId({ ...run, seq: 3 }, { summary: 'ok', outputs: { k: 'v' }, exitCode: 0 }),
  ).toEqual({ result: 'accepted' });
  expect(
    await executor.failTaskRunByRunId({ ...run, seq: 4 }, { errorClass: 'permanent', error: 'too late' }),
  ).toMatchObject({ result: 'lease_lost' });
  expect(await executor.cancelDetachedTaskRunById(created.id, 'me')).toEqual({
    result: 'already',
    status: 'succeeded',
  });
  expect(await core.task(created.id)).toMatchObject({
    status: 'succeeded',
    summary: 'ok',
    progress: '{"percent":50,"message":"half"}',
  });
});

it('failing and cancelling do what their reports do', async () => {
  const [one, two] = [await core.create(), await core.create()];
  const grant = await core.run();
  await executor.failTaskRunByRunId(
    { agentId: 'a1', runId: grant.runId, leaseToken: grant.leaseToken, seq: 1 },
    { errorClass: 'permanent', error: 'no', exitCode: 2 },
  );
  expect(await core.task(one)).toMatchObject({ status: 'failed', error: 'no' });
  expect(await executor.cancelDetachedTaskRunById(two, 'me')).toEqual({ result: 'cancelled' });
});

it('a run that is marked as lost is queued again while executions are left, once, and then ends as lost', async () => {
  const id = await core.create({ retry: { ...DEFAULT_RETRY, max: 2 } });
  expect(await executor.markTaskRunLostById(id)).toBe(false);
  await core.run();
  const both = await Promise.all([executor.markTaskRunLostById(id), executor.markTaskRunLostById(id)]);
  expect(both.filter(Boolean)).toHaveLength(1);
  expect(await core.task(id)).toMatchObject({ status: 'queued', attempt: 1 });
  expect((await core.history(id)).map(({ type }) => type)).toContain('lost');
  await core.run();
  expect(await executor.markTaskRunLostById(id)).toBe(true);
  expect(await core.task(id)).toMatchObject({ status: 'lost', attempt: 2 });
  await expect(executor.markTaskRunLostById(999_999)).rejects.toMatchObject({ code: 'not_found' });
});

it('the record that the outside sees has public ids and only what there is', async () => {
  const { ids } = core.store;
  const id = await core.ask({ args: { room: '302' }, priority: 'high', label: 'L' });
  expect(await getTask(core.store, ids, id)).toEqual({
    taskId: ids.encode(id),
    status: 'queued',
    attempt: 0,
    maxAttempts: 3,
    generation: 1,
    template: 't',
    args: { room: '302' },
    priority: 'high',
    pool: 'default',
    lane: 'main',
    source: 'chat',
    scopeKind: 'session',
    label: 'L',
    runAt: START,
    createdAt: START,
    lastEventAt: START,
    notifyPolicy: 'done_only',
    deliveryStatus: 'pending',
    sessionKey: SESSION,
    flowId: ids.encode((await core.task(id)).flow_id!),
    runs: [],
  });
  core.clock.advance(10);
  const grant = await core.run();
  await core.tell(grant, { type: 'log', stream: 'stderr', text: 'warn\n', offset: 0 });
  core.clock.advance(10);
  await core.tell(grant, { type: 'succeeded', summary: 'ok', outputs: { k: 'v' }, exitCode: 0 });
  expect(await getTask(core.store, ids, id)).toMatchObject({
    status: 'succeeded',
    attempt: 1,
    startedAt: START + 10,
    endedAt: START + 20,
    summary: 'ok',
    result: { summary: 'ok', outputs: { k: 'v' } },
    deliveryStatus: 'session_queued',
    runs: [
      {
        runId: ids.encode(grant.runId),
        attempt: 1,
        agentId: 'a1',
        claimedAt: START + 10,
        startedAt: START + 10,
        endedAt: START + 20,
        outcome: 'succeeded',
        exitCode: 0,
      },
    ],
  });
  expect((await taskEvents(core.store, ids, id)).map(({ type, runId }) => [type, runId === undefined])).toEqual([
    ['created', true],
    ['leased', false],
    ['started', false],
    ['log', false],
    ['succeeded', false],
  ]);
  expect(await lastLogChunks(core.store, ids, id, 200)).toMatchObject([
    { runId: ids.encode(grant.runId), stream: 'stderr', text: 'warn\n', at: START + 10 },
  ]);
  expect(await getTask(core.store, ids, 999_999)).toBeUndefined();
});

it('lists are newest first, filtered and paged without gaps', async () => {
  for (let n = 0; n < 7; n += 1) await core.create({ template: n % 2 ? 'odd' : 'even' });
  await core.ask();
  const pinned = await core.create({ agent: 'a7' });
  await core.claim('a7', { queues: ['@a7/shell'] });
  const list = async (filter: Parameters<typeof listTasks>[2]) =>
    (await listTasks(core.store, core.store.ids, filter)).map(({ taskId }) => core.store.ids.decode(taskId)!);
  const all = await list({ limit: 50 });
  expect(all).toEqual([...all].sort((a, b) => b - a));
  expect(all).toHaveLength(9);
  expect(await list({ limit: 50, template: 'odd' })).toHaveLength(3);
  expect(await list({ limit: 50, sessionKey: SESSION })).toHaveLength(1);
  expect(await list({ limit: 50, status: 'queued' })).toHaveLength(8);
  expect(await list({ limit: 50, agentId: 'a7' })).toEqual([pinned]);
  expect(await list({ limit: 50, agentId: 'a8' })).toEqual([]);
  const paged: number[] = [];
  for (let page = await list({ limit: 2 }); page.length > 0; page = await list({ limit: 2, before: paged.at(-1)! }))
    paged.push(...page);
  expect(paged).toEqual(all);
  expect((await getTask(core.store, core.store.ids, pinned))!).toMatchObject({ agent: 'a7', pool: '' });
  core.clock.advance(LEASE_MS);
  await core.sweep();
  expect(await list({ limit: 50, agentId: 'a7' })).toEqual([]);
});
