import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { errand } from '../cli/errand.ts';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

const TEMPLATES = {
  'a.yaml': 'id: hello\ntitle: { en: Hello, zh: 问好 }\ncommand: [echo, hi]\n',
  'b.yaml': 'id: nightly\ncommand: [echo, hi]\nlane: night\npool: cellar\n',
};

let folder: string;
let gateway: TestGateway;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-controls-'));
  for (const [name, text] of Object.entries(TEMPLATES)) await writeFile(join(folder, name), text);
  gateway = await TestGateway.start({ ERRAND_TEMPLATES_DIR: folder, ERRAND_LANG: 'auto' });
  await gateway.agent('agent-1', { AGENT_CONCURRENCY: '2' });
});
afterAll(async () => {
  await gateway?.stop();
  await rm(folder, { recursive: true, force: true });
});
afterEach(async () => {
  const { limits } = (await get<{ limits: Limit[] }>('/api/limits')).body;
  for (const { kind, name } of limits) {
    if (kind === 'gateway') await post('/api/drain', { on: false });
    else await post(`/api/limits/${kind}/${encodeURIComponent(name)}`, { paused: false, concurrency: null });
  }
});

interface Limit {
  kind: string;
  name: string;
  concurrency: number | null;
  paused?: { at: number; by: string; why?: string };
}

interface Task {
  taskId: string;
  status: string;
  priority: string;
  draining?: true;
}

interface Problem {
  code: string;
  detail: string;
}

const get = <T>(path: string) => gateway.api<T>('GET', path);
const post = <T = Limit>(path: string, body?: unknown) => gateway.api<T>('POST', path, body);
const submit = async (more: object = {}) => (await post<Task>('/api/tasks', { template: 'hello', ...more })).body;
const statusOf = async (id: string) => (await get<Task>(`/api/tasks/${id}`)).body.status;
const succeeded = (id: string) => until(async () => (await statusOf(id)) === 'succeeded', `${id} to succeed`);
const audit = async (count: number) => {
  const { entries } = (await get<{ entries: Record<string, unknown>[] }>('/api/audit')).body;
  return entries.slice(0, count).reverse();
};
const cli = (...args: string[]) =>
  errand(args, { cwd: folder, env: { ERRAND_URL: gateway.url, ERRAND_STATE_DIR: join(gateway.folder, 'state') } });

describe('pausing', () => {
  test.each([
    ['templates', 'hello', 'template'],
    ['pools', 'default', 'pool'],
  ])(
    '%s: nothing new starts, also what is asked for later; after the resume it does, at once',
    async (plural, name, kind) => {
      const { status, body } = await post(`/api/${plural}/${name}/pause`, { why: 'inventory' });
      const paused = { at: expect.any(Number), by: 'api:admin', why: 'inventory' };
      expect([status, body]).toEqual([200, { kind, name, concurrency: null, paused }]);
      const { taskId } = await submit();
      const why = (await get<{ text: { en: string } }>(`/api/tasks/${taskId}/why`)).body;
      expect(why.text.en).toContain('inventory');
      expect((await get<{ limits: Limit[] }>('/api/limits')).body.limits).toEqual([body]);
      expect(await statusOf(taskId)).toBe('queued');
      expect((await post(`/api/${plural}/${name}/resume`)).body).toEqual({ kind, name, concurrency: null });
      await succeeded(taskId);
      expect(await audit(2)).toMatchObject([
        { actor: 'api:admin', action: 'gate.paused', target: `${kind}/${name}`, data: { why: 'inventory' } },
        { actor: 'api:admin', action: 'gate.resumed', target: `${kind}/${name}` },
      ]);
    },
  );

  test('what nobody knows is not found, and nothing is stored', async () => {
    for (const path of [
      '/api/templates/nope/pause',
      '/api/pools/defualt/pause',
      '/api/lanes/cronn',
      '/api/limits/owner/agent%3Amain%3Atelegram%3Adirect%3A9',
      '/api/limits/pool/%40nobody',
    ]) {
      const { status, body } = await post<Problem>(path, path.endsWith('pause') ? {} : { paused: true });
      expect([path, status, body.code]).toEqual([path, 404, 'not_found']);
    }
    expect((await get<{ limits: Limit[] }>('/api/limits')).body.limits).toEqual([]);
  });

  test.each([
    ['/api/lanes/cron', {}, 'concurrency'],
    ['/api/lanes/cron', { concurrency: -1 }, 'concurrency'],
    ['/api/lanes/cron', { concurrency: 1.5 }, 'concurrency'],
    ['/api/lanes/cron', { concurrency: '2' }, 'concurrency'],
    ['/api/lanes/cron', { concurrency: 1_000_000 }, 'concurrency'],
    ['/api/lanes/cron', { paused: 'yes' }, 'paused'],
    ['/api/lanes/cron', { paused: true, until: 5 }, 'until'],
    ['/api/limits/gateway/*', { paused: true }, 'kind'],
    ['/api/pools/default/pause', { why: '' }, 'why'],
    ['/api/drain', {}, 'on'],
    ['/api/drain', { on: 1 }, 'on'],
  ])('%s with %j is refused, the field is named, and nothing changes', async (path, sent, field) => {
    const { status, body } = await post<Problem>(path, sent);
    expect([status, JSON.stringify(body)]).toEqual([400, expect.stringContaining(field)]);
    expect((await get<{ limits: Limit[] }>('/api/limits')).body.limits).toEqual([]);
  });
});

