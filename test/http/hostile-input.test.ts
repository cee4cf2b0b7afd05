import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestGateway } from '../support/gateway.ts';

interface Answer {
  taskId?: string;
  idempotent?: boolean;
  code?: string;
  detail?: string;
  args?: Record<string, unknown>;
}

let gateway: TestGateway;
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-hostile-'));
  const template = (id: string) =>
    `id: ${id}\nargs:\n  note: { type: string, max: 2000 }\ncommand: [echo, "{{note}}"]\n`;
  await writeFile(join(folder, 'note.yaml'), template('note'));
  gateway = await TestGateway.start({ ERRAND_TEMPLATES_DIR: folder });
});
afterAll(async () => {
  await gateway.stop();
  await rm(folder, { recursive: true, force: true });
});

/** The body as it is written: `JSON.stringify` would lose a key named `__proto__`. */
async function postText(path: string, text: string): Promise<{ status: number; body: Answer }> {
  const response = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.gateway.adminToken}`, 'content-type': 'application/json' },
    body: text,
  });
  return { status: response.status, body: (await response.json()) as Answer };
}

describe('A40: keys that name what every object has', () => {
  const NAMES = ['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty'];
  const bodies = (name: string) => {
    const hostile = `"${name}":{"approved":true,"isAdmin":true,"prototype":{"polluted":1},"polluted":1}`;
    return [
      ['beside the fields', `{"template":"note",${hostile}}`],
      ['among the arguments', `{"template":"note","args":{${hostile}}}`],
      ['three levels deep', `{"template":"note","args":{"note":{"a":{"b":{${hostile}}}}}}`],
      ['in a batch', `{"tasks":[{"template":"note",${hostile}}]}`],
    ] as const;
  };

  it.each(NAMES.flatMap((name) => bodies(name).map(([where, text]) => [name, where, text] as const)))(
    '%s %s is refused, and nothing is different afterwards',
    async (_name, where, text) => {
      const path = where === 'in a batch' ? '/api/tasks/batch' : '/api/tasks';
      const { status, body } = await postText(path, text);
      expect([status, body.taskId]).toEqual([400, undefined]);
      expect(body.detail).toBeTruthy();
      for (const polluted of [{}, [], Object.create({})] as Record<string, unknown>[])
        expect([polluted.polluted, polluted.approved, polluted.isAdmin]).toEqual([undefined, undefined, undefined]);
    },
  );

  it('as a value they are plain text', async () => {
    for (const note of NAMES) {
      const { status, body } = await postText('/api/tasks', JSON.stringify({ template: 'note', args: { note } }));
      expect([status, body.taskId]).toEqual([201, expect.any(String)]);
      const { args } = (await gateway.api<Answer>('GET', `/api/tasks/${body.taskId}`)).body;
      expect(args).toEqual({ note });
    }
  });

  it.each(NAMES)(
    '%s as an idempotency key, a template, a session or an effect is a name like any other',
    async (name) => {
      const order = JSON.stringify({ template: 'note', args: { note: 'x' }, idempotencyKey: name });
      const [first, second] = [await postText('/api/tasks', order), await postText('/api/tasks', order)];
      expect([first.status, second.status, second.body.taskId]).toEqual([201, 200, first.body.taskId]);
      expect((await postText('/api/tasks', JSON.stringify({ template: name }))).status).toBeLessThan(500);
      expect((await gateway.api('GET', `/api/tasks?session=${name}`)).status).toBe(200);
      expect([400, 404]).toContain((await gateway.api('GET', `/api/effects/${name}/${name}`)).status);
      expect((await gateway.api('GET', `/api/trace?key=${name}`)).status).toBe(200);
    },
  );
});

describe('A71: records whose ids are missing, empty or alike', () => {
  const create = (idempotencyKey: unknown, note = 'x') =>
    gateway.api<Answer>('POST', '/api/tasks', { template: 'note', args: { note }, idempotencyKey });

  it('tasks without a key are never one another', async () => {
    const ids = await Promise.all(Array.from({ length: 5 }, () => create(undefined)));
    expect(new Set(ids.map(({ body }) => body.taskId)).size).toBe(5);
  });

  it.each([
    ['null', null],
    ['empty', ''],
    ['a number', 7],
    ['of 1,000 characters', 'k'.repeat(1_000)],
  ])('a key that is %s is refused or makes a task of its own, and never joins two', async (_what, key) => {
    const answers = [await create(key, 'one'), await create(key, 'two')];
    for (const { status } of answers) expect([201, 400]).toContain(status);
    const made = answers.flatMap(({ body }) => body.taskId ?? []);
    expect(new Set(made).size).toBe(made.length);
    for (const { status, body } of answers)
      if (status === 400) expect(JSON.stringify(body)).toContain('idempotencyKey');
  });

  it('keys that differ in case only are different tasks, and one key is one', async () => {
    const [upper, lower, again] = [await create('Order-1'), await create('order-1'), await create('Order-1')];
    expect(upper.body.taskId).not.toBe(lower.body.taskId);
    expect(again.body.taskId).toBe(upper.body.taskId);
  });

  it.each([
    ['missing', 'title: { en: A, zh: A }'],
    ['null', 'id: null'],
    ['empty', 'id: ""'],
    ['a number', 'id: 7'],
    ['of 1,000 characters', `id: ${'k'.repeat(1_000)}`],
    ['in capitals', 'id: NOTE'],
    ['that of another', 'id: note'],
  ])('a template whose id is %s is refused with its place, and the others stay as they are', async (what, id) => {
    const path = join(folder, 'other.yaml');
    await writeFile(path, `${id}\ncommand: [echo, other]\n`);
    try {
      const { templates } = gateway.gateway.rooms;
      await templates.reload();
      const problems = templates.problems();
      expect(problems.length).toBeGreaterThan(0);
      expect(problems.every(({ file }) => /other|note/.test(file))).toBe(true);
      expect(templates.list().some(({ id: known }) => known === 'other')).toBe(false);
      if (what !== 'that of another') expect((await create(undefined)).status).toBe(201);
    } finally {
      await rm(path);
      await gateway.gateway.rooms.templates.reload();
    }
    expect((await create(undefined)).status).toBe(201);
  });

  it.each([
    ['null', null],
    ['empty', ''],
    ['a number', 7],
    ['of 1,000 characters', 'a'.repeat(1_000)],
  ])('no token is issued for an agent whose id is %s', async (_what, agentId) => {
    const { status } = await gateway.api('POST', '/api/agents/tokens', { agentId, permanent: true });
    expect(status).toBe(400);
  });
});
