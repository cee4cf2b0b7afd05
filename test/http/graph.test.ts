import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

let house: TestGateway;
beforeAll(async () => {
  house = await TestGateway.start();
});
afterAll(() => house.stop());

const call = <T = Record<string, unknown>>(method: string, path: string, body?: unknown) =>
  house.api<T>(method, path, body);

interface Answer {
  tasks: { taskId: string; status: string; flowId: string }[];
}
const hello = (more: object = {}) => ({ template: 'hello', pool: 'nobody', ...more });
const batch = async (body: unknown) => (await call<Answer>('POST', '/api/tasks/batch', body)).body.tasks;

it('A63: a graph is submitted whole; each task tells whom it needs and who needs it', async () => {
  const answer = await call<Answer>('POST', '/api/tasks/batch', [
    hello(),
    hello({ needs: [0] }),
    hello({ needs: [0], when: 'always' }),
    hello({ needs: [1, 2] }),
  ]);
  expect(answer.status).toBe(201);
  const [a, b, c, d] = answer.body.tasks;
  expect(answer.body.tasks.map(({ status }) => status)).toEqual(['queued', 'waiting', 'waiting', 'waiting']);
  expect((await call('GET', `/api/tasks/${c!.taskId}`)).body).toMatchObject({
    status: 'waiting',
    reason: 'needs',
    flowId: a!.flowId,
    needs: [{ taskId: a!.taskId, status: 'queued', when: 'always', met: false }],
    neededBy: [{ taskId: d!.taskId, status: 'waiting' }],
  });
  expect((await call('GET', `/api/tasks/${b!.taskId}`)).body).toMatchObject({ needs: [{ when: 'success' }] });
  expect((await call('GET', `/api/flows/${a!.flowId}`)).body).not.toHaveProperty('sessionKey');
  const plain = (await call<{ taskId: string }>('POST', '/api/tasks', hello())).body;
  expect((await call('GET', `/api/tasks/${plain.taskId}`)).body).not.toHaveProperty('needs');
});

it.each<[string, unknown, number, string, string]>([
  [
    'A63: a circle',
    [hello({ needs: [1] }), hello({ needs: [0] })],
    400,
    '[0].needs[0]',
    'tasks[0].needs[0]: 0 → 1 → 0',
  ],
  ['A63: itself', { tasks: [hello({ needs: [0] })] }, 400, 'tasks[0].needs[0]', 'tasks[0].needs[0]: 0 → 0'],
  ['no such index', [hello({ needs: [7] })], 400, '[0].needs[0]', 'no task 7'],
  ['no such task', { tasks: [hello(), hello({ needs: ['!!'] })] }, 400, 'tasks[1].needs[0]', 'no task "!!"'],
  ['a need that is none', [hello({ needs: [null] })], 400, '[0].needs[0]', 'needs'],
  ['half an index', [hello({ needs: [0.5] })], 400, '[0].needs[0]', 'needs'],
  ['a deadline that is none', { tasks: [hello()], deadline: 'soon' }, 400, 'deadline', 'duration'],
  ['no tasks', { tasks: [] }, 400, 'tasks', 'tasks'],
  ['an unknown word', { tasks: [hello()], dead: 1 }, 400, 'body', 'dead'],
  ['no batch at all', 'x', 400, 'body', ''],
  [
    'too many needs',
    [
      ...Array.from({ length: 501 }, (_, n) => hello(n === 0 ? {} : { needs: [0] })),
      hello({ needs: [...Array(501).keys()] }),
    ],
    400,
    '[501].needs[500]',
    '1000 needs',
  ],
])('%s is refused, by its place', async (_name, body, status, field, text) => {
  const before = (await call<{ tasks: unknown[] }>('GET', '/api/flows?limit=200')).body;
  const answer = await call<{ detail: string; field: string }>('POST', '/api/tasks/batch', body);
  expect(answer).toMatchObject({ status, body: { field } });
  expect(answer.body.detail).toContain(text);
  expect((await call('GET', '/api/flows?limit=200')).body).toEqual(before);
});