describe('lanes and pools', () => {
  test('are listed with what holds, where it comes from, and what runs', async () => {
    const { lanes } = (await get<{ lanes: object[] }>('/api/lanes')).body;
    expect(lanes).toEqual([
      { name: 'cron', concurrency: 1, from: 'default', running: 0 },
      { name: 'main', concurrency: 2, from: 'agents', running: 0 },
      { name: 'nested', concurrency: 4, from: 'default', running: 0 },
      { name: 'night', concurrency: null, from: 'none', running: 0 },
      { name: 'subagent', concurrency: 8, from: 'default', running: 0 },
    ]);
    expect((await get<{ pools: object[] }>('/api/pools')).body.pools).toEqual([
      { name: 'cellar', agents: 0, capacity: 0, running: 0, concurrency: null },
      { name: 'default', agents: 1, capacity: 2, running: 0, concurrency: null },
    ]);
  });

  test('a lane is limited, paused, and given back to its default', async () => {
    const set = await post('/api/lanes/cron', { concurrency: 3, paused: true, why: 'night' });
    expect(set.body).toMatchObject({ name: 'cron', concurrency: 3, from: 'set', paused: { why: 'night' } });
    expect((await post('/api/lanes/cron', { paused: false })).body).toEqual({
      name: 'cron',
      concurrency: 3,
      from: 'set',
      running: 0,
    });
    expect((await post('/api/lanes/cron', { concurrency: null })).body).toMatchObject({
      concurrency: 1,
      from: 'default',
    });
  });

  test('every owner is limited by *, and 0 lets nothing start', async () => {
    await post('/api/limits/owner/*', { concurrency: 0 });
    await post('/api/chat/messages', { text: '/run hello' });
    const { taskId } = await until(
      async () => (await get<{ tasks: Task[] }>('/api/tasks?status=queued')).body.tasks[0],
      'the errand to be queued',
    );
    await post('/api/limits/owner/*', { concurrency: 1 });
    await succeeded(taskId);
  });

  test('the metric has a series for each named lane and no other, and follows the wait', async () => {
    await post('/api/lanes/night', { paused: true });
    await post('/api/pools/cellar/pause');
    const { taskId } = await submit({ template: 'nightly', pool: 'default', runAt: 1 });
    const series = async () =>
      (await (await fetch(`${gateway.url}/metrics`)).text())
        .split('\n')
        .filter((line) => line.startsWith('errand_lane_waiting_seconds{'))
        .map((line) => [/lane="(.*)"/.exec(line)![1], Number(line.split(' ').at(-1))] as const);
    await until(async () => new Map(await series()).get('night')! > 0, 'the wait to be measured');
    expect((await series()).map(([lane]) => lane).sort()).toEqual(['cron', 'main', 'nested', 'night', 'subagent']);
    await post('/api/lanes/night', { paused: false });
    await succeeded(taskId);
  });
});

