import { afterEach, expect, it } from 'vitest';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

const DAY_MS = 86_400_000;

let gateway: TestGateway;
afterEach(() => gateway.stop());

interface Task {
  taskId: string;
  status: string;
  endedAt?: number;
  cleanupAfter?: number;
}

it('a task is to be cleaned up by the setting, however it ends', async () => {
  gateway = await TestGateway.start({ ERRAND_RETENTION_DAYS: '2' });
  const submit = async (template: string) =>
    (await gateway.api<Task>('POST', '/api/tasks', { template, args: { name: 'Ada' } })).body.taskId;
  const ended = (id: string) =>
    until(async () => {
      const { body } = await gateway.api<Task>('GET', `/api/tasks/${id}`);
      return body.endedAt === undefined ? undefined : body;
    }, `the end of ${id}`);
  const cancelled = await submit('hello');
  await gateway.api('POST', `/api/tasks/${cancelled}/cancel`);
  const done = await submit('hello');
  const called = await submit('hello');
  await gateway.agent();
  const ends = await Promise.all([cancelled, done, called].map(ended));
  expect(ends.map(({ status }) => status)).toEqual(['cancelled', 'succeeded', 'succeeded']);
  for (const { endedAt, cleanupAfter } of ends) expect(cleanupAfter! - endedAt!).toBe(2 * DAY_MS);
});
