import { sql } from 'kysely';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { TestGateway } from '../support/gateway.ts';
import { type Ended, errand } from './errand.ts';

/** The command line in Chinese: words, never what commands take or JSON holds. */

const KEY = 'hotel-checkin:302';
let gateway: TestGateway;
let taskId: string;
beforeAll(async () => {
  gateway = await TestGateway.start({});
  const submission = { template: 'hello', idempotencyKey: KEY, runAt: Date.now() + 3_600_000 };
  taskId = (await gateway.api<{ taskId: string }>('POST', '/api/tasks', submission)).body.taskId;
  await gateway.api('POST', `/api/tasks/${taskId}/cancel`);
  const { store } = gateway.gateway.rooms;
  const id = store.ids.decode(taskId)!;
  await store.transact('test.effect', (tx) =>
    tx.exec(sql`insert into effect (id, type, key, state, policy, first_task_id, first_run_id, task_id, run_id, created_at, updated_at)
      values (${id + 1}, 'payment', ${KEY}, 'init', 'ask', ${id}, 1, ${id}, 1, ${tx.now}, ${tx.now})`),
  );
});
afterAll(() => gateway?.stop());

const call = (lang: string, ...args: string[]): Promise<Ended> =>
  errand(args, {
    cwd: gateway.folder,
    env: { ERRAND_URL: gateway.url, ERRAND_STATE_DIR: `${gateway.folder}/state`, ERRAND_LANG: lang },
  });

test('a trace is told in the language that is set, in columns, and as JSON in both', async () => {
  const zh = (await call('zh', 'tasks', 'trace', KEY)).out;
  expect(zh).toMatch(new RegExp(`  任务 {6}任务 ${taskId}（hello）由 api 创建，键为 "${KEY}"\n`));
  expect(zh).toMatch(new RegExp(`  任务 {6}任务 ${taskId} 已取消：`));
  expect(zh).toMatch(/ {2}副作用 {4}副作用 payment "hotel-checkin:302" 由运行 \w+ 开始\n/);
  expect(zh).not.toMatch(/was|created|began|cancelled/);
  const en = (await call('en', 'tasks', 'trace', KEY)).out;
  expect(en).toMatch(new RegExp(`  task {6}task ${taskId} \\(hello\\) was created by api with the key "${KEY}"\n`));
  expect(en).not.toMatch(/[一-鿿]/);
  const json = JSON.parse((await call('zh', 'tasks', 'trace', KEY, '--json')).out);
  expect(json.entries[0]).toMatchObject({
    text: expect.stringContaining('was created by api'),
    textZh: expect.stringContaining('由 api 创建'),
  });
});

test('effects are listed, shown and settled in the language that is set; states stay the words that commands take', async () => {
  expect((await call('zh', 'effects', 'list', '--type', 'none')).out).toBe('没有副作用。\n');
  const listed = (await call('zh', 'effects', 'list')).out;
  expect(listed).toMatch(/^类型 +键 +状态 +任务 +开始次数 +更新时间 +结果或错误\n/);
  expect(listed).toMatch(new RegExp(`payment +${KEY} +INIT（结果不明） +${taskId} `));
  const shown = (await call('zh', 'effects', 'show', 'payment', KEY)).out;
  expect(shown).toMatch(new RegExp(`首次开始: +任务 ${taskId}，运行 \\w+，`));
  const settled = await call('zh', 'effects', 'resolve', 'payment', KEY, 'SUCCESS', '--reason', '已查');
  expect(settled).toMatchObject({ code: 0, out: `副作用 payment ${KEY} 现为 SUCCESS。\n` });
  const again = await call('en', 'effects', 'resolve', 'payment', KEY, 'SUCCESS', '--reason', 'seen');
  expect(again.out).toBe(`Effect payment ${KEY} was like that before.\n`);
  const story = (await call('zh', 'tasks', 'trace', KEY)).out;
  expect(story).toMatch(/由 api:admin 裁定：已查/);
});
