import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { taskPageSchema } from '../../src/http/routes/task-shapes.ts';
import { requestPairing } from '../../src/sessions/pairing.ts';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

interface Task {
  taskId: string;
  status: string;
  flowId?: string;
  sessionKey?: string;
  cancelRequestedAt?: number;
  runs: { runId: string }[];
}
interface Problem {
  status: number;
  code: string;
  field?: string;
  detail: string;
}

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await TestGateway.start();
  await gateway.agent('agent-1', { AGENT_CONCURRENCY: '4' });
});
afterAll(() => gateway?.stop());

const get = <T>(path: string) => gateway.api<T>('GET', path);
const post = <T>(path: string, body?: unknown) => gateway.api<T>('POST', path, body);

async function submit(template: string, more: Record<string, unknown> = {}): Promise<string> {
  return (await post<Task>('/api/tasks', { template, ...more })).body.taskId;
}

async function reaches(id: string, status: string): Promise<Task> {
  return until(async () => {
    const { body } = await get<Task>(`/api/tasks/${id}`);
    return body.status === status && body;
  }, `task ${id} to be ${status}`);
}

describe('tasks', () => {
  test('one task shows its runs, events and logs', async () => {
    const id = await submit('hello', { args: { name: 'Ada' } });
    const task = await reaches(id, 'succeeded');
    expect(task).toMatchObject({
      taskId: id,
      template: 'hello',
      args: { name: 'Ada' },
      source: 'api',
      result: { summary: expect.stringContaining('Hello, Ada!') },
    });
    expect(task.runs).toEqual([expect.objectContaining({ agentId: 'agent-1', outcome: 'succeeded', exitCode: 0 })]);
    const { events } = (await get<{ events: { type: string }[] }>(`/api/tasks/${id}/events`)).body;
    expect(events.map(({ type }) => type)).toEqual(expect.arrayContaining(['started', 'succeeded']));
    const logs = (await get<{ status: string; logs: { id: string; text: string }[] }>(`/api/tasks/${id}/logs`)).body;
    expect(logs.logs.map(({ text }) => text).join('')).toBe('Hello, Ada!\n');
    expect((await get<{ logs: unknown[] }>(`/api/tasks/${id}/logs?after=${logs.logs.at(-1)!.id}`)).body.logs).toEqual(
      [],
    );
  });

  test('pages hold every task once, newest first, and the last has no next', async () => {
    const ids = [];
    for (let index = 0; index < 5; index += 1) ids.push(await submit('hello', { label: 'paged', pool: 'nobody' }));
    const seen: string[] = [];
    let cursor = '';
    do {
      const { body } = await get<{ tasks: Task[]; next?: string }>(
        `/api/tasks?status=queued&template=hello&limit=2${cursor}`,
      );
      seen.push(...body.tasks.map(({ taskId }) => taskId));
      cursor = body.next === undefined ? '' : `&cursor=${body.next}`;
    } while (cursor !== '');
    expect(seen).toEqual(ids.reverse());
  });

  test('filters narrow the list', async () => {
    const id = await submit('sleep', { args: { seconds: 600 } });
    await reaches(id, 'running');
    const held = (await get<{ tasks: Task[] }>('/api/tasks?agent=agent-1')).body.tasks;
    expect(held.map(({ taskId }) => taskId)).toContain(id);
    expect((await get<{ tasks: Task[] }>('/api/tasks?agent=agent-2')).body.tasks).toEqual([]);
    expect(
      (await get<{ tasks: Task[] }>('/api/tasks?template=sleep&status=running')).body.tasks.map(({ taskId }) => taskId),
    ).toEqual([id]);
    await post(`/api/tasks/${id}/cancel`);
    await reaches(id, 'cancelled');
  });

  test('cancelling answers 202, and 409 when it is over', async () => {
    const waiting = await submit('hello', { pool: 'nobody' });
    expect(await post(`/api/tasks/${waiting}/cancel`)).toEqual({
      status: 202,
      body: { taskId: waiting, status: 'cancelled', cancelRequestedAt: expect.any(Number) },
    });
    expect(await post<Problem>(`/api/tasks/${waiting}/cancel`)).toMatchObject({
      status: 409,
      body: { code: 'conflict', detail: `task ${waiting} is already cancelled` },
    });
    const running = await submit('sleep', { args: { seconds: 600 } });
    await reaches(running, 'running');
    const asked = await post<Task>(`/api/tasks/${running}/cancel`);
    expect(asked).toMatchObject({ status: 202, body: { cancelRequestedAt: expect.any(Number) } });
    await reaches(running, 'cancelled');
  });

  test('retrying is for tasks that ended without success', async () => {
    const id = await submit('hello', { pool: 'nobody' });
    expect((await post<Problem>(`/api/tasks/${id}/retry`)).body).toMatchObject({ status: 409, code: 'conflict' });
    await post(`/api/tasks/${id}/cancel`);
    expect(await post(`/api/tasks/${id}/retry`)).toEqual({ status: 202, body: { taskId: id, status: 'queued' } });
  });

  test('a page of tasks holds what its schema says and nothing else, whatever a task has', async () => {
    const id = await submit('hello', { pool: 'nobody', label: 'full' });
    const { store } = gateway.gateway.rooms;
    await store.transact('test.fill', (tx) =>
      tx.exec(
        tx.dialect.build
          .updateTable('task')
          .set({
            ...{
              error: 'e',
              error_zh: 'z',
              error_class: 'transient',
              reason: 'r',
              summary: 's',
              progress: '{"percent":1,"message":"m"}',
            },
            ...{
              question: '{"prompt":"p","options":["o"]}',
              checkpoint_version: 2,
              outputs: '{"k":"v"}',
              started_at: 1,
            },
            ...{ cleanup_after: 3, cancel_requested_at: 4 },
          })
          .where('id', '=', store.ids.decode(id)!),
      ),
    );
    const { body } = await get<{ tasks: { taskId: string }[] }>('/api/tasks?limit=200');
    expect(body.tasks.length).toBeGreaterThan(5);
    expect(body.tasks.find(({ taskId }) => taskId === id)).toMatchObject({
      errorZh: 'z',
      lane: 'main',
      checkpointVersion: 2,
    });
    expect(taskPageSchema.parse(body)).toEqual(body);
  });

  test('ids that are none are 404 everywhere, ids in capitals work', async () => {
    for (const path of [
      '/api/tasks/zzzz',
      '/api/tasks/zzzz/events',
      '/api/tasks/zzzz/logs',
      '/api/tasks/-',
      '/api/flows/zzzz',
      '/api/inbox/zzzz',
    ]) {
      expect({ path, answer: await get<Problem>(path) }).toMatchObject({
        path,
        answer: { status: 404, body: { code: 'not_found' } },
      });
    }
    for (const path of ['tasks/zzzz/cancel', 'tasks/zzzz/retry', 'outbox/zzzz/resend', 'access/people/zzzz/revoke']) {
      expect({ path, answer: await post<Problem>(`/api/${path}`) }).toMatchObject({ path, answer: { status: 404 } });
    }
    const id = await submit('hello', { pool: 'nobody' });
    expect((await get<Task>(`/api/tasks/${id.toUpperCase()}`)).body.taskId).toBe(id);
  });

  test('a wrong filter is a 400 that names it', async () => {
    for (const [query, field] of [
      ['limit=201', 'limit'],
      ['limit=x', 'limit'],
      ['status=odd', 'status'],
      ['cursor=!', 'cursor'],
      ['flow=-', 'flow'],
      ['stauts=queued', 'stauts'],
    ] as const) {
      const { status, body } = await get<Problem>(`/api/tasks?${query}`);
      expect({ query, status, code: body.code }).toEqual({ query, status: 400, code: 'invalid_request' });
      expect(body.detail).toContain(field);
    }
  });
});