describe('one task', () => {
  test('is paused, resumed and moved; a repeated call answers the same', async () => {
    await post('/api/templates/hello/pause');
    const { taskId } = await submit();
    for (let n = 0; n < 2; n += 1) {
      const { status, body } = await post<Task>(`/api/tasks/${taskId}/pause`, { why: 'wait' });
      expect([status, body]).toEqual([200, { taskId, status: 'paused', priority: 'normal' }]);
    }
    await post('/api/templates/hello/resume');
    expect((await post<Task>(`/api/tasks/${taskId}/priority`, { priority: 'high' })).body.priority).toBe('high');
    expect(await statusOf(taskId)).toBe('paused');
    expect((await post<Task>(`/api/tasks/${taskId}/resume`)).status).toBe(200);
    await succeeded(taskId);
    for (const [verb, body] of [
      ['pause', {}],
      ['resume', {}],
      ['priority', { priority: 'low' }],
    ] as const) {
      const refused = await post<Problem>(`/api/tasks/${taskId}/${verb}`, body);
      expect([refused.status, refused.body.detail]).toEqual([409, expect.stringContaining('succeeded')]);
      expect((await post(`/api/tasks/zzzz/${verb}`, body)).status).toBe(404);
    }
    const target = `task/${taskId}`;
    expect((await audit(10)).filter((entry) => entry.target === target)).toMatchObject([
      { actor: 'api:admin', action: 'task.paused', data: { why: 'wait' } },
      { action: 'task.priority', data: { from: 'normal', to: 'high' } },
      { action: 'task.resumed' },
    ]);
  });

  test.each(['urgent', 1, -1, 1.5, null, 'NaN'])('A65: the priority %j is refused', async (priority) => {
    const { taskId } = await submit();
    expect((await post(`/api/tasks/${taskId}/priority`, { priority })).status).toBe(400);
    expect((await post('/api/tasks', { template: 'hello', priority })).status).toBe(400);
  });
});

describe('draining', () => {
  interface Message {
    from: string;
    text: string;
  }
  const said = async (sessionKey: string) =>
    (
      await get<{ messages: Message[] }>(`/api/chat/messages?sessionKey=${encodeURIComponent(sessionKey)}`)
    ).body.messages
      .filter(({ from }) => from === 'bot')
      .map(({ text }) => text);
  const say = async (text: string, user: string) =>
    (await post<{ sessionKey: string }>('/api/chat/messages', { text, user })).body.sessionKey;

  test('takes requests, says so in the language of the person, starts nothing, and starts all of it when it is over', async () => {
    const before = await submit();
    await succeeded(before.taskId);
    const drained = await post<{ draining: boolean }>('/api/drain', { on: true, why: 'moving' });
    expect(drained.body).toEqual({ draining: true, since: expect.any(Number), by: 'api:admin', why: 'moving' });
    expect((await get('/readyz')).body).toMatchObject({
      ready: true,
      draining: { since: expect.any(Number), by: 'api:admin', why: 'moving' },
    });
    const task = await submit({ idempotencyKey: 'k' });
    expect(task).toMatchObject({ status: 'queued', draining: true });
    expect(await submit({ idempotencyKey: 'k' })).toEqual({ ...task, idempotent: true });
    const batch = await post<{ tasks: Task[] }>('/api/tasks/batch', [{ template: 'hello' }, { template: 'hello' }]);
    expect(batch.body.tasks.map(({ draining }) => draining)).toEqual([true, true]);
    const [ada, li] = [await say('/run hello', 'ada'), await say('/运行 hello', 'li')];
    const en = await until(async () => (await said(ada))[0], 'an answer');
    expect(en).toMatch(/^“Hello” is accepted \(\w{4,}\); it starts when the gateway is open again\./);
    expect(await until(async () => (await said(li))[0], 'an answer')).toMatch(
      /^“问好”已受理（\w{4,}），网关重新开放后会自动开始。/,
    );
    // Control commands are answered as ever.
    await say('/status', 'ada');
    const status = await until(async () => (await said(ada))[1], 'the status');
    expect(status.split('\n')[0]).toContain('starts nothing new');
    await say('/cancel', 'li');
    expect(await until(async () => (await said(li)).find((text) => /取消/.test(text)), 'the cancel')).toBeTruthy();
    const queued = (await get<{ tasks: Task[] }>('/api/tasks?status=queued')).body.tasks;
    expect(queued).toHaveLength(4);
    expect((await post('/api/drain', { on: false })).body).toEqual({ draining: false });
    for (const { taskId } of queued) await succeeded(taskId);
    expect((await get('/readyz')).body).not.toHaveProperty('draining');
    expect(await submit()).not.toHaveProperty('draining');
  });
});

