import { afterEach, beforeEach, expect, it } from 'vitest';
import type { RunNews } from '../../src/tasks/report.ts';
import { DEFAULT_RETRY } from '../../src/tasks/task.ts';
import { Core, LEASE_MS, SESSION } from '../support/core.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

const child = (flowId: number) => core.create({ sessionKey: SESSION, flowId, source: 'subagent' });

it.each<[string, RunNews, string]>([
  ['succeeded', { type: 'succeeded', summary: 'ok' }, 'finished'],
  ['failed', { type: 'failed', errorClass: 'permanent', error: 'x' }, 'failed'],
  ['timed out', { type: 'timed_out' }, 'failed'],
  ['was cancelled', { type: 'cancelled' }, 'cancelled'],
])('a flow whose only task %s has ended', async (_name, news, status) => {
  const id = await core.ask({ retry: { ...DEFAULT_RETRY, max: 1 } });
  core.clock.advance(5);
  await core.tell(await core.run(), news);
  expect(await core.flowOf(id)).toMatchObject({
    status,
    revision: 2,
    ended_at: core.clock.now(),
    updated_at: core.clock.now(),
  });
});

it('a flow whose only task was lost has failed', async () => {
  const id = await core.ask({ retry: { ...DEFAULT_RETRY, max: 1 } });
  await core.run();
  core.clock.advance(LEASE_MS);
  await core.sweep();
  expect(await core.flowOf(id)).toMatchObject({ status: 'failed' });
});

it('a task that is tried again leaves its flow active and untouched', async () => {
  const id = await core.ask();
  const before = await core.flowOf(id);
  await core.tell(await core.run(), { type: 'failed', errorClass: 'transient', error: 'x' });
  expect(await core.flowOf(id)).toEqual(before);
});

it('a flow ends with the last of its tasks, whatever became of the others before', async () => {
  const first = await core.ask();
  const { id: flowId } = await core.flowOf(first);
  await child(flowId);
  const third = await child(flowId);
  await core.tell(await core.run(), { type: 'failed', errorClass: 'permanent', error: 'x' });
  await core.cancel(third);
  expect(await core.flowOf(first)).toMatchObject({ status: 'active', ended_at: null });
  await core.tell(await core.run(), { type: 'succeeded', summary: 'ok' });
  expect(await core.flowOf(first)).toMatchObject({ status: 'finished' });
});

it('a flow is closed once: what comes later changes nothing', async () => {
  const id = await core.ask();
  const grant = await core.run();
  await core.tell(grant, { type: 'succeeded', summary: 'ok' });
  const ended = await core.flowOf(id);
  core.clock.advance(1_000);
  await core.tell(grant, { type: 'blocked', summary: 'late' });
  await core.cancel(id);
  expect(await core.flowOf(id)).toEqual(ended);
});

it('a retry opens the flow again, and it ends anew', async () => {
  const id = await core.ask();
  await core.cancel(id);
  expect(await core.flowOf(id)).toMatchObject({ status: 'cancelled', revision: 2 });
  await core.retry(id);
  expect(await core.flowOf(id)).toMatchObject({ status: 'active', revision: 3, ended_at: null });
  await core.tell(await core.run(), { type: 'succeeded', summary: 'ok' });
  expect(await core.flowOf(id)).toMatchObject({ status: 'finished', revision: 4 });
});

it('flows of other conversations are not touched', async () => {
  const [one, two] = [await core.ask(), await core.ask({ sessionKey: 'other' })];
  const before = await core.flowOf(two);
  await core.cancel(one);
  expect(await core.flowOf(two)).toEqual(before);
});