describe('conversations', () => {
  test('what became of a message: its flow, its task and what was said', async () => {
    const sent = (
      await post<{ inboxId: string; sessionKey: string }>('/api/chat/messages', {
        text: '/run hello name=Flow',
        user: 'flora',
      })
    ).body;
    interface Fate {
      settled: boolean;
      status: string;
      flowId: string;
      tasks: { taskId: string; status: string }[];
      said: { text: string; taskId?: string }[];
    }
    const fate = await until(async () => {
      const { body } = await get<Fate>(`/api/inbox/${sent.inboxId}`);
      return body.settled && body;
    }, 'the message to be settled');
    expect(fate).toMatchObject({ status: 'done', errand: 'started', tasks: [{ status: 'succeeded' }] });
    expect(fate.said.at(-1)).toMatchObject({
      kind: 'final',
      text: expect.stringContaining('Hello, Flow!'),
      taskId: fate.tasks[0]!.taskId,
    });
    const flow = (await get<{ flowId: string; tasks: unknown[]; goal: string }>(`/api/flows/${fate.flowId}`)).body;
    expect(flow).toMatchObject({
      flowId: fate.flowId,
      status: 'finished',
      goal: '/run hello name=Flow',
      tasks: [{ taskId: fate.tasks[0]!.taskId }],
    });
    const byKey = await get<{ flowId: string }>(`/api/flows/${encodeURIComponent(sent.sessionKey)}`);
    expect(byKey.body.flowId).toBe(fate.flowId);
    const listed = (
      await get<{ flows: { flowId: string }[] }>(
        `/api/flows?session=${encodeURIComponent(sent.sessionKey)}&status=finished`,
      )
    ).body;
    expect(listed.flows.map(({ flowId }) => flowId)).toEqual([fate.flowId]);
    const tasks = (await get<{ tasks: Task[] }>(`/api/tasks?flow=${fate.flowId}`)).body.tasks;
    expect(tasks.map(({ sessionKey }) => sessionKey)).toEqual([sent.sessionKey]);
    const outbox = (
      await get<{ messages: { state: string; id: string }[] }>(
        `/api/outbox?session=${encodeURIComponent(sent.sessionKey)}`,
      )
    ).body;
    expect(outbox.messages.map(({ state }) => state)).toEqual(['sent']);
    expect((await post<Problem>(`/api/outbox/${outbox.messages[0]!.id}/resend`)).body).toMatchObject({
      status: 409,
      code: 'conflict',
    });
  });

  test('a dead message is sent again when asked', async () => {
    const { store, outbox } = gateway.gateway.rooms;
    const route = { channel: 'telegram', account: 'default', chat: '7', chatKind: 'direct' } as const;
    await store.transact('test.dead', async (tx) => {
      await outbox.enqueue(tx, [{ route, kind: 'notice', text: 'lost' }]);
      await tx.exec(tx.dialect.build.updateTable('outbox').set({ status: 'dead' }).where('text', '=', 'lost'));
    });
    const [dead] = (await get<{ messages: { id: string; text: string }[] }>('/api/outbox?state=dead')).body.messages;
    expect(dead!.text).toBe('lost');
    expect(await post(`/api/outbox/${dead!.id}/resend`)).toEqual({
      status: 202,
      body: { id: dead!.id, state: 'pending' },
    });
    expect((await get<{ messages: unknown[] }>('/api/outbox?state=dead')).body.messages).toEqual([]);
  });
});

