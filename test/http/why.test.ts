import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { silentLog } from '../../src/log.ts';
import { Controls } from '../../src/tasks/controls.ts';
import { errand } from '../cli/errand.ts';
import { TestGateway } from '../support/gateway.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await TestGateway.start();
});
afterAll(() => gateway?.stop());

const submit = async (more: object = {}) =>
  (await gateway.api<{ taskId: string }>('POST', '/api/tasks', { template: 'hello', args: { name: 'Ada' }, ...more }))
    .body.taskId;
const call = (...args: string[]) =>
  errand(['tasks', 'why', ...args], {
    cwd: gateway.folder,
    env: { ERRAND_URL: gateway.url, ERRAND_STATE_DIR: join(gateway.folder, 'state') },
  });

test('REST answers the reason, both texts and what would change it', async () => {
  const taskId = await submit({ pool: 'hotel' });
  expect(await gateway.api('GET', `/api/tasks/${taskId}/why`)).toEqual({
    status: 200,
    body: {
      taskId,
      status: 'queued',
      reason: 'no_machine',
      text: { en: 'No machine serves pool hotel.', zh: '没有机器为机器池 hotel 服务。' },
      next: { en: 'It starts when one is connected.', zh: '有机器连接后会自动开始。' },
    },
  });
  // Ids are read as people type them.
  expect((await gateway.api('GET', `/api/tasks/${taskId.toUpperCase()}/why`)).body).toMatchObject({ taskId });
});

/** Of the pool `late`. */
async function setPause(paused: boolean): Promise<void> {
  const { store, line } = gateway.gateway.rooms;
  const controls = new Controls({ line, log: silentLog, onFreed: () => undefined });
  await store.transact('test.pause', (tx) =>
    controls.change(tx, { kind: 'pool', name: 'late', paused, by: 'test', why: null }),
  );
}

test('REST lists the other causes, and when the first one ends by itself', async () => {
  await setPause(true);
  const runAt = Date.now() + 3_600_000;
  const taskId = await submit({ pool: 'late', runAt });
  expect((await gateway.api('GET', `/api/tasks/${taskId}/why`)).body).toMatchObject({
    reason: 'pool_paused',
    text: { en: 'Errands of pool late are paused. There is 1 more reason.' },
    others: [{ reason: 'scheduled' }],
  });
  await setPause(false);
  expect((await gateway.api('GET', `/api/tasks/${taskId}/why`)).body).toMatchObject({
    reason: 'scheduled',
    untilAt: runAt,
  });
});

test('an id that names no task is a 404, and without a token nothing is said', async () => {
  for (const id of ['zzzz', 'nothing-like-an-id', '%00'])
    expect((await gateway.api('GET', `/api/tasks/${id}/why`)).status, id).toBe(404);
  expect((await fetch(`${gateway.url}/api/tasks/zzzz/why`)).status).toBe(401);
});

test('the command line prints the text and what would change it, all of it as JSON, and 3 for an unknown id', async () => {
  const taskId = await submit({ pool: 'hotel' });
  expect(await call(taskId)).toEqual({
    code: 0,
    out: 'No machine serves pool hotel.\nIt starts when one is connected.\n',
    err: '',
  });
  const asJson = await call(taskId, '--json');
  expect(JSON.parse(asJson.out)).toMatchObject({ taskId, reason: 'no_machine', text: { zh: expect.any(String) } });
  expect(await call('zzzz')).toMatchObject({ code: 3, out: '', err: 'errand: there is no task "zzzz"\n' });
});