it('a flow is cancelled as a whole, audited, and gets no more tasks', async () => {
  const [a, b] = await batch({ tasks: [hello(), hello({ needs: [0] })], label: 'Nightly', deadline: '1h' });
  const flow = (await call<{ deadlineAt: number; createdAt: number; goal: string }>('GET', `/api/flows/${a!.flowId}`))
    .body;
  expect(flow).toMatchObject({ goal: 'Nightly', deadlineAt: flow.createdAt + 3_600_000 });
  expect(await call('POST', `/api/flows/${a!.flowId}/cancel`)).toMatchObject({
    status: 202,
    body: { status: 'cancelled' },
  });
  for (const { taskId } of [a!, b!])
    expect((await call('GET', `/api/tasks/${taskId}`)).body).toMatchObject({
      status: 'cancelled',
      reason: 'cancel_requested',
    });
  expect(await call('POST', `/api/flows/${a!.flowId}/cancel`)).toMatchObject({
    status: 409,
    body: { code: 'conflict' },
  });
  expect(await call('POST', '/api/flows/zzzzzz/cancel')).toMatchObject({ status: 404 });
  expect(await call('POST', '/api/tasks', hello({ flowId: a!.flowId }))).toMatchObject({
    status: 409,
    body: { field: 'flowId' },
  });
  const { entries } = (await call<{ entries: { action: string; target: string }[] }>('GET', '/api/audit')).body;
  expect(entries).toContainEqual(expect.objectContaining({ action: 'flow.cancelled', target: `flow/${a!.flowId}` }));
});

it('a person cannot push a task past its needs', async () => {
  const [a, b] = await batch([hello(), hello({ needs: [0] })]);
  expect(await call('POST', `/api/tasks/${b!.taskId}/retry`)).toMatchObject({
    status: 409,
    body: { detail: expect.stringContaining('tasks that it needs') },
  });
  await call('POST', `/api/tasks/${a!.taskId}/cancel`);
  expect(await call('POST', `/api/tasks/${b!.taskId}/retry`)).toMatchObject({ status: 409 });
  await call('POST', `/api/tasks/${a!.taskId}/retry`);
  expect((await call('GET', `/api/tasks/${b!.taskId}`)).body).toMatchObject({ status: 'waiting', generation: 2 });
});

it('the deadline is kept by the sweeper of the running gateway', async () => {
  const [a, b] = await batch({ tasks: [hello(), hello({ needs: [0] })], deadline: 50 });
  await until(async () => (await call('GET', `/api/flows/${a!.flowId}`)).body.status === 'failed', 'the flow to end');
  expect((await call('GET', `/api/tasks/${b!.taskId}`)).body).toMatchObject({ status: 'failed', reason: 'deadline' });
});

it('a graph runs on an agent in the order of its needs', async () => {
  await house.agent('agent-1', { AGENT_CONCURRENCY: '4' });
  const step = (needs: number[]) => ({ template: 'hello', needs });
  const tasks = await batch([step([1, 2]), step([3]), step([3]), step([])]);
  await until(
    async () => (await call('GET', `/api/flows/${tasks[0]!.flowId}`)).body.status === 'finished',
    'the graph',
  );
  interface Seen {
    startedAt: number;
    endedAt: number;
    runs: unknown[];
  }
  const seen = await Promise.all(
    tasks.map(async ({ taskId }) => (await call<Seen>('GET', `/api/tasks/${taskId}`)).body),
  );
  for (const [task, needs] of [
    [0, [1, 2]],
    [1, [3]],
    [2, [3]],
  ] as const)
    for (const on of needs) expect(seen[task]!.startedAt).toBeGreaterThanOrEqual(seen[on]!.endedAt);
  expect(seen.map(({ runs }) => runs.length)).toEqual([1, 1, 1, 1]);
});

it('the example of docs/dependencies.md is a graph', async () => {
  const page = await readFile(join(import.meta.dirname, '..', '..', 'docs', 'dependencies.md'), 'utf8');
  const graph = JSON.parse(/```json\n(.*?)```/s.exec(page)![1]!) as { tasks: object[] };
  const tasks = await batch({ ...graph, tasks: graph.tasks.map((task) => ({ ...task, pool: 'nobody' })) });
  expect(tasks.map(({ status }) => status)).toEqual(['queued', 'waiting', 'waiting', 'waiting', 'waiting']);
});