test('only the administrator may look and act', async () => {
  for (const [method, path] of [
    ['GET', '/api/limits'],
    ['GET', '/api/lanes'],
    ['GET', '/api/pools'],
    ['GET', '/api/drain'],
    ['POST', '/api/drain'],
    ['POST', '/api/lanes/cron'],
    ['POST', '/api/limits/pool/default'],
    ['POST', '/api/pools/default/pause'],
    ['POST', '/api/templates/hello/resume'],
    ['POST', '/api/tasks/abcd/pause'],
    ['POST', '/api/tasks/abcd/priority'],
  ] as const)
    expect([path, (await fetch(gateway.url + path, { method })).status]).toEqual([path, 401]);
});

describe('the command line', () => {
  test('pauses, limits, lists and drains', async () => {
    expect(await cli('pools', 'pause', 'default', '--why', 'inventory')).toMatchObject({
      code: 0,
      out: 'Pool default is paused.\n',
    });
    expect((await cli('pools', 'list')).out).toMatch(/^default +1 +0\/2 +\d{4}-.* \(inventory\)$/m);
    expect((await cli('limits', 'list')).out).toMatch(/^pool +default +\d{4}-.* \(inventory\) +api:admin$/m);
    const { taskId } = await submit();
    expect((await cli('tasks', 'pause', taskId)).out).toBe(`Task ${taskId} is paused.\n`);
    expect((await cli('tasks', 'priority', taskId, 'low')).out).toBe(
      `Task ${taskId} has priority low; it is paused.\n`,
    );
    expect((await cli('tasks', 'resume', taskId)).out).toBe(`Task ${taskId} is queued.\n`);
    expect((await cli('pools', 'resume', 'default')).out).toBe('Pool default goes on.\n');
    await succeeded(taskId);
    expect((await cli('lanes', 'set', 'cron', '--concurrency', '2')).out).toBe('Lane cron: 2 (set).\n');
    expect((await cli('lanes', 'set', 'cron', '--concurrency', 'none', '--pause')).out).toBe(
      'Lane cron: 1 (default), paused.\n',
    );
    expect((await cli('lanes', 'list')).out).toMatch(/^main +2 \(what the agents can\) +0/m);
    expect((await cli('limits', 'set', 'owner', '*', '--concurrency', '3')).out).toBe('owner *: at most 3 at once.\n');
    expect((await cli('templates', 'pause', 'hello')).out).toBe('Template hello is paused.\n');
    expect((await cli('templates', 'resume', 'hello')).out).toBe('Template hello goes on.\n');
    expect((await cli('drain', '--why', 'moving')).out).toMatch(/^The gateway is draining/);
    expect(JSON.parse((await cli('drain', '--off', '--json')).out)).toEqual({ draining: false });
  }, 120_000);

  test.each([
    [['lanes', 'set', 'cron'], 2],
    [['lanes', 'set', 'cron', '--pause', '--resume'], 2],
    [['lanes', 'set', 'cron', '--concurrency', 'many'], 2],
    [['limits', 'set', 'gateway', '*', '--pause'], 2],
    [['pools', 'pause', 'nope'], 3],
    [['templates', 'pause', 'nope'], 3],
    [['tasks', 'pause', 'zzzz'], 3],
    [['tasks', 'priority', 'zzzz', 'urgent'], 2],
  ] as const)('%j ends with %d', async (args, code) => {
    expect((await cli(...args)).code).toBe(code);
    expect((await get<{ limits: Limit[] }>('/api/limits')).body.limits).toEqual([]);
  });
});