describe('access', () => {
  async function codeFor(userId: string): Promise<string> {
    const who = { channel: 'telegram', account: 'default', userId } as const;
    const route = { ...who, chat: userId, chatKind: 'direct' } as const;
    const answer = await gateway.gateway.rooms.store.transact('test.pairing', (tx) =>
      requestPairing(tx, { ...who, name: `Person ${userId}`, route }),
    );
    return (answer as { code: string }).code;
  }

  interface Person {
    id: string;
    role: string;
    userId: string;
    revokedAt: number | null;
  }

  test('the first person of a chat platform becomes admin, the next operator; both are told and written down', async () => {
    const first = (await post<Person>('/api/access/pairings/approve', { code: await codeFor('1') })).body;
    expect(first).toMatchObject({ role: 'admin', userId: '1', pairedBy: 'api:admin' });
    const second = (await post<Person>('/api/access/pairings/approve', { code: await codeFor('2') })).body;
    expect(second.role).toBe('operator');
    const third = (await post<Person>('/api/access/pairings/approve', { code: await codeFor('3'), role: 'viewer' }))
      .body;
    expect(third.role).toBe('viewer');
    const { messages } = (await get<{ messages: { chat: string; text: string }[] }>('/api/outbox?limit=200')).body;
    expect(messages.filter(({ text }) => text.startsWith('Welcome')).map(({ chat }) => chat)).toEqual(['3', '2', '1']);
    const { entries } = (await get<{ entries: { action: string; target: string }[] }>('/api/audit?limit=3')).body;
    expect(entries.map(({ action, target }) => `${action} ${target}`)).toEqual(
      ['3', '2', '1'].map((user) => `access.approved telegram/default/${user}`),
    );
  });

  test('a code works once, and wrong ones are limited', async () => {
    const code = await codeFor('4');
    expect((await post('/api/access/pairings/approve', { code })).status).toBe(200);
    expect((await post<Problem>('/api/access/pairings/approve', { code })).body).toMatchObject({
      status: 404,
      code: 'not_found',
      field: 'code',
    });
    for (let tries = 0; tries < 4; tries += 1) await post('/api/access/pairings/approve', { code: 'AAAAAAAA' });
    expect((await post<Problem>('/api/access/pairings/approve', { code: await codeFor('5') })).body).toMatchObject({
      status: 429,
      code: 'rate_limited',
    });
  });

  test('roles are given and taken', async () => {
    await gateway.pair('wecom', 'zhang');
    const find = async () =>
      (await get<{ people: Person[] }>('/api/access')).body.people.find(({ userId }) => userId === 'zhang')!;
    const { id } = await find();
    expect((await post<Person>(`/api/access/people/${id}/role`, { role: 'approver' })).body.role).toBe('approver');
    expect((await post<Person>(`/api/access/people/${id}/revoke`)).body.revokedAt).toEqual(expect.any(Number));
    expect((await post<Problem>(`/api/access/people/${id}/revoke`)).status).toBe(409);
    expect((await post<Problem>(`/api/access/people/${id}/role`, { role: 'king' })).body).toMatchObject({
      status: 400,
      code: 'invalid_request',
      field: 'role',
    });
    expect((await post<Person>(`/api/access/people/${id}/role`, { role: 'operator' })).body).toMatchObject({
      role: 'operator',
      revokedAt: null,
    });
  });

  test('groups are opened and closed', async () => {
    const group = { channel: 'telegram', chat: '-100200300' };
    expect((await post('/api/access/groups', group)).body).toEqual({ changed: true });
    expect((await post('/api/access/groups', group)).body).toEqual({ changed: false });
    expect((await get<{ groups: unknown[] }>('/api/access')).body.groups).toMatchObject([
      { ...group, allowedBy: 'api:admin' },
    ]);
    expect((await post('/api/access/groups', { ...group, policy: 'commands' })).body).toEqual({ changed: true });
    expect((await post('/api/access/groups', { ...group, policy: 'commands' })).body).toEqual({ changed: false });
    expect((await get<{ groups: unknown[] }>('/api/access')).body.groups).toMatchObject([{ policy: 'commands' }]);
    for (const wrong of [{ policy: 'loud' }, { policy: 'off', allow: false }])
      expect((await post<Problem>('/api/access/groups', { ...group, ...wrong })).body).toMatchObject({
        code: 'invalid_request',
        field: 'policy',
      });
    expect((await post('/api/access/groups', { ...group, allow: false })).body).toEqual({ changed: true });
    expect((await post<Problem>('/api/access/groups', { ...group, channel: 'fax' })).body).toMatchObject({
      status: 400,
      field: 'channel',
    });
  });
});

describe('agents and templates', () => {
  test('agents are listed with their work', async () => {
    const { agents } = (await get<{ agents: unknown[] }>('/api/agents')).body;
    expect(agents).toEqual([
      expect.objectContaining({ agentId: 'agent-1', online: true, pools: ['default'], concurrency: 4 }),
    ]);
  });

  test('a token is issued with what it fixes, shown once and written down', async () => {
    const { status, body } = await post<{ agentToken: string }>('/api/agents/tokens', {
      agentId: 'a-2',
      pools: ['p'],
      labels: { city: 'sz' },
      permanent: true,
    });
    expect(status).toBe(201);
    expect(await gateway.gateway.rooms.tokens.identify(body.agentToken)).toEqual({
      agentId: 'a-2',
      pools: ['p'],
      labels: { city: 'sz' },
    });
    const audit = JSON.stringify((await get('/api/audit')).body);
    expect(audit).toContain('agent_token.issued');
    expect(audit).not.toContain(body.agentToken);
  });

  test('templates are listed with their arguments', async () => {
    const { templates, problems } = (
      await get<{ templates: { id: string; args: object }[]; problems: unknown[] }>('/api/templates')
    ).body;
    expect(problems).toEqual([]);
    expect(templates.find(({ id }) => id === 'hello')).toMatchObject({
      args: { name: { type: 'string', required: false } },
      pool: 'default',
    });
  });
});
